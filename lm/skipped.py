"""Skipped documents, counted by reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EXAMPLES = 5


class BadText(ValueError):
    """A document that cannot be used. `reason` is the same for all documents with the same fault."""

    def __init__(self, reason: str, message: str | None = None):
        super().__init__(message or reason)
        self.reason = reason


@dataclass(slots=True)
class Skipped:
    """Skipped documents: the number for each reason, and the first few with file, line and fault.

    notes  what else was noticed in the inputs
    """

    reasons: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(self.reasons.values())

    def add(self, where: str, fault: BadText) -> None:
        self.reasons[fault.reason] = self.reasons.get(fault.reason, 0) + 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{where}: {fault}")

    def extend(self, other: Skipped) -> None:
        """Adds the skipped documents of another part of the text."""
        for reason, number in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + number
        self.examples = [*self.examples, *other.examples][:EXAMPLES]
        self.notes = [*self.notes, *other.notes][:EXAMPLES]

    def told(self) -> str:
        """The reasons and their numbers."""
        return ", ".join(f"{number:,} {reason}" for reason, number in sorted(self.reasons.items()))

    def why_nothing(self) -> str:
        """The message for an input without tokens."""
        if not self:
            return "expected at least one token, got none: there is no document in it"
        return f"no document could be read; {len(self):,} skipped ({self.told()}), the first: {self.examples[0]}"

    def to_json(self) -> dict[str, Any]:
        return {
            "documents": len(self),
            "reasons": dict(self.reasons),
            "examples": list(self.examples),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, *values: Mapping[str, Any]) -> Skipped:
        """What was skipped in one or more parts of the text."""
        every = cls()
        for value in values:
            examples, notes = list(value["examples"]), list(value.get("notes", ()))
            every.extend(cls(reasons=dict(value["reasons"]), examples=examples, notes=notes))
        return every
