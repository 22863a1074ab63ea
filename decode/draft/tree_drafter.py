"""Drafts the best tree: of the heads' lattice, of the text so far and an n-gram model, or of all together."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.auto_width import AutoWidth, WidthSession
from rescore.decode.draft.drafter import EMPTY, DrafterSession, Lattices, LatticeSession, Proposed, Rescoring
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.sources import DraftSources, Options
from rescore.decode.draft.tree_search import CalibratedSearch, ChainSearch, PlainSearch, TreeSearch
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping

MOST_NODES = 1024


class TreeDrafter(Rescoring):
    """Drafts the n most probable prefixes of the rescored lattice (docs/reference/concepts.md, token trees).

    lattice   of the model's heads; None drafts without heads, which takes a calibrated rescorer
    rescorer  its trees are drafted; None: those of the heads alone
    nodes     n, or an `AutoWidth`, which chooses it at each step
    depth     maximal depth of the tree, with a calibrated q; None: as deep as q reaches. Past the heads, n-gram model
              and text draft alone
    rejected  whether the target's predictions after rejected nodes count in the running text
    pushed    of fixed weights: trees under the q of whole paths (docs/how/pushing.md)
    chains    whether only the best chain of each tree is drafted, at most n tokens: for targets that read no trees
    """

    drawn = 0

    def __init__(
        self,
        lattice: Lattices | None,
        rescorer: Rescorer | None = None,
        *,
        nodes: int | AutoWidth = 64,
        depth: int | None = None,
        rejected: bool = True,
        pushed: bool = False,
        chains: bool = False,
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
        self.depth, self.rejected, self.pushed, self.chains = depth, rejected, pushed, chains

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        lattices = self.lattice.open(len(prompts)) if self.lattice else None
        search: TreeSearch
        if self.rescorer.calibrated is not None:
            search = CalibratedSearch(self.rescorer.calibrated, depth=self.depth, rejected=self.rejected)
        else:
            search = PlainSearch(self.rescorer, pushed=self.pushed)
        if self.chains:
            search = ChainSearch(search)
        if isinstance(self.nodes, int):
            return _TreeSession(lattices, search, self.nodes)
        calibrated = self.rescorer.calibrated
        learns = self.rejected and calibrated is not None and calibrated.reads_text
        return _AutoSession(lattices, search, self.nodes.open(len(prompts), max(map(len, prompts)), learns=learns))


def check_nodes(nodes: int) -> None:
    if not 1 <= nodes <= MOST_NODES:
        raise ValueError(f"nodes: expected trees of 1..{MOST_NODES} nodes, got {nodes}")


class _TreeSession:
    """A search, and the heads' lattices if there are any."""

    def __init__(self, lattices: LatticeSession | None, search: TreeSearch, nodes: int):
        self.lattices, self.search, self.nodes = lattices, search, nodes

    def propose(self, step: DraftStep) -> Proposed:
        self.search.read(step)
        return self.search.trees(self.lattices, step, step.nodes or self.nodes)

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        self.search.ended(history, start)

    def select(self, rows: Sequence[int]) -> None:
        if self.lattices:
            self.lattices.select(rows)
        self.search.select(rows)


class _AutoSession(_TreeSession):
    """Drafts trees of the best size for each step."""

    def __init__(self, lattices: LatticeSession | None, search: TreeSearch, width: WidthSession):
        super().__init__(lattices, search, width.wanted)
        self.width = width
        self._proposed = True  # whether the last search found anything to draft

    def propose(self, step: DraftStep) -> Proposed:
        self.width.begin(step.last, step.tail)
        drafts = self._drafts(step)
        self.width.end(max(draft.tree.size for draft in drafts))
        return drafts

    def _drafts(self, step: DraftStep) -> list[Draft]:
        forced = any(state.forced for state in step.structures if state)  # then drafts pay
        if getattr(self.lattices, "may_rest", True) and not forced and self.width.pace.rests():
            return [Draft(tree=EMPTY, rested=self._proposed) for _ in step.histories]
        began = time.perf_counter()
        self.search.read(step)
        trees = self.search.trees(self.lattices, step, self.width.wanted)
        n = self.width.size(trees, step.room, time.perf_counter() - began)
        self._proposed = bool(trees.count.any())
        rested = self._proposed and not n
        return [Draft(tree=trees[b].head(n).within(most), rested=rested) for b, most in enumerate(step.room)]

    def select(self, rows: Sequence[int]) -> None:
        super().select(rows)
        self.width.select(rows)


def of_sources(sources: DraftSources, options: Options) -> TreeDrafter:
    """`heads-tree`; with n-gram models `tree`, of fixed weights or calibrated by settings, and `pushed-tree`."""
    rescorer = sources.rescorer(options, "closed") if "lm" in options else None
    lattice, nodes = sources.lattice(options), sources.nodes(options["nodes"])
    pushed, chains = options.get("pushed", False), options.get("chains", False)
    return TreeDrafter(lattice, rescorer, nodes=nodes, pushed=pushed, chains=chains)
