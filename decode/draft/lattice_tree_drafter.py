"""Drafts trees that follow from the heads' candidates alone: Medusa's and BiTA's trees of ranks, EAGLE-2's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Lattices, LatticeSession, Proposed
from rescore.decode.draft.sources import DraftSources, Options, fixed_size
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import Trees

WIDTH = 10  # k in the paper


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


def _reranked(n: int, tokens: NDArray, parents: NDArray, cost: NDArray, depths: NDArray) -> Trees:
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


Grow = Callable[[Sausage, int], Trees]
"""Maps lattices [B, T, K] and n to trees of at most n nodes: `StaticTree.trees`, `dynamic_trees`."""


class LatticeTreeDrafter:
    """Drafts the trees that `grow` makes of the heads' lattices, of at most `nodes` nodes."""

    drawn = 0

    def __init__(self, lattice: Lattices, grow: Grow, *, nodes: int):
        self.lattice, self.grow, self.nodes = lattice, grow, nodes

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> _LatticeTreeSession:
        return _LatticeTreeSession(self, self.lattice.open(len(prompts)))


class _LatticeTreeSession:
    def __init__(self, drafter: LatticeTreeDrafter, lattices: LatticeSession):
        self.drafter, self.lattices = drafter, lattices

    def propose(self, step: DraftStep) -> Proposed:
        return self.drafter.grow(self.lattices.sausages(step), step.nodes or self.drafter.nodes)

    def select(self, rows: Sequence[int]) -> None:
        self.lattices.select(rows)


def of_sources(sources: DraftSources, options: Options) -> LatticeTreeDrafter:
    """EAGLE-2's trees; with `counts` among the options, Medusa's."""
    lattice, nodes = sources.lattice(options), fixed_size(options["nodes"])
    grow = sources.counted(options["counts"], nodes, options["top_k"]).trees if "counts" in options else dynamic_trees
    return LatticeTreeDrafter(lattice, grow, nodes=nodes)
