"""Drafts of lattices: the best paths, and paths sampled from q."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.short_repr import short_repr
from rescore.lattice.tree import TokenTree


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drafts:
    """The p best paths of each lattice, best first.

    tokens int32 [B, p, T] (or [p, T] of a single sausage), padding -1; cost float32 [B, p] or [p], nats, ascending,
    padding +inf; count int32 [B] or []: number of paths.
    """

    tokens: NDArray[np.int32]
    cost: NDArray[np.float32]
    count: NDArray[np.int32]

    __repr__ = short_repr

    def tree(self) -> TokenTree:
        """The drafts of a single sausage merged by common prefix."""
        if self.tokens.ndim != 2:
            raise TypeError(
                "tree: expected the drafts of a single sausage, got a batch; use TokenTree.from_drafts(tokens[lattice])"
            )
        return TokenTree.from_drafts(self.tokens[: int(self.count)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledDrafts:
    """Drafts sampled from a normalised lattice, and their draft distribution q.

    tokens  int32 [B, p, T], padding -1 after the draft's length
    q       float64 [B, p, T, K], q(candidate | earlier tokens of the draft), by rank; a row sums to 1, and is all 0
            from the draft's length on
    ids     int32 [B, T, K], the candidates of the sausage by rank, padding -1
    logq    float64 [B, p], ln q of the draft, the sum over its tokens
    lengths int32 [B, p], the lattice's length, or less where no candidate was possible

    Without B for a single sausage.
    """

    tokens: NDArray[np.int32]
    q: NDArray[np.float64]
    ids: NDArray[np.int32]
    logq: NDArray[np.float64]
    lengths: NDArray[np.int32]

    __repr__ = short_repr
