"""Trees under a calibrated q, which may depend on the running text."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.replay.drafters.budgeted import Budgeted
from rescore.decode.replay.drafters.read_sequence import ReadSequence
from rescore.decode.replay.worth import Worth, worth_of_trees
from rescore.decode.rescoring.calibrated import CalibratedRescorer
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import Sausage, blank
from rescore.lattice.trees import Trees


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedReplay(Budgeted):
    """budgets: n of each name; one search, of the greatest that is wanted, serves all. top_k: candidates of a slot
    (None: all).

    depth: of the trees, in slots (None: as `CalibratedRescorer.depth`).
    """

    rescorer: CalibratedRescorer
    budgets: Mapping[str, int]
    top_k: int | None = None
    depth: int | None = None

    @property
    def _deep(self) -> int | None:
        return self.rescorer.depth if self.depth is None else self.depth

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        began = time.perf_counter()
        truth = block.truth(slots=max(self._deep or 0, block.slots))
        if self.rescorer.reads_text:
            return self._along_texts(block, truth)
        trees = trees_of_block(self.rescorer, block, max(self.budgets.values()), self.top_k, self._deep)
        return worth_of_trees(trees, truth, self.budgets, time.perf_counter() - began)

    def _along_texts(self, block: DumpBlock, truth: NDArray[np.int32]) -> dict[str, Worth]:
        """Of the rows that a budget's own replay visits, since texts are walked anyway; others may hold 0."""
        found = {name: np.zeros((2, block.rows), np.int32) for name in self.budgets}
        searches: dict[int, list[tuple[int, float]]] = {}  # of each size, the rows and the time of every search
        began = time.perf_counter()
        for rows, trees, worth in self.visited_trees(block, truth):
            for name, one in worth.items():
                found[name][:, rows] = one.accepted, one.verified
            now = time.perf_counter()
            searches.setdefault(trees.tokens.shape[1], []).append((len(rows), now - began))
            began = now
        each = {n: float(np.sum(some, axis=0)[1] / np.sum(some, axis=0)[0]) for n, some in searches.items()}
        return {
            name: Worth(
                accepted=found[name][0],
                verified=found[name][1],
                seconds=block.rows * each[min(size for size in each if size >= n)] if each else None,
            )
            for name, n in self.budgets.items()
        }

    def visited_trees(
        self, block: DumpBlock, truth: NDArray[np.int32]
    ) -> Iterator[tuple[NDArray[np.int64], Trees, dict[str, Worth]]]:
        """Rows that replays of the budgets visit, their trees of the greatest that is due there, and what those are
        worth to it and to lesser ones.

        Of each sequence one row after the other; what waits for trees of one size is searched together. For
        calibrations that read the text.
        """
        texts, ends = BlockTexts(self.rescorer, block), block.offsets[1:] - 1  # the last token leaves nothing to draft
        histories, sausages = inputs_of(self.rescorer, block, self.top_k)
        due = {name: block.offsets[:-1].copy() for name in self.budgets}  # of each sequence the row to visit next
        while True:
            first = np.min(list(due.values()), axis=0)
            going = first < ends
            if not going.any():
                return
            sizes = np.max([np.where(due[name] == first, n, 0) for name, n in self.budgets.items()], axis=0)
            n = np.bincount(sizes[going]).argmax()  # what most of them wait for
            sequences = np.flatnonzero(going & (sizes == n))
            rows = first[sequences]
            trees = self.rescorer.trees(
                sausages[rows], histories[rows], int(n), texts=texts.until(sequences, rows), depth=self._deep
            )
            worth = worth_of_trees(trees, truth[rows], {name: size for name, size in self.budgets.items() if size <= n})
            for name, one in worth.items():
                visited = due[name][sequences] == rows
                due[name][sequences[visited]] = rows[visited] + one.accepted[visited] + 1
            yield rows, trees, worth


class BlockTexts:
    """The running texts of a block's sequences, with what the target predicted along them; they grow as rows are asked
    for.
    """

    def __init__(self, rescorer: CalibratedRescorer, block: DumpBlock):
        self._read = [ReadSequence.of_block(block, s) for s in range(block.sequences)]
        self._texts = [rescorer.text() for _ in self._read]
        self._offsets = block.offsets

    def until(self, sequences: NDArray[np.int64], rows: NDArray[np.int64]) -> list[_core.ContextModel]:
        """The text of each sequence up to one of its rows, certain token included; not before the last asked for."""
        for s, step in zip(sequences.tolist(), (rows - self._offsets[sequences]).tolist()):
            one, text = self._read[s], self._texts[s]
            new = slice(text.size, one.prompt + step + 1)
            text.extend(one.tokens[new], one.ids[new], one.p[new])
        return [self._texts[s] for s in sequences.tolist()]


def trees_of_block(
    rescorer: CalibratedRescorer, block: DumpBlock, n: int, top_k: int | None = None, depth: int | None = None
) -> Trees:
    """The trees of all rows, each drafted when its text was as long."""
    histories, sausages = inputs_of(rescorer, block, top_k)
    if not rescorer.reads_text:
        return rescorer.trees(sausages, histories, n, depth=depth)
    out: Trees | None = None
    for rows, texts in running_texts(rescorer, block):
        trees = rescorer.trees(sausages[rows], histories[rows], n, texts=texts, depth=depth)
        out = out or Trees(
            **{
                name: np.empty((block.rows, *getattr(trees, name).shape[1:]), getattr(trees, name).dtype)
                for name in Trees.__slots__
            }
        )
        for name in Trees.__slots__:
            getattr(out, name)[rows] = getattr(trees, name)
    assert out is not None, "a block has rows"
    return out


def inputs_of(rescorer: CalibratedRescorer, block: DumpBlock, top_k: int | None) -> tuple[NDArray[np.int32], Sausage]:
    """Histories and lattices of all rows."""
    histories = block.histories(slice(None), rescorer.context)
    return histories, block.sausages(k=top_k) if block.slots else blank(block.rows, 1)


def running_texts(
    rescorer: CalibratedRescorer, block: DumpBlock
) -> Iterator[tuple[NDArray[np.int64], list[_core.ContextModel]]]:
    """The first rows of all sequences, their second rows, and so on, with the text up to each, certain token included,
    and what the target predicted along it.
    """
    texts = BlockTexts(rescorer, block)
    for step in range(int(np.diff(block.offsets).max())):
        rows = block.offsets[:-1] + step
        going = np.flatnonzero(rows < block.offsets[1:])
        yield rows[going], texts.until(going, rows[going])
