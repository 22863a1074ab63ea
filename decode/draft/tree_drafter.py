"""Drafts the best tree: of the heads' lattice, of the text so far and an n-gram model, or of all together."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.drafter import EMPTY, DrafterSession, Proposed
from rescore.decode.draft.lattices import Lattices, LatticeSession, Rescoring
from rescore.decode.draft.pace import AutoWidth, WidthSession
from rescore.decode.draft.prediction import ExpectedTexts
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.models.draft_step import TOP, DraftStep, LastPass, Read
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.checked import whole
from rescore.lattice.sausage import blank
from rescore.lattice.structure import State
from rescore.lattice.tree import Trees
from rescore.lm.model.ngram import NGram

MOST_NODES = 1024
NODES = 64  # of the trees from which chains are selected
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
        lattice: Lattices | None,
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

    def __init__(self, drafter: TreeDrafter, lattices: LatticeSession | None, nodes: int):
        self.drafter, self.lattices, self.nodes = drafter, lattices, nodes
        self.rescorer = drafter.rescorer
        self._texts = RunningTexts(self.rescorer, rejected=drafter.rejected) if self.rescorer.reads_text else None
        self._expected = ExpectedTexts()

    def propose(self, step: DraftStep) -> Proposed:
        self.read(step)
        return self.trees(step, step.nodes or self.nodes)

    def read(self, step: DraftStep) -> None:
        """Reads the tokens of a step that drafts, and of the steps before it that did not."""
        if self._texts:
            self._texts.read(step)
        self._expected.read(step)

    def trees(self, step: DraftStep, n: int) -> Trees:
        """Trees of n nodes, or their best chains of at most n tokens."""
        if not self.drafter.chains:
            return self.searched(step, n)
        trees = self.searched(step, max(n, NODES))
        return Trees.joined([trees[b].best_chain(most=min(n, room)) for b, room in enumerate(step.room)])

    def searched(self, step: DraftStep, n: int) -> Trees:
        longest = max((memory.context for memory in step.memories if memory), default=0)
        return self.rescorer.trees(
            self.lattices.sausages(step) if self.lattices else blank(len(step.histories)),
            step.contexts(max(self.rescorer.context, longest)),
            n,
            texts=[self._texts.texts[request] for request in step.requests] if self._texts else [],
            memories=step.memories,
            expected=self._expected.of(step.requests),
            depth=self.drafter.depth,
            structures=step.structures,
        )

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        if self.rescorer.memory:
            self.rescorer.memory.remember(history, start)

    def select(self, rows: Sequence[int]) -> None:
        if self.lattices:
            self.lattices.select(rows)
        if self._texts:
            self._texts.select(rows)
        self._expected.select(rows)


class AutoSession(TreeSession):
    """Drafts trees of the best size for each step."""

    def __init__(self, drafter: TreeDrafter, lattices: LatticeSession | None, width: WidthSession):
        super().__init__(drafter, lattices, width.wanted)
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
        self.read(step)
        trees = self.trees(step, self.width.wanted)
        n = self.width.size(trees, step.room, time.perf_counter() - began)
        self._proposed = bool(trees.count.any())
        rested = self._proposed and not n
        return [Draft(tree=trees[b].head(n).within(most), rested=rested) for b, most in enumerate(step.room)]

    def select(self, rows: Sequence[int]) -> None:
        super().select(rows)
        self.width.select(rows)


class RunningTexts:
    """One text per request, extended at the steps that draft; those of a group share their counts.

    rejected  whether predictions after rejected nodes count. Without them, a replay of a dump drafts the same.
    """

    def __init__(self, rescorer: Rescorer, *, rejected: bool = True):
        self.texts: dict[int, _core.ContextModel] = {}
        self._rescorer, self._rejected = rescorer, rejected

    def read(self, step: DraftStep) -> None:
        """Reads all tokens added since the last call, and what was predicted after the nodes rejected in the last pass.
        The drafts of passes in between are not known.
        """
        new = [place for place, request in enumerate(step.requests) if request not in self.texts]
        self.texts |= zip([step.requests[place] for place in new], self._behind_prompts(step, new))
        texts = [self.texts[request] for request in step.requests]
        added = [np.ascontiguousarray(history[text.size :], np.int32) for history, text in zip(step.histories, texts)]
        if step.predictions is None or not self._rejected or not any(last.tree.size for last in step.last):
            for text, tokens in zip(texts, added):
                text.extend(tokens)
            return
        for text, tokens, last, read in zip(texts, added, step.last, step.predictions(TOP)):
            _read_pass(text, tokens, last, read)

    def _behind_prompts(self, step: DraftStep, places: Sequence[int]) -> Iterator[_core.ContextModel]:
        """A text behind the prompt of each request. Groups share counts, in which a prompt counts once."""
        prompts = [np.ascontiguousarray(step.histories[place][:-1], np.int32) for place in places]
        given = [step.groups[place] if step.groups else None for place in places]
        groups = [prompt.tobytes() if group is None else group for prompt, group in zip(prompts, given)]
        read: dict[Hashable, dict[bytes, _core.ContextModel]] = {}
        states = [step.structures[place] if step.structures else None for place in places]
        for prompt, group, state in zip(prompts, groups, states):
            if groups.count(group) == 1:
                yield read_copies(self._rescorer.text(prompt), state, prompt)
                continue
            behind = read.setdefault(group, {b"": self._rescorer.text()})
            if (key := prompt.tobytes()) not in behind:
                behind[key] = behind[b""].sibling()
                behind[key].extend(prompt, prompt=True)
                read_copies(behind[key], state, prompt)
            yield behind[key].sibling()

    def select(self, rows: Sequence[int]) -> None:
        self.texts = {place: self.texts[row] for place, row in enumerate(rows) if row in self.texts}


def read_copies(text: _core.ContextModel, state: State | None, prompt: NDArray[np.int32]) -> _core.ContextModel:
    """Counts what a text may copy from its prompt under its structure, each copy as a text of its own; returns it."""
    aside = text.sibling()
    for copy in state.copies(prompt) if state else ():
        aside.begin()
        aside.extend(copy, prompt=True)
    return text


def _read_pass(text: _core.ContextModel, tokens: NDArray[np.int32], last: LastPass, read: Read) -> None:
    tree, accepted = last.tree, np.array(last.accepted, np.int32)
    before = len(tokens) - 1 - len(accepted)  # tokens of the steps that did not draft
    text.extend(tokens[:before])
    _core.foresee_rejected(text, tree.tokens, tree.parents, accepted, read.ids[1:], read.p[1:])
    text.extend(tokens[before:])
