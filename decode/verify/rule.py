"""The acceptance rule: what decides, request by request, which drafted tokens stay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rescore.decode.verify.scored_draft import ScoredDraft
    from rescore.decode.verify.verdict import Verdict


class Verifier(Protocol):
    """A rule at work on one request; it may remember what it did."""

    def verify(self, scored: ScoredDraft) -> Verdict: ...


class Rule(Protocol):
    """guarantee: what the text is. drawn: whether it wants drafts drawn from q."""

    guarantee: str
    drawn: bool

    def open(self) -> Verifier: ...


class StatelessRule(ABC):
    """A rule that remembers nothing: one verifier, itself, serves all requests."""

    def open(self) -> Verifier:
        return self

    @abstractmethod
    def verify(self, scored: ScoredDraft) -> Verdict: ...
