"""Realigns rows that advance by blocks into `generate`'s steps: one token of every row at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.loop.generate import Chunk


class Steps:
    """The tokens that all rows have decoded so far.

    fill  padding id after a text that has ended; None: there are no steps past the shortest text
    put   called with each step's tokens int64 [B] as soon as every row has them, as `generate` calls its streamer
    """

    def __init__(self, batch: int, fill: int | None, put: Callable[[Tensor], None] | None = None):
        self.tokens: list[list[int]] = [[] for _ in range(batch)]
        self.ended = [False] * batch
        self._fill = fill
        self._put = put
        self._steps: list[Tensor] = []

    def add(self, chunk: Chunk) -> None:
        self.tokens[chunk.request] += chunk.tokens.tolist()
        self.ended[chunk.request] = chunk.finish is not None
        self._step()

    def end(self, row: int, fill: int) -> None:
        """Ends a row before the others, which continue; it is filled with `fill` if there is no padding id."""
        self.ended[row] = True
        self._fill = fill if self._fill is None else self._fill
        self._step()

    def _step(self) -> None:
        while (step := self._next()) is not None:
            self._steps.append(step)
            if self._put is not None:
                self._put(step)

    def columns(self) -> Tensor:
        """Returns the tokens of all steps, int64 [B, steps]."""
        return torch.stack(self._steps, dim=1)

    def _next(self) -> Tensor | None:
        at = len(self._steps)
        decoded = [len(tokens) > at for tokens in self.tokens]
        if not any(decoded) or not all(
            has or (ended and self._fill is not None) for has, ended in zip(decoded, self.ended)
        ):
            return None
        return torch.tensor([tokens[at] if has else self._fill for tokens, has in zip(self.tokens, decoded)])


class Together:
    """Ends all texts together, as `generate` does without an end-of-text token.

    ended[b](history) says whether text b would end at `history`; starts[b] is the length of its prompt.
    """

    def __init__(self, ended: Sequence[Callable[[NDArray[np.int32]], bool]], starts: Sequence[int]):
        self._would_end, self._starts = ended, starts
        self._first: list[int | None] = [None] * len(ended)

    def criterion(self, row: int) -> Callable[[NDArray[np.int32]], bool]:
        def ended(history: NDArray[np.int32]) -> bool:
            new = len(history) - self._starts[row]
            if self._first[row] is None and self._would_end[row](history):
                self._first[row] = new
            firsts = [first for first in self._first if first is not None]
            return len(firsts) == len(self._first) and new >= max(firsts)

        return ended

    def leave(self, row: int) -> None:
        """The others no longer wait for a text that cannot continue."""
        self._first[row] = self._first[row] or 0
