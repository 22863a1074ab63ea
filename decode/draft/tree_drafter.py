"""Drafts the best tree: of the heads' lattice, of the text so far and an n-gram model, or of all together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.drafter import DrafterSession, Proposed
from rescore.decode.draft.lattices import Growing, GrowingSession, Lattices, LatticeSession, Rescoring
from rescore.decode.draft.pace import CHAIN_NODES, AutoWidth, Readings, WidthSession
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.shared_counts import SharedCounts
from rescore.decode.models.draft_step import TOP, DraftStep, LastPass, Read
from rescore.decode.models.request_text import RequestText
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.checked import whole
from rescore.lattice.sausage import Lattice, Sausage, blank
from rescore.lattice.tree import EMPTY, Trees
from rescore.lm.model.ngram import NGram

MOST_NODES = 1024
ALONE = Calibration(text=None).without_heads()


class TreeDrafter(Rescoring):
    """Drafts the n most probable prefixes of the rescored lattice (docs/reference/concepts.md, token trees).

    lattice   of the model's heads; None drafts without heads, which takes a q of open lattices
    rescorer  its trees are drafted; None: those of the heads alone
    nodes     n, or an `AutoWidth`, which chooses it at each step
    depth     maximal depth of the tree; None: as deep as q reaches. Past the heads, n-gram model and text draft alone
    rejected  whether the target's predictions after rejected nodes count in the running text
    chains    whether only the best chain of each tree is drafted, at most n tokens: for targets that read no trees
    """

    drawn = 0

    def __init__(
        self,
        lattice: Lattices | Growing | None,
        rescorer: Rescorer | None = None,
        *,
        nodes: int | AutoWidth = 64,
        depth: int | None = None,
        rejected: bool = True,
        chains: bool = False,
    ):
        nodes = nodes if isinstance(nodes, AutoWidth) else whole(nodes, "nodes", 1, MOST_NODES)
        rescorer = rescorer or Rescorer()
        rescorer.tree_model()  # ValueError for several
        if lattice is None and not rescorer.calibration.open:
            raise ValueError("lattice: expected that of heads; leave out alpha and head to draft without")
        if depth is not None and not 1 <= depth <= MOST_NODES:
            raise ValueError(f"depth: expected trees of depth 1..{MOST_NODES}, got {depth}")
        self.lattice, self.rescorer, self.nodes = lattice, rescorer, nodes
        self.depth, self.rejected, self.chains = depth, rejected, chains
        self.readings: Readings | None = None  # what calls have learned of the small model

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        lattices = self.lattice.open(len(prompts)) if self.lattice else None
        if isinstance(self.nodes, int):
            return TreeSession(self, lattices, self.nodes)
        learns = self.rejected and self.rescorer.reads_text
        return AutoSession(self, lattices, self.nodes.open(len(prompts), max(map(len, prompts)), learns=learns))


def ngram_drafter(model: NGram, *, slots: int, nodes: int, threads: int = 1) -> TreeDrafter:
    """Returns a drafter of the `nodes` most probable continuations of at most `slots` tokens under an n-gram model: the
    control without heads.
    """
    return TreeDrafter(None, Rescorer(model, calibration=ALONE, threads=threads), nodes=nodes, depth=slots)


class TreeSession:
    """The trees of one call, step by step, from the heads' lattices if there are any. q reads each request's text, if
    it uses it, and what it is expected to be.
    """

    def __init__(self, drafter: TreeDrafter, lattices: LatticeSession | GrowingSession | None, nodes: int):
        self.drafter, self.lattices, self.nodes = drafter, lattices, nodes
        # Of a small model; asked once, since a protocol's isinstance takes as long as a search.
        self.growing = lattices if isinstance(lattices, GrowingSession) else None
        self.reads = len(self.growing.levels) + 1 if self.growing else 0  # readings of it in each step
        self.spent = 0.0  # their seconds
        self.rescorer = drafter.rescorer
        self._counts = SharedCounts(self.rescorer.calibration.counts) if self.rescorer.reads_text else None

    def propose(self, step: DraftStep) -> Proposed:
        self.read(step)
        return self.trees(step, self.listed(step), step.nodes or self.nodes)

    def read(self, step: DraftStep) -> None:
        """Reads what was predicted after the nodes rejected in the last pass. The drafts of passes before that, in
        steps that did not draft, are not known.
        """
        if self._counts:
            if fresh := [text for text in step.texts if text.counts is None]:
                self._counts.begin(fresh)
            if step.predictions and self.drafter.rejected and any(last.tree.size for last in step.last):
                for text, last, read in zip(step.texts, step.last, step.predictions(TOP)):
                    foresee(text, last, read)

    def listed(self, step: DraftStep) -> Sausage | Lattice:
        """The lattices of the heads, or of a small model, which reads `reads` times."""
        growing = self.growing
        if growing is None:
            return cast("LatticeSession", self.lattices).sausages(step) if self.lattices else blank(len(step.texts))
        if not self.reads:
            growing.passed(step)
            return blank(len(step.texts))
        began = time.perf_counter()
        lattices = growing.begun(step)
        for nodes in growing.levels[: self.reads - 1]:
            lattices = growing.grown(self._searched(step, lattices, nodes))
        self.spent = time.perf_counter() - began
        return lattices

    def trees(self, step: DraftStep, lattices: Sausage | Lattice, n: int) -> Trees:
        """Trees of n nodes, or their best chains of at most n tokens."""
        if not self.drafter.chains:
            return self._searched(step, lattices, n)
        trees = self._searched(step, lattices, max(n, CHAIN_NODES))
        return Trees.joined([trees[b].best_chain(most=min(n, room)) for b, room in enumerate(step.room)])

    def _searched(self, step: DraftStep, lattices: Sausage | Lattice, n: int) -> Trees:
        return self.rescorer.trees(lattices, n=n, history=step.texts, depth=self.drafter.depth)

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        if self.rescorer.memory:
            self.rescorer.memory.remember(history, start)


class AutoSession(TreeSession):
    """Drafts trees of the best size for each step."""

    def __init__(self, drafter: TreeDrafter, lattices: LatticeSession | GrowingSession | None, width: WidthSession):
        super().__init__(drafter, lattices, width.wanted)
        if self.reads and not drafter.readings:
            drafter.readings = Readings(self.reads)
        self.width, self.readings = width, drafter.readings and drafter.readings.open()
        self._proposed = True  # whether the last search found anything to draft
        self._drafted = False  # whether the last step did not rest

    def propose(self, step: DraftStep) -> Proposed:
        self.width.begin(len(step.texts), step.last, step.tail)
        if self.readings:
            self.readings.begin(self.width.promised, self._drafted and all(one.usual for one in step.last))
        drafts = self._drafts(step)
        self.width.end(max(draft.tree.size for draft in drafts))
        return drafts

    def _drafts(self, step: DraftStep) -> list[Draft]:
        forced = any(text.state.forced for text in step.texts if text.state)  # then drafts pay
        rests = getattr(self.lattices, "may_rest", True) and not forced and self.width.pace.rests()
        self._drafted = not rests
        if rests:
            if self.growing:
                self.growing.passed(step)
            return [Draft(tree=EMPTY, rested=self._proposed) for _ in step.texts]
        began = time.perf_counter()
        self.read(step)
        trees = None
        if self.readings:
            trees = self.trees(step, blank(len(step.texts)), self.width.wanted)
            self.reads, self.spent = self.readings.choose(self.width.promise(trees, step.room)), 0.0
        lattices = self.listed(step)
        if trees is None or self.reads:  # else the text alone was searched above
            trees = self.trees(step, lattices, self.width.wanted)
        n = self.width.size(trees, step.room, time.perf_counter() - began - self.spent, self.spent)
        self._proposed = bool(trees.count.any())
        rested = self._proposed and not n
        return [Draft(tree=trees[b].head(n).within(most), rested=rested) for b, most in enumerate(step.room)]


def foresee(text: RequestText, last: LastPass, read: Read) -> None:
    """Counts what was predicted after the nodes that the last pass rejected, behind the tokens before its draft."""
    assert text.counts is not None
    tokens, accepted = text.tokens[text.counts.size :], np.array(last.accepted, np.int32)
    text.counts.extend(tokens[: len(tokens) - 1 - len(accepted)])
    _core.foresee_rejected(text.counts, last.tree.tokens, last.tree.parents, accepted, read.ids[1:], read.p[1:])
