"""llama.cpp's sequences: one for each request and, during a pass, one for each draft of its tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.engines.llama_cpp.context import SEQUENCES, LlamaContext

NOTHING = np.ones((1, 1), bool)  # read of a request since its tokens were kept


class SequenceCache:
    """The texts of the requests of one call, in sequences of a context.

    A token of a tree belongs to the sequences of all drafts through it, so that it sees its own path alone; keys and
    values are stored once. Of an accepted path, one sequence stays, and becomes the request's.

    rows  requests; held: 0, nothing is there when a cache is opened
    """

    def __init__(self, context: LlamaContext, rows: int):
        if rows > SEQUENCES:
            raise ValueError(f"expected at most {SEQUENCES} requests, llama.cpp's sequences, got {rows}")
        self.context, self.rows = context, rows
        self.held = [0] * rows
        self._own = list(range(rows))
        self._free = list(range(rows, SEQUENCES))
        self._end = [0] * rows  # positions that a request's sequence may have
        self._drafts: list[tuple[list[int], NDArray[np.bool_]]] = [([one], NOTHING) for one in self._own]

    @property
    def empty(self) -> bool:
        """Whether nothing was read yet."""
        return not any(self._end)

    def lay(self, row: int, start: int, n: int, ancestors: NDArray[np.bool_] | None) -> list[NDArray[np.int32]]:
        """The sequences of each of n tokens behind `start` tokens of a request: a tree's, with ancestors [n, n],
        themselves included, or None for a chain.
        """
        self._settle(row, start, 0)
        through = np.ones((1, n), bool) if ancestors is None else ancestors[ancestors.sum(axis=0) == 1]  # [drafts, n]
        if len(through) - 1 > len(self._free):
            raise ValueError(
                f"trees of {self.rows} requests: expected at most {SEQUENCES} drafts altogether, the sequences "
                "of llama.cpp; draft fewer nodes, or decode fewer requests at once"
            )
        ids = [self._own[row], *(self._free.pop() for _ in through[1:])]
        for sequence in ids[1:]:
            self.context.fork(self._own[row], sequence)
        self._drafts[row], self._end[row] = (ids, through), start + n
        names = np.array(ids, np.int32)
        return [names[column] for column in through.T]

    def keep(self, starts: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keep the accepted tokens paths[row], places in the block read last, and forget the others."""
        for row, (start, path) in enumerate(zip(starts, paths)):
            kept = int(self._drafts[row][1][:, path[-1]].argmax())
            self._settle(row, start + len(path), kept)

    def _settle(self, row: int, end: int, kept: int) -> None:
        """One draft's sequence becomes the request's, as far as `end`; the others are free."""
        ids, _ = self._drafts[row]
        for sequence in ids[:kept] + ids[kept + 1 :]:
            self.context.cut(sequence)
            self._free.append(sequence)
        self._own[row] = ids[kept]
        self._drafts[row] = [ids[kept]], NOTHING
        if self._end[row] > end:
            self.context.cut(ids[kept], end)
            self._end[row] = end

    def select(self, rows: Sequence[int]) -> None:
        """Keep these requests alone, in this order."""
        for row in set(range(self.rows)) - set(rows):
            self.context.cut(self._own[row])
            self._free.append(self._own[row])
        self._own, self._end = [self._own[row] for row in rows], [self._end[row] for row in rows]
        self._drafts = [self._drafts[row] for row in rows]
        self.rows = len(rows)
