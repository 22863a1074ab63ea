"""Trees under a calibrated q, which may use the running text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.replay.drafters.budgeted import Budgeted
from rescore.decode.replay.drafters.read_sequence import ReadSequence
from rescore.decode.replay.drafters.visits import Search, Visit, visits, worth_of_visits
from rescore.decode.replay.worth import Worth
from rescore.decode.rescoring.calibrated import CalibratedTrees
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import Sausage, blank
from rescore.lattice.trees import Trees


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedReplay(Budgeted):
    """Replays the trees of a `CalibratedTrees`, searching visited rows only.

    budgets: n of each name; top_k: candidates per slot (None: all).
    """

    rescorer: CalibratedTrees
    budgets: Mapping[str, int]
    top_k: int | None = None

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        return worth_of_visits(block, self.truth(block), self.budgets, self._search(block))

    def visits(self, block: DumpBlock) -> Iterator[Visit]:
        return visits(block, self.truth(block), self.budgets, self._search(block))

    def truth(self, block: DumpBlock) -> NDArray[np.int32]:
        """The true continuation of each row, to the depth of the trees."""
        return block.truth(slots=max(self.budgets.values()))

    def _search(self, block: DumpBlock) -> Search:
        histories, sausages = inputs_of(self.rescorer, block, self.top_k)
        texts = BlockTexts(self.rescorer, block) if self.rescorer.reads_text else None

        def search(sequences: NDArray[np.int64], rows: NDArray[np.int64], n: int) -> Trees:
            read = texts.until(sequences, rows) if texts else []
            return self.rescorer.trees(sausages[rows], histories[rows], n, texts=read)

        return search


class BlockTexts:
    """The running texts of a block's sequences, grown on demand."""

    def __init__(self, rescorer: CalibratedTrees, block: DumpBlock):
        self._read = [ReadSequence.of_block(block, s) for s in range(block.sequences)]
        self._texts = [rescorer.text() for _ in self._read]
        self._offsets = block.offsets

    def until(self, sequences: NDArray[np.int64], rows: NDArray[np.int64]) -> list[_core.ContextModel]:
        """Returns each sequence's text up to a row, root token included. Rows of a sequence must not decrease between
        calls.
        """
        for s, step in zip(sequences.tolist(), (rows - self._offsets[sequences]).tolist()):
            one, text = self._read[s], self._texts[s]
            if not text.size:
                text.extend(one.tokens[: one.prompt], prompt=True)
            text.extend(one.tokens[text.size : one.prompt + step + 1])
        return [self._texts[s] for s in sequences.tolist()]


def trees_of_block(
    rescorer: CalibratedTrees, block: DumpBlock, n: int, top_k: int | None = None, depth: int | None = None
) -> Trees:
    """Returns the trees of all rows, each drafted from the running text up to its row."""
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


def inputs_of(rescorer: CalibratedTrees, block: DumpBlock, top_k: int | None) -> tuple[NDArray[np.int32], Sausage]:
    """Returns the histories and lattices of all rows."""
    histories = block.histories(slice(None), rescorer.context)
    return histories, block.sausages(k=top_k) if block.slots else blank(block.rows)


def running_texts(
    rescorer: CalibratedTrees, block: DumpBlock
) -> Iterator[tuple[NDArray[np.int64], list[_core.ContextModel]]]:
    """Yields the first rows of all sequences, then their second rows, and so on, each with the running text up to it,
    root token included.
    """
    texts = BlockTexts(rescorer, block)
    for step in range(int(np.diff(block.offsets).max())):
        rows = block.offsets[:-1] + step
        going = np.flatnonzero(rows < block.offsets[1:])
        yield rows[going], texts.until(going, rows[going])
