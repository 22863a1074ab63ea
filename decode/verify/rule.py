"""The interface of acceptance rules, and their verdict: the drafted tokens to keep, and the token after them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from rescore.decode.verify.draft import ScoredDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The accepted tokens, and the root token that the target's pass adds after them.

    accepted  indices of the accepted nodes, from the root down; 0..n-1 of a chain
    token     the id after the last of them
    """

    accepted: tuple[int, ...]
    token: int

    @property
    def length(self) -> int:
        """Accepted tokens n; the pass yields n + 1."""
        return len(self.accepted)


class Rule(ABC):
    """An acceptance rule.

    guarantee  the guarantee for the text
    greedy     whether it verifies greedy text, the target's most probable tokens, rather than sampled text
    drawn      whether it needs drafts drawn from a known q
    """

    guarantee: str
    greedy = False
    drawn: bool

    def open(self) -> Rule:
        """The rule for one request; a rule without state is the same for all."""
        return self

    @abstractmethod
    def verify(self, scored: ScoredDraft) -> Verdict: ...
