"""Token trees of a batch of lattices, as the native core returns them."""

from __future__ import annotations

from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trees:
    """The best trees of a batch. The first k nodes of a tree are the best tree of k nodes.

    tokens, parents, depths int32 [B, n] (padding -1, -1, 0), logq float32 [B, n] (padding -inf), count int32 [B].
    """

    tokens: NDArray[np.int32]
    parents: NDArray[np.int32]
    depths: NDArray[np.int32]
    logq: NDArray[np.float32]
    count: NDArray[np.int32]

    __repr__ = short_repr

    @classmethod
    def of_core(
        cls,
        columns: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]],
    ) -> Trees:
        """Trees from the tuple that the native core returns."""
        tokens, parents, depths, logq, count = columns
        return cls(tokens=tokens, parents=parents, depths=depths, logq=logq, count=count)

    @classmethod
    def empty(cls, lattices: int, n: int) -> Trees:
        """Uninitialised arrays for trees of n nodes."""
        shape = lattices, n
        return cls(
            tokens=np.empty(shape, np.int32),
            parents=np.empty(shape, np.int32),
            depths=np.empty(shape, np.int32),
            logq=np.empty(shape, np.float32),
            count=np.empty(lattices, np.int32),
        )

    @classmethod
    def joined(cls, trees: Sequence[TokenTree]) -> Trees:
        """A batch of single trees, padded to the largest."""
        out = cls.empty(len(trees), max((tree.size for tree in trees), default=0))
        for name, padding in (("tokens", -1), ("parents", -1), ("depths", 0), ("logq", -np.inf)):
            column = getattr(out, name)
            column.fill(padding)
            for row, tree in zip(column, trees):
                row[: tree.size] = getattr(tree, name)
        out.count[:] = [tree.size for tree in trees]
        return out

    @property
    def columns(
        self,
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
        """The tuple that the native core takes and returns."""
        return self.tokens, self.parents, self.depths, self.logq, self.count

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, lattice: int) -> TokenTree:
        """The tree of one lattice, without padding."""
        n = int(self.count[lattice])
        return TokenTree.trusted(
            self.tokens[lattice, :n], self.parents[lattice, :n], self.depths[lattice, :n], self.logq[lattice, :n]
        )
