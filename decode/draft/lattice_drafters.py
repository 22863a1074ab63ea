"""Drafters of the heads' lattice: its p best paths, trees of fixed ranks (Medusa, BiTA), and EAGLE-2's trees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Proposed, Proposing
from rescore.decode.draft.lattices import Lattices, LatticeSession, Rescoring
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.request_text import last_tokens
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.checked import whole
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import Sausage, ranks
from rescore.lattice.short_repr import short_repr
from rescore.lattice.tree import Trees

WIDTH = 10  # k of EAGLE-2 (Li et al. 2024)


class LatticeDrafter(ABC):
    """Drafts from the heads' lattices alone: `draft` maps an opened `Lattices` and a step to a proposal."""

    lattice: Lattices
    drawn = 0

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> Proposing:
        return Proposing(partial(self.draft, self.lattice.open(len(prompts))))

    @abstractmethod
    def draft(self, lattices: Any, step: DraftStep) -> Proposed: ...


class PathDrafter(LatticeDrafter, Rescoring):
    """Drafts the p best paths of the rescored lattice, merged by prefix; without models, those of the heads alone."""

    def __init__(self, lattice: Lattices, rescorer: Rescorer | None = None, *, paths: int = 1):
        check_paths(paths)
        self.lattice, self.rescorer, self.paths = lattice, rescorer or Rescorer(), paths

    def draft(self, lattices: LatticeSession, step: DraftStep) -> Proposed:
        histories = last_tokens(step.texts, self.rescorer.context)
        return self.rescorer.paths(lattices.sausages(step), histories, step.nodes or self.paths)


def check_paths(paths: int) -> None:
    if not 1 <= paths <= 1024:
        raise ValueError(f"paths: expected 1..1024 drafts for each request, got {paths}")


class LatticeTreeDrafter(LatticeDrafter):
    """Drafts the trees that `grow` makes of the heads' lattices, of at most `nodes` nodes.

    grow: maps lattices [B, T, K] and n to trees of at most n nodes (`StaticTree.trees`, `dynamic_trees`).
    """

    def __init__(self, lattice: Lattices, grow: Callable[[Sausage, int], Trees], *, nodes: int):
        self.lattice, self.grow, self.nodes = lattice, grow, nodes

    def draft(self, lattices: LatticeSession, step: DraftStep) -> Proposed:
        return self.grow(lattices.sausages(step), step.nodes or self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StaticTree:
    """A tree of fixed shape for all lattices, made of ranks: the k-th candidate of a slot after the j-th of the last.

    Cai et al. 2024, "Medusa" (arXiv 2401.10774), section 2.3.3: count how often each sequence of ranks is true on
    validation data, then add nodes greedily, each time the one that lengthens the accepted draft most. Medusa treats
    the heads' hits as independent and multiplies their rates; here the sequences themselves are counted. Parents come
    before children, nodes that are most often true first: the first m nodes are the best tree of m.

    ranks   int32 [n], the rank of the node's token among its slot's candidates, from 0
    parents int32 [n], -1 for children of the root token
    depths  int32 [n], from 1: the node is in slot depths - 1
    """

    ranks: NDArray[np.int32]
    parents: NDArray[np.int32]
    depths: NDArray[np.int32]

    __repr__ = short_repr

    @classmethod
    def counted(cls, blocks: Iterable[DumpBlock], n: int, *, top_k: int | None = None) -> StaticTree:
        """Returns the best n nodes (fewer, if fewer were ever true) for the rows of `blocks`. ValueError if none.

        Count on the tuning part of a split, and report on the rest.
        """
        whole(n, "n", 1)
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


def dynamic_trees(sausages: Sausage, n: int, *, width: int = WIDTH) -> Trees:
    """The trees of at most n nodes of a batch of lattices [B, T, K], best node first; the tree of m < n is its first m
    nodes.

    width: nodes expanded per layer, and children of each. logq is ln of a node's value under the heads' softmax over
    the whole vocabulary.
    """
    if n < 1 or width < 1:
        raise ValueError(f"expected n and width of at least 1, got {n} and {width}")
    k = min(width, sausages.width)
    batch = len(sausages.ids)
    best = np.argsort(sausages.cost, axis=-1, kind="stable")[..., :k]
    ids = np.take_along_axis(sausages.ids, best, -1)
    cost = np.take_along_axis(sausages.cost.astype(np.float64), best, -1)
    value, opened = np.zeros((batch, 1)), np.full((batch, 1), -1)  # costs and numbers of the expanded nodes
    tokens, costs, parents, depths = [], [], [], []
    made = 0
    for t in range(sausages.slots):
        value = (value[:, :, None] + cost[:, t, None, :]).reshape(batch, -1)
        tokens.append(np.broadcast_to(ids[:, t, None, :], (batch, opened.shape[1], k)).reshape(batch, -1))
        parents.append(np.repeat(opened, k, axis=1))
        costs.append(value)
        depths.append(np.full(value.shape[1], t + 1))
        chosen = np.argsort(value, axis=1, kind="stable")[:, :width]
        value, opened = np.take_along_axis(value, chosen, 1), chosen + made
        made += costs[-1].shape[1]
    return _reranked(
        n,
        np.concatenate(tokens, axis=1),
        np.concatenate(parents, axis=1),
        np.concatenate(costs, axis=1),
        np.concatenate(depths),
    )


def _reranked(
    n: int,
    tokens: NDArray[np.int32],
    parents: NDArray[np.int64],
    cost: NDArray[np.float64],
    depths: NDArray[np.int64],
) -> Trees:
    """The n cheapest of all nodes [B, m].

    A parent comes before its children and costs no more, so a stable order by cost is a tree's.
    """
    order = np.argsort(cost, axis=1, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(order.shape[1]), order.shape), 1)
    kept = order[:, :n]
    above = np.take_along_axis(parents, kept, 1)
    value = np.take_along_axis(cost, kept, 1)
    there = np.isfinite(value)  # padding of the lattices costs +inf
    new_parents = np.where(above < 0, -1, np.take_along_axis(place, np.maximum(above, 0), 1))
    return Trees(
        tokens=np.where(there, np.take_along_axis(tokens, kept, 1), -1).astype(np.int32),
        parents=np.where(there, new_parents, -1).astype(np.int32),
        depths=np.where(there, depths[kept], 0).astype(np.int32),
        logq=-value.astype(np.float32),
        count=there.sum(axis=1).astype(np.int32),
    )
