"""Drafts drawn from the normalised lattice, with their q, for the rules of drawn drafts at temperature > 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.draft.drafter import Proposed, Rescoring
from rescore.decode.draft.lattice_drafters import LatticeDrafter, check_paths
from rescore.decode.draft.normalised import NormalisedLattice
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.sources import DraftSources, Missing
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.draft import Draft
from rescore.lattice.tree import SampledDrafts, TokenTree

if TYPE_CHECKING:
    from rescore.decode.draft.heads_lattice import HeadsLattice, HeadsLatticeSession


class LatticeDistribution:
    """q of one request's lattice, along its p drawn drafts and after any other prefix."""

    def __init__(self, drafts: SampledDrafts, row: int, tree: TokenTree, path: NDArray[np.int32], again: _Again):
        self.q, self.ids = drafts.q[row], drafts.ids[row]
        self.tree, self.path, self.again = tree, path, again

    def rows(self, nodes: Sequence[int]) -> Tensor:
        """float64 [m, V]. Rows after a whole draft are zero: nothing is drawn there."""
        rows = torch.zeros(len(nodes), self.again.vocab_size, dtype=torch.float64)
        for i, node in enumerate(nodes):
            depth = int(self.tree.depths[node]) if node >= 0 else 0
            if depth < len(self.ids):
                self._spread(rows[i], depth, self.q[self.path[node] if node >= 0 else 0, depth])
        return rows.to(self.again.device)

    def after(self, tokens: Sequence[int]) -> Tensor:
        """float64 [V]; all zero past the lattice, and after tokens that it could not have drawn."""
        row = torch.zeros(self.again.vocab_size, dtype=torch.float64)
        depth = len(tokens)
        if depth < len(self.ids):
            draft = np.full((1, len(self.ids)), -1, np.int32)
            draft[0, :depth] = tokens
            self._spread(row, depth, self.again.rows(draft)[0, depth])
        return row.to(self.again.device)

    def _spread(self, row: Tensor, slot: int, q: NDArray[np.float64]) -> None:
        ids = self.ids[slot]
        row[torch.from_numpy(ids[ids >= 0].astype(np.int64))] = torch.from_numpy(q[ids >= 0])


class _Again:
    """One request's lattice, evaluated at prefixes that were not drawn."""

    def __init__(self, lattices: NormalisedLattice, row: int, vocab_size: int, device: torch.device | None):
        self.lattices, self.row = lattices, row
        self.vocab_size, self.device = vocab_size, device

    def rows(self, drafts: NDArray[np.int32]) -> NDArray[np.float64]:
        """q along drafts [p, T]: [p, T, K]."""
        every = np.full((len(self.lattices.ids), *drafts.shape), -1, np.int32)
        every[self.row] = drafts
        return self.lattices.rows(every)[self.row]


class DrawnDrafter(LatticeDrafter, Rescoring):
    """Draws p drafts independently from q of the rescored lattice (docs/reference/concepts.md, q), merged by prefix.

    temperature  of q: costs are divided by it
    local        normalises each slot by itself, instead of whole paths
    """

    def __init__(
        self,
        lattice: HeadsLattice,
        rescorer: Rescorer | None = None,
        *,
        paths: int = 1,
        temperature: float = 1.0,
        local: bool = False,
    ):
        check_paths(paths)
        self.lattice, self.rescorer, self.drawn = lattice, rescorer or Rescorer(), paths
        self.temperature, self.local = temperature, local

    def draft(self, lattices: HeadsLatticeSession, step: DraftStep) -> Proposed:
        sausages, histories = lattices.sausages(step), step.contexts(self.rescorer.context)
        found = self.rescorer.normalise(sausages, histories, temperature=self.temperature, local=self.local)
        drawn = found.sample(np.stack([random.random((self.drawn, sausages.slots)) for random in step.random]))
        device = None if step.hidden is None else step.hidden.device
        agains = [_Again(found, row, lattices.vocab_size, device) for row in range(len(step.random))]
        return [_draft(drawn, row, again, room) for row, (again, room) in enumerate(zip(agains, step.room))]


def _draft(drawn: SampledDrafts, row: int, again: _Again, room: int) -> Draft:
    tokens = drawn.tokens[row, :, :room]
    tree = TokenTree.from_drafts(tokens)
    draws, path = _draws(tree, tokens)
    return Draft(tree=tree, distribution=LatticeDistribution(drawn, row, tree, path, again), draws=draws)


def _draws(tree: TokenTree, tokens: NDArray[np.int32]) -> tuple[tuple[int, ...], NDArray[np.int32]]:
    """The node of every draw, draft by draft; and for every node a draft that contains it, int32 [n]."""
    node_of = {edge: node for node, edge in enumerate(zip(tree.parents.tolist(), tree.tokens.tolist()))}
    draws, path = [], np.zeros(tree.size, np.int32)
    for draft, ids in enumerate(tokens.tolist()):
        node = -1
        for token in ids:
            if token < 0:
                break
            node = node_of[node, token]
            draws.append(node)
            path[node] = draft
    return tuple(draws), path


def drawn(
    sources: DraftSources, *, lm: Any = (), alpha: Any = None, top_k: int | None = None, paths: int = 1
) -> DrawnDrafter:
    if not sources.samples:
        raise Missing("needs sampled text; give --temperature above 0")
    lattice = cast("HeadsLattice", sources.lattice(top_k))  # a dump's are not drawn from
    rescorer = sources.rescorer("paths", lm, alpha) if sources.lms(lm) else None
    return DrawnDrafter(lattice, rescorer, paths=paths)
