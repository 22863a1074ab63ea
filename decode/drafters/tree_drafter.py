"""Drafts the best tree: of the heads' lattice, of the text so far and an n-gram model, or of all together."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.drafters.auto_width import AutoWidth, WidthSession
from rescore.decode.drafters.drafter import EMPTY, DrafterSession, Rescoring
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.drafters.tree_search import CalibratedSearch, PlainSearch, TreeSearch
from rescore.decode.models.heads import DraftStep, HeadsSession, Memoryless
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.trees import Trees

MOST_NODES = 1024


class TreeDrafter(Rescoring):
    """Drafts the n most probable prefixes of the rescored lattice (docs/reference/concepts.md, token trees).

    lattice   of the model's heads; None drafts without heads, which takes a calibrated rescorer
    rescorer  its trees are drafted; None: those of the heads alone
    nodes     n, or an `AutoWidth`, which chooses it at each step
    depth     maximal depth of the tree, with a calibrated q; None: as deep as q reaches. Past the heads, n-gram model
              and text draft alone
    rejected  whether the target's predictions after rejected nodes count in the running text
    """

    drawn = 0

    def __init__(
        self,
        lattice: HeadsLattice | None,
        rescorer: Rescorer | None = None,
        *,
        nodes: int | AutoWidth = 64,
        depth: int | None = None,
        rejected: bool = True,
    ):
        if isinstance(nodes, int):
            check_nodes(nodes)
        rescorer = rescorer or Rescorer()
        if rescorer.calibrated is None and (lattice is None or depth is not None):
            what = "lattice: expected that of heads" if lattice is None else f"depth: expected None, got {depth}"
            raise ValueError(f"{what}; leave out alpha and head of the rescorer to draft without heads or past them")
        if depth is not None and not 1 <= depth <= MOST_NODES:
            raise ValueError(f"depth: expected trees of depth 1..{MOST_NODES}, got {depth}")
        self.lattice, self.rescorer, self.nodes = lattice, rescorer, nodes
        self.depth, self.rejected = depth, rejected

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        heads = self.lattice.heads.open(len(prompts)) if self.lattice else None
        search: TreeSearch
        if self.rescorer.calibrated is not None:
            search = CalibratedSearch(self.rescorer.calibrated, len(prompts), depth=self.depth, rejected=self.rejected)
        else:
            search = PlainSearch(self.rescorer)
        proposer = _Proposer(self.lattice, heads, search)
        if isinstance(self.nodes, int):
            return _TreeSession(proposer, self.nodes)
        calibrated = self.rescorer.calibrated
        learns = self.rejected and calibrated is not None and calibrated.reads_text
        return _AutoSession(proposer, self.nodes.open(len(prompts), max(map(len, prompts)), learns=learns))


def check_nodes(nodes: int) -> None:
    if not 1 <= nodes <= MOST_NODES:
        raise ValueError(f"nodes: expected trees of 1..{MOST_NODES} nodes, got {nodes}")


class _Proposer:
    """A search, and the heads if there are any."""

    def __init__(self, lattice: HeadsLattice | None, heads: HeadsSession | None, search: TreeSearch):
        self.lattice, self.heads, self.search = lattice, heads, search

    @property
    def may_rest(self) -> bool:
        """Heads that keep their own state must see every step."""
        return self.heads is None or isinstance(self.heads, Memoryless)

    def trees(self, step: DraftStep, n: int) -> Trees:
        return self.search.trees(self.lattice, self.heads.logits(step) if self.heads else None, step, n)

    def select(self, rows: Sequence[int]) -> None:
        if self.heads:
            self.heads.select(rows)
        self.search.select(rows)


class _TreeSession:
    def __init__(self, proposer: _Proposer, nodes: int):
        self.proposer, self.nodes = proposer, nodes

    def propose(self, step: DraftStep) -> list[Draft]:
        self.proposer.search.read(step)
        trees = self.proposer.trees(step, self.nodes)
        return [Draft(tree=trees[b].within(most)) for b, most in enumerate(step.room)]

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        self.proposer.search.ended(history, start)

    def select(self, rows: Sequence[int]) -> None:
        self.proposer.select(rows)


class _AutoSession:
    """Drafts trees of the best size for each step."""

    def __init__(self, proposer: _Proposer, width: WidthSession):
        self.proposer, self.width = proposer, width
        self._proposed = True  # whether the last search found anything to draft

    def propose(self, step: DraftStep) -> list[Draft]:
        self.width.begin(step.last)
        drafts = self._drafts(step)
        self.width.end(max(draft.tree.size for draft in drafts))
        return drafts

    def _drafts(self, step: DraftStep) -> list[Draft]:
        if self.proposer.may_rest and self.width.rests():
            return [Draft(tree=EMPTY, rested=self._proposed) for _ in step.histories]
        began = time.perf_counter()
        self.proposer.search.read(step)
        trees = self.proposer.trees(step, self.width.wanted)
        n = self.width.size(trees, step.room, time.perf_counter() - began)
        self._proposed = bool(trees.count.any())
        rested = self._proposed and not n
        return [Draft(tree=trees[b].head(n).within(most), rested=rested) for b, most in enumerate(step.room)]

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        self.proposer.search.ended(history, start)

    def select(self, rows: Sequence[int]) -> None:
        self.proposer.select(rows)
        self.width.select(rows)
