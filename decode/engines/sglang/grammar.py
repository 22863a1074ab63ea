"""The grammar of a request in SGLang as a structure that bounds its drafts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.lattice.structure import Matcher, State

_MASKS: dict[type, torch.dtype] = {}  # of grammar objects: asked once, as a mask may lie in pinned memory


@dataclass(frozen=True, slots=True)
class RequestGrammar:
    """The structure of SGLang's grammar object of a request, which is left as it is. Equal for the same object."""

    grammar: Any

    @classmethod
    def of(cls, grammar: Any, vocab_size: int) -> RequestGrammar | None:
        """None without a grammar, and for back ends whose masks are no bits, as those of outlines."""
        if grammar is None:
            return None
        kind = type(grammar)
        if kind not in _MASKS:
            _MASKS[kind] = grammar.allocate_vocab_mask(vocab_size, 1, "cpu").dtype
        return cls(grammar) if _MASKS[kind] == torch.int32 else None

    def start(self, vocab_size: int, ends: Collection[int]) -> State:
        walker = _Walker(self.grammar.copy(), vocab_size, ends)
        return State(walker.at, vocab_size, frozenset(ends))


class _Walker:
    """A grammar object that stands at one place of the tree of texts and goes to others by its own rollback."""

    def __init__(self, grammar: Any, vocab_size: int, ends: Collection[int]):
        self.grammar, self.ends = grammar, ends
        self.mask = grammar.allocate_vocab_mask(vocab_size, 1, "cpu")
        self.at = _Place(self, None, -1)

    def bits(self, place: _Place) -> NDArray[np.uint32]:
        """The mask after a place's tokens."""
        back, on, due = self.at, place, []
        while back is not on:
            if back.depth > on.depth:
                back = back.before or back
            else:
                due.append(on.token)
                on = on.before or on
        if self.at.depth > on.depth:
            self.grammar.rollback(self.at.depth - on.depth)
        for token in reversed(due):
            self.grammar.accept_token(token)
        self.at = place
        self.mask.fill_(-1)
        self.grammar.fill_vocab_mask(self.mask, 0)
        return self.mask[0].numpy().view(np.uint32).copy()


class _Place(Matcher):
    """A `Matcher`: what the grammar says after some tokens. The text may end where an end token is allowed."""

    def __init__(self, walker: _Walker, before: _Place | None, token: int):
        self._walker, self.before, self.token = walker, before, token
        self.depth: int = before.depth + 1 if before else 0
        self._bits: NDArray[np.uint32] | None = None

    def _allowed(self) -> NDArray[np.uint32]:
        if self._bits is None:
            self._bits = self._walker.bits(self)
        return self._bits

    @property
    def accepting(self) -> bool:
        return any(int(self._allowed()[end // 32]) >> end % 32 & 1 for end in self._walker.ends)

    def write(self, words: NDArray[np.uint32]) -> None:
        bits = self._allowed()[: len(words)]
        words[: len(bits)] = bits

    def after(self, *tokens: int) -> _Place:
        return reduce(lambda place, token: _Place(self._walker, place, token), tokens, self)
