"""What a decoder was found to be: a line a check."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from textwrap import fill


class Status(str, Enum):
    """near tie: tokens came whose logits are within `tie` of the greatest, as where the size of a batch changes."""

    FAILED = "failed"
    NEAR_TIE = "near tie"
    PASSED = "passed"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Finding:
    """The status of a check, and its evidence."""

    check: str
    status: Status
    evidence: str


@dataclass(frozen=True, slots=True)
class Conformance:
    """The findings of all checks. True if none failed; as text, the verdict and a line a check."""

    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        return all(one.status is not Status.FAILED for one in self.findings)

    def __getitem__(self, check: str) -> Finding:
        return next(one for one in self.findings if one.check == check)

    def __str__(self) -> str:
        count = Counter(one.status for one in self.findings)
        parts = ", ".join(f"{count[one]} {one.value}" for one in Status if count[one])
        lines = [f"{'conforms' if self else 'does NOT conform'}: {parts}"]
        lines += [f"  {one.status.value:9}  {one.check:20}  {one.evidence}" for one in self.findings]
        return "\n".join(fill(line, 120, subsequent_indent=35 * " ") for line in lines)
