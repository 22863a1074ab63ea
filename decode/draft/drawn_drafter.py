"""Drafts drawn from the normalised lattice, with their q, for the rules of drawn drafts at temperature > 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.draft.drafter import Proposed
from rescore.decode.draft.lattice_drafters import LatticeDrafter, check_paths
from rescore.decode.draft.lattices import Rescoring
from rescore.decode.draft.normalised import NormalisedLattice
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.request_text import last_tokens
from rescore.decode.verify.draft import Draft
from rescore.lattice.tree import SampledDrafts, TokenTree

if TYPE_CHECKING:
    from rescore.decode.draft.heads_lattice import HeadsLattice, HeadsLatticeSession


class LatticeDistribution:
    """q of one request's lattice, a row of a batch, along its p drawn drafts and after any other prefix.

    path  int32 [n], for every node of the drafts' tree a draft that contains it
    """

    def __init__(
        self,
        lattices: NormalisedLattice,
        drafts: SampledDrafts,
        row: int,
        tree: TokenTree,
        path: NDArray[np.int32],
        vocab_size: int,
    ):
        self.q, self.ids = drafts.q[row], drafts.ids[row]
        self.lattices, self.row, self.tree, self.path = lattices, row, tree, path
        self.vocab_size = vocab_size

    def rows(self, nodes: Sequence[int]) -> Tensor:
        """float64 [m, V]. Rows after a whole draft are zero: nothing is drawn there."""
        rows = torch.zeros(len(nodes), self.vocab_size, dtype=torch.float64)
        for i, node in enumerate(nodes):
            depth = int(self.tree.depths[node]) if node >= 0 else 0
            if depth < len(self.ids):
                self._spread(rows[i], depth, self.q[self.path[node] if node >= 0 else 0, depth])
        return rows

    def after(self, tokens: Sequence[int]) -> Tensor:
        """float64 [V]; all zero past the lattice, and after tokens that it could not have drawn."""
        row = torch.zeros(self.vocab_size, dtype=torch.float64)
        depth = len(tokens)
        if depth < len(self.ids):
            drafts = np.full((len(self.lattices.ids), 1, len(self.ids)), -1, np.int32)
            drafts[self.row, 0, :depth] = tokens
            self._spread(row, depth, self.lattices.rows(drafts)[self.row, 0, depth])
        return row

    def _spread(self, row: Tensor, slot: int, q: NDArray[np.float64]) -> None:
        ids = self.ids[slot]
        row[torch.from_numpy(ids[ids >= 0].astype(np.int64))] = torch.from_numpy(q[ids >= 0])


class DrawnDrafter(LatticeDrafter, Rescoring):
    """Draws p drafts independently from q of the rescored lattice (docs/reference/concepts.md, q), merged by prefix.

    temperature  of q: costs are divided by it
    """

    def __init__(
        self,
        lattice: HeadsLattice,
        rescorer: Rescorer | None = None,
        *,
        paths: int = 1,
        temperature: float = 1.0,
    ):
        check_paths(paths)
        self.lattice, self.rescorer, self.drawn = lattice, rescorer or Rescorer(), paths
        self.temperature = temperature

    def draft(self, lattices: HeadsLatticeSession, step: DraftStep) -> Proposed:
        sausages, histories = lattices.sausages(step), last_tokens(step.texts, self.rescorer.context)
        found = self.rescorer.normalise(sausages, histories, temperature=self.temperature)
        drawn = found.sample(np.stack([text.random.random((self.drawn, sausages.slots)) for text in step.texts]))
        drafts = []
        for row, room in enumerate(step.room):
            tree = TokenTree.from_drafts(drawn.tokens[row, :, :room])
            draws, path = _draws(tree, drawn.tokens[row, :, :room])
            q = LatticeDistribution(found, drawn, row, tree, path, lattices.vocab_size)
            drafts.append(Draft(tree=tree, distribution=q, draws=draws))
        return drafts


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
