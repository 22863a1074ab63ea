"""Searches of trees for the requests of one call, step by step."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.calibrated import CalibratedTrees
from rescore.decode.draft.calibration import TOP
from rescore.decode.draft.drafter import LatticeSession
from rescore.decode.draft.prediction import ExpectedTexts
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.models.draft_step import DraftStep, LastPass, Read
from rescore.lattice.sausage import blank
from rescore.lattice.tree import Trees


class RunningTexts:
    """One text per request, extended at the steps that draft; those of a group share their counts.

    rejected  whether predictions after rejected nodes count. Without them, a replay of a dump drafts the same.
    """

    def __init__(self, rescorer: CalibratedTrees, *, rejected: bool = True):
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
        for prompt, group in zip(prompts, groups):
            if groups.count(group) == 1:
                yield self._rescorer.text(prompt)
                continue
            behind = read.setdefault(group, {b"": self._rescorer.text()})
            if (key := prompt.tobytes()) not in behind:
                behind[key] = behind[b""].sibling()
                behind[key].extend(prompt, prompt=True)
            yield behind[key].sibling()

    def select(self, rows: Sequence[int]) -> None:
        self.texts = {place: self.texts[row] for place, row in enumerate(rows) if row in self.texts}


def _read_pass(text: _core.ContextModel, tokens: NDArray[np.int32], last: LastPass, read: Read) -> None:
    tree, accepted = last.tree, np.array(last.accepted, np.int32)
    before = len(tokens) - 1 - len(accepted)  # tokens of the steps that did not draft
    text.extend(tokens[:before])
    _core.foresee_rejected(text, tree.tokens, tree.parents, accepted, read.ids[1:], read.p[1:])
    text.extend(tokens[before:])


class TreeSearch(Protocol):
    def read(self, step: DraftStep) -> None:
        """Reads the tokens of a step that drafts, and of the steps before it that did not."""

    def trees(self, lattices: LatticeSession | None, step: DraftStep, n: int) -> Trees:
        """Returns trees of n nodes from the heads' lattices, or without heads."""

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        """As in `HearsEndedTexts`."""

    def select(self, rows: Sequence[int]) -> None:
        """Keeps only these requests."""


class PlainSearch:
    """Search of lattices rescored with fixed weights. `pushed`: under the q of whole paths, which accounts for later
    slots; the default is each slot's own.
    """

    def __init__(self, rescorer: Rescorer, *, pushed: bool = False):
        self._rescorer, self._pushed = rescorer, pushed

    def read(self, step: DraftStep) -> None:
        pass

    def trees(self, lattices: LatticeSession | None, step: DraftStep, n: int) -> Trees:
        assert lattices is not None
        if not self._pushed:
            return lattices.trees(self._rescorer, step, n)
        return self._rescorer.normalise(lattices.sausages(step), step.contexts(self._rescorer.context)).trees(n)

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        pass

    def select(self, rows: Sequence[int]) -> None:
        pass


class CalibratedSearch:
    """Search under a calibrated q, up to `depth` tokens deep; reads each request's text if the calibration uses it."""

    def __init__(self, rescorer: CalibratedTrees, *, depth: int | None, rejected: bool):
        self._rescorer, self._depth = rescorer, depth
        self._texts = RunningTexts(rescorer, rejected=rejected) if rescorer.reads_text else None
        self._expected = ExpectedTexts()

    def read(self, step: DraftStep) -> None:
        if self._texts:
            self._texts.read(step)
        self._expected.read(step)

    def trees(self, lattices: LatticeSession | None, step: DraftStep, n: int) -> Trees:
        sausages = lattices.sausages(step) if lattices else blank(len(step.histories))
        longest = max((memory.context for memory in step.memories if memory), default=0)
        histories = step.contexts(max(self._rescorer.context, longest))
        texts = [self._texts.texts[request] for request in step.requests] if self._texts else []
        return self._rescorer.trees(
            sausages,
            histories,
            n,
            texts=texts,
            memories=step.memories,
            expected=self._expected.of(step.requests),
            depth=self._depth,
            structures=step.structures,
        )

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        if self._rescorer.memory:
            self._rescorer.memory.remember(history, start)

    def select(self, rows: Sequence[int]) -> None:
        if self._texts:
            self._texts.select(rows)
        self._expected.select(rows)


NODES = 64  # of the trees from which chains are selected


class ChainSearch:
    """The best chains of at most n tokens of another search's trees, for targets that read no trees."""

    def __init__(self, search: TreeSearch):
        self._search = search

    def read(self, step: DraftStep) -> None:
        self._search.read(step)

    def trees(self, lattices: LatticeSession | None, step: DraftStep, n: int) -> Trees:
        trees = self._search.trees(lattices, step, max(n, NODES))
        return Trees.joined([trees[b].best_chain(most=min(n, room)) for b, room in enumerate(step.room)])

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        self._search.ended(history, start)

    def select(self, rows: Sequence[int]) -> None:
        self._search.select(rows)
