"""A tree of fixed shape for all lattices, made of ranks: the k-th candidate of a slot after the j-th of the last one.

Cai et al. 2024, "Medusa" (arXiv 2401.10774), section 2.3.3: count how often each sequence of ranks is true on
validation data, then add nodes greedily, each time the one that lengthens the accepted draft most. Medusa treats the
heads' hits as independent and multiplies their rates; here the sequences themselves are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import Sausage, ranks
from rescore.lattice.short_repr import short_repr
from rescore.lattice.tree import Trees


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StaticTree:
    """A tree of n nodes, parents before children, most often true first: the first m nodes are the best tree of m.

    ranks   int32 [n], the rank of the node's token among its slot's candidates, from 0
    parents int32 [n], -1 for children of the root token
    depths  int32 [n], from 1: the node is in slot depths - 1
    share   float64 [n], in (0, 1]: share of the counted rows whose truth goes through the node; NaN if not counted
    """

    ranks: NDArray[np.int32]
    parents: NDArray[np.int32]
    depths: NDArray[np.int32]
    share: NDArray[np.float64]

    __repr__ = short_repr

    @classmethod
    def counted(cls, blocks: Iterable[DumpBlock], n: int, *, top_k: int | None = None) -> StaticTree:
        """Returns the best n nodes (fewer, if fewer were ever true) for the rows of `blocks`. ValueError if none.

        Count on the tuning part of a split, and report on the rest.
        """
        if n < 1:
            raise ValueError(f"n: expected at least 1 node, got {n}")
        counts: Counter[tuple[int, ...]] = Counter()
        rows = 0
        for block in blocks:
            rows += block.rows
            for path in ranks(block.sausages(k=top_k), block.truth()).tolist():
                length = next((t for t, rank in enumerate(path) if rank < 0), len(path))
                counts.update(tuple(path[:t]) for t in range(1, length + 1))
        if not counts:
            raise ValueError(f"expected rows whose truth is among the candidates, got none in {rows} rows")
        # A prefix is true at least as often as its extensions, so the greedy tree is the n greatest counts.
        best = sorted(counts, key=lambda path: (-counts[path], len(path), path))[:n]
        number = {path: i for i, path in enumerate(best)}
        return cls(
            ranks=np.array([path[-1] for path in best], np.int32),
            parents=np.array([number.get(path[:-1], -1) for path in best], np.int32),
            depths=np.array([len(path) for path in best], np.int32),
            share=np.array([counts[path] / rows for path in best]),
        )

    @classmethod
    def spine(cls, slots: int, k: int) -> StaticTree:
        """BiTA's "efficient" tree of slots x k nodes: all k candidates of each slot after the best candidates of the
        slots before (Lin et al. 2024, section 3.2 and figure 5). share is NaN: nothing was counted.
        """
        if slots < 1 or k < 1:
            raise ValueError(f"expected at least 1 slot and 1 candidate, got {slots} and {k}")
        slot = np.repeat(np.arange(slots, dtype=np.int32), k)
        return cls(
            ranks=np.tile(np.arange(k, dtype=np.int32), slots),
            parents=np.where(slot > 0, (slot - 1) * k, -1).astype(np.int32),
            depths=slot + 1,
            share=np.full(slots * k, np.nan),
        )

    def trees(self, sausages: Sausage, n: int | None = None) -> Trees:
        """The tree's first n nodes (None: all), filled with the tokens of each lattice of a batch [B, T, K]; logq is
        NaN.
        """
        batch, n = len(sausages.ids), min(len(self.ranks), n or len(self.ranks))
        if int(self.depths.max()) > sausages.slots or int(self.ranks.max()) >= sausages.width:
            raise ValueError(
                f"expected lattices of at least {self.depths.max()} slots and {self.ranks.max() + 1} candidates, "
                f"as the tree was counted on, got {sausages.slots} and {sausages.width}"
            )
        return Trees(
            tokens=np.ascontiguousarray(sausages.ids[:, self.depths[:n] - 1, self.ranks[:n]]),
            parents=np.broadcast_to(self.parents[:n], (batch, n)),
            depths=np.broadcast_to(self.depths[:n], (batch, n)),
            logq=np.full((batch, n), np.nan, np.float32),
            count=np.full(batch, n, np.int32),
        )
