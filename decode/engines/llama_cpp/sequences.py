"""llama.cpp's sequences: one per request and, during a pass, one per root-to-leaf path of its tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.engines.llama_cpp.context import SEQUENCES, LlamaContext

NOTHING = np.ones((1, 1), bool)  # no block read since the accepted tokens were kept


class SequenceCache:
    """The texts of the requests of one call, as sequences of a llama.cpp context.

    A token of a tree belongs to the sequences of all paths through it, so it attends to its own path only; its keys and
    values are stored once. The sequence of the accepted path becomes the request's.

    rows: number of requests; held: tokens held per request when the cache is opened, 0.
    """

    def __init__(self, context: LlamaContext, rows: int):
        if rows > SEQUENCES:
            raise ValueError(f"expected at most {SEQUENCES} requests, llama.cpp's limit on sequences, got {rows}")
        self.context, self.rows = context, rows
        self.held = [0] * rows
        self._own = list(range(rows))
        self._free = list(range(rows, SEQUENCES))
        self._end = [0] * rows  # end of the positions that a request's sequence may hold
        self._drafts: list[tuple[list[int], NDArray[np.bool_]]] = [([one], NOTHING) for one in self._own]

    @property
    def empty(self) -> bool:
        """Whether nothing has been read yet."""
        return not any(self._end)

    def lay(self, row: int, start: int, n: int, ancestors: NDArray[np.bool_] | None) -> list[NDArray[np.int32]]:
        """Assigns sequences to n tokens that follow the first `start` tokens of a request; returns each token's.

        ancestors: bool [n, n], each token's ancestors and itself; None for a chain.
        """
        self._settle(row, start, 0)
        through = np.ones((1, n), bool) if ancestors is None else ancestors[ancestors.sum(axis=0) == 1]  # [drafts, n]
        if len(through) - 1 > len(self._free):
            raise ValueError(
                f"trees of {self.rows} requests: expected at most {SEQUENCES} paths in total, llama.cpp's limit on "
                "sequences; draft fewer nodes, or decode fewer requests at once"
            )
        ids = [self._own[row], *(self._free.pop() for _ in through[1:])]
        for sequence in ids[1:]:
            self.context.fork(self._own[row], sequence)
        self._drafts[row], self._end[row] = (ids, through), start + n
        names = np.array(ids, np.int32)
        return [names[column] for column in through.T]

    def keep(self, starts: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keeps the accepted tokens paths[row], indices into the last block, and removes the others."""
        for row, (start, path) in enumerate(zip(starts, paths)):
            kept = int(self._drafts[row][1][:, path[-1]].argmax())
            self._settle(row, start + len(path), kept)

    def _settle(self, row: int, end: int, kept: int) -> None:
        """Makes the sequence of path `kept`, up to position `end`, the request's; frees the others."""
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
        """Keeps only these requests, in this order."""
        for row in set(range(self.rows)) - set(rows):
            self.context.cut(self._own[row])
            self._free.append(self._own[row])
        self._own, self._end = [self._own[row] for row in rows], [self._end[row] for row in rows]
        self._drafts = [self._drafts[row] for row in rows]
        self.rows = len(rows)
