"""What heads are taught: from the state at a position of a text, the distributions that the model had further on.

Position i of a text is behind tokens[:i]. Slot t, which drafts tokens[i + t] once tokens[i] is certain, is taught the
model's own distribution of that token, which position i + t holds.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.training.state_store import Shard


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lesson:
    """N positions, for T slots.

    hidden   float16 [N, width]
    certain  int64 [N], the token that follows for certain
    truth    int64 [N, T], the tokens of the text behind it; -1 behind its end
    ids      int64 [N, T, K], top_logp float32 [N, T, K]: the model's distributions of them; ids -1 behind the end
    """

    hidden: Tensor
    certain: Tensor
    truth: Tensor
    ids: Tensor
    logp: Tensor

    def to(self, device: torch.device | str) -> Lesson:
        return Lesson(**{name: getattr(self, name).to(device) for name in self.__slots__})


class Lessons:
    """Every position of texts that can teach a head, those of held-out texts apart.

    held_out  one text in so many, by its prompt's number; a prime, so that prompts which take temperatures in turn
              are held out alike
    """

    def __init__(self, shards: Sequence[Shard], slots: int, *, held_out: int = 41):
        self._shards, self._slots = shards, slots
        self._starts = np.cumsum([0, *(len(shard["tokens"]) for shard in shards)])
        parts = [_ends(shard, held_out) for shard in shards]
        self._end = np.concatenate([ends + start for (ends, _), start in zip(parts, self._starts)])
        self.held_out = np.concatenate([apart for _, apart in parts])
        every = np.arange(len(self._end))
        teaches = every + 1 < self._end
        self.train, self.valid = every[teaches & ~self.held_out], every[teaches & self.held_out]

    def tokens(self, held_out: bool) -> Iterator[NDArray[np.int32]]:
        """The tokens of the texts, shard by shard."""
        for shard, start in zip(self._shards, self._starts):
            part = self.held_out[start : start + len(shard["tokens"])] == held_out
            yield shard["tokens"][part]

    def distributions(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float16]]]:
        """top_ids and top_logp [n, K] of the texts that are not held out, shard by shard."""
        for shard, start in zip(self._shards, self._starts):
            part = ~self.held_out[start : start + len(shard["tokens"])]
            yield shard["top_ids"][part], shard["top_logp"][part]

    def lesson(self, positions: NDArray[np.integer]) -> Lesson:
        """Of these positions, in any order."""
        later = positions[:, None] + np.arange(1, self._slots + 1)
        inside = later < self._end[positions][:, None]
        later = np.where(inside, later, positions[:, None])
        ids = np.where(inside[..., None], self._rows("top_ids", later), -1)
        return Lesson(
            hidden=torch.from_numpy(self._rows("hidden", positions)),
            certain=torch.from_numpy(self._rows("tokens", positions).astype(np.int64)),
            truth=torch.from_numpy(np.where(inside, self._rows("tokens", later), -1).astype(np.int64)),
            ids=torch.from_numpy(ids.astype(np.int64)),
            logp=torch.from_numpy(self._rows("top_logp", later).astype(np.float32)),
        )

    def _rows(self, name: str, positions: NDArray[np.integer]) -> NDArray:
        """Rows of an array that all shards hold a part of."""
        which = np.searchsorted(self._starts, positions, side="right") - 1
        first = self._shards[0][name]
        out = np.empty((*positions.shape, *first.shape[1:]), first.dtype)
        for i in np.unique(which):
            mine = which == i
            out[mine] = self._shards[i][name][positions[mine] - self._starts[i]]
        return out


def batches(positions: NDArray[np.integer], size: int, seed: int, step: int) -> NDArray[np.integer]:
    """The positions of a step: every one once before any comes again, in an order of each round's own."""
    a_round = max(1, len(positions) // size)
    start = step % a_round * size
    return positions[_order(len(positions), seed, step // a_round)[start : start + size]]


@functools.lru_cache(maxsize=1)
def _order(count: int, seed: int, number: int) -> NDArray[np.int64]:
    """Of a round, which all of its steps share."""
    return np.random.default_rng((seed, number)).permutation(count)


def _ends(shard: Shard, held_out: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Of every position, where its text ends and whether it is held out."""
    lengths = np.diff(shard["offsets"])
    return np.repeat(shard["offsets"][1:], lengths), np.repeat(shard["numbers"] % held_out == 0, lengths)
