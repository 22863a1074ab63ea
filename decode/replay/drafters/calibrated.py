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
    """budgets: n of each name; one search, of the greatest, serves all. top_k: candidates of a slot (None: all).

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
        """Of the rows that a replay visits, since texts are walked anyway; other rows hold 0."""
        began, searched = time.perf_counter(), 0
        found = {name: np.zeros((2, block.rows), np.int32) for name in self.budgets}
        for rows, _, worth in self.visited_trees(block, truth):
            searched += len(rows)
            for name, one in worth.items():
                found[name][:, rows] = one.accepted, one.verified
        seconds = (time.perf_counter() - began) * block.rows / searched
        return {
            name: Worth(accepted=accepted, verified=verified, seconds=seconds)
            for name, (accepted, verified) in found.items()
        }

    def visited_trees(
        self, block: DumpBlock, truth: NDArray[np.int32]
    ) -> Iterator[tuple[NDArray[np.int64], Trees, dict[str, Worth]]]:
        """Rows that a replay of one of the budgets visits, their trees of the greatest, and what those are worth.

        Steps of all sequences in turn. For calibrations that read the text.
        """
        sequence_of = block.sequence_of
        histories, sausages = inputs_of(self.rescorer, block, self.top_k)
        due = {name: block.offsets[:-1].copy() for name in self.budgets}  # of each sequence the row to visit next
        for rows, texts in running_texts(self.rescorer, block):
            wanted = np.any([own[sequence_of[rows]] == rows for own in due.values()], axis=0)
            rows, texts = rows[wanted], [text for text, one in zip(texts, wanted) if one]
            trees = self.rescorer.trees(
                sausages[rows], histories[rows], max(self.budgets.values()), texts=texts, depth=self._deep
            )
            worth = worth_of_trees(trees, truth[rows], self.budgets)
            for name, one in worth.items():
                visited = due[name][sequence_of[rows]] == rows
                due[name][sequence_of[rows[visited]]] = rows[visited] + one.accepted[visited] + 1
            yield rows, trees, worth


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
    sequences = [ReadSequence.of_block(block, s) for s in range(block.sequences)]
    texts = [rescorer.text() for _ in sequences]
    for step in range(int(np.diff(block.offsets).max())):
        rows = block.offsets[:-1] + step
        going = np.flatnonzero(rows < block.offsets[1:])
        for s in going.tolist():
            one, text = sequences[s], texts[s]
            new = slice(text.size, one.prompt + step + 1)
            text.extend(one.tokens[new], one.ids[new], one.p[new])
        yield rows[going], [texts[s] for s in going.tolist()]
