"""Drafts of lattices: the best strings, and strings drawn from a distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.short_repr import short_repr
from rescore.lattice.tree import TokenTree


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drafts:
    """The best strings of each lattice, best first.

    tokens int32 [B, p, T] (or [p, T] of a single sausage), padding -1; cost float32 [B, p] or [p], nats, ascending,
    padding +inf; count int32 [B] or []: how many there are.
    """

    tokens: NDArray[np.int32]
    cost: NDArray[np.float32]
    count: NDArray[np.int32]

    __repr__ = short_repr

    def tree(self) -> TokenTree:
        """The drafts of a single sausage merged by common prefix."""
        if self.tokens.ndim != 2:
            raise TypeError("drafts of a batch have no one tree; index tokens by lattice and use TokenTree.from_drafts")
        return TokenTree.from_drafts(self.tokens[: int(self.count)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledDrafts:
    """Drafts drawn from a normalised lattice, and what they were drawn from.

    tokens  int32 [B, p, T], padding -1 after the draft's length
    q       float64 [B, p, T, K], q(candidate | the draft's tokens before), by rank; a row sums to 1, and is 0 from the
            draft's length on
    ids     int32 [B, T, K], the candidates by rank, padding -1: those of the sausage
    logq    float64 [B, p], ln q of the draft, the sum over its tokens
    lengths int32 [B, p], those of the lattices, and shorter only where no candidate was possible

    Of a single sausage all are without B.
    """

    tokens: NDArray[np.int32]
    q: NDArray[np.float64]
    ids: NDArray[np.int32]
    logq: NDArray[np.float64]
    lengths: NDArray[np.int32]

    __repr__ = short_repr
