"""What an acceptance rule is, and what it returns: which drafted tokens stay, and the token that follows them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rescore.decode.verify.scored_draft import ScoredDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The drafted tokens that stay, and the one token more that the target's pass yields for certain.

    accepted  indices of the accepted nodes, from the root token downwards; of a chain 0..n-1
    token     the id that follows the last of them
    """

    accepted: tuple[int, ...]
    token: int

    @property
    def length(self) -> int:
        """Accepted tokens n; the pass yields n + 1."""
        return len(self.accepted)


class Verifier(Protocol):
    """A rule at work on one request; it may remember what it did."""

    def verify(self, scored: ScoredDraft) -> Verdict: ...


class Rule(Protocol):
    """guarantee  what the text is
    greedy     whether it verifies greedy text, the target's most probable tokens, rather than text that is drawn
    drawn      whether it wants drafts that were drawn from a known q
    """

    guarantee: str
    greedy: bool
    drawn: bool

    def open(self) -> Verifier: ...


class StatelessRule(ABC):
    """A rule that remembers nothing: one verifier, itself, serves all requests."""

    greedy = False

    def open(self) -> Verifier:
        return self

    @abstractmethod
    def verify(self, scored: ScoredDraft) -> Verdict: ...
