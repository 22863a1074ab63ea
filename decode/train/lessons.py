"""Training examples of heads: the state at a position of a text, and the model's own distributions at later positions.

The draft vocabulary of heads: the most frequent tokens of the model's own texts.

Position i of a text follows tokens[:i]. Slot t drafts tokens[i + t], given the root token tokens[i]; its target is the
model's own distribution of that token, stored at position i + t.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.train.state_store import Shard

ROWS = 1 << 16  # positions counted at once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lesson:
    """Examples for T slots at N positions.

    hidden   float16 [N, width]
    certain  int64 [N], the root token
    truth    int64 [N, T], the tokens of the text after it, -1 past the end
    ids      int64 [N, T, K], logp float32 [N, T, K]: the model's distributions of these tokens; ids -1 past the end
    """

    hidden: Tensor
    certain: Tensor
    truth: Tensor
    ids: Tensor
    logp: Tensor

    def to(self, device: torch.device | str) -> Lesson:
        return Lesson(**{name: getattr(self, name).to(device) for name in self.__slots__})


class Lessons:
    """All positions of the texts with a target for some head, split into training and held-out texts.

    held_out  one text in this many is held out, by its prompt's number; a prime, so that all temperatures, which
              alternate, are held out equally
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

    def arrays(self, *names: str, held_out: bool) -> Iterator[list[NDArray[Any]]]:
        """Yields these arrays of the held-out or of the training texts, shard by shard."""
        for shard, start in zip(self._shards, self._starts):
            part = self.held_out[start : start + len(shard["tokens"])] == held_out
            yield [shard[name][part] for name in names]

    def lesson(self, positions: NDArray[np.integer]) -> Lesson:
        """Returns the examples at these positions, which may be in any order."""
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
        """Gathers rows of an array that is split over the shards."""
        which = np.searchsorted(self._starts, positions, side="right") - 1
        first = self._shards[0][name]
        out = np.empty((*positions.shape, *first.shape[1:]), first.dtype)
        for i in np.unique(which):
            mine = which == i
            out[mine] = self._shards[i][name][positions[mine] - self._starts[i]]
        return out


def batches(positions: NDArray[np.integer], size: int, seed: int, step: int) -> NDArray[np.integer]:
    """Returns the positions of a step. Every epoch visits each position at most once, in its own random order."""
    a_round = max(1, len(positions) // size)
    start = step % a_round * size
    return positions[_order(len(positions), seed, step // a_round)[start : start + size]]


@functools.lru_cache(maxsize=1)
def _order(count: int, seed: int, number: int) -> NDArray[np.int64]:
    """Returns the order of an epoch, shared by its steps."""
    return np.random.default_rng((seed, number)).permutation(count)


def _ends(shard: Shard, held_out: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns for every position the end of its text and whether the text is held out."""
    lengths = np.diff(shard["offsets"])
    return np.repeat(shard["offsets"][1:], lengths), np.repeat(shard["numbers"] % held_out == 0, lengths)


def choose_vocabulary(lessons: Lessons, vocab_size: int, size: int) -> NDArray[np.int32]:
    """Returns the ids [D], ascending, of the `size` tokens with the greatest expected counts under the model's own
    distributions along the training texts; fewer if fewer have any mass. Ties go to the smaller id.
    """
    expected = np.zeros(vocab_size)
    for ids, logp in lessons.arrays("top_ids", "top_logp", held_out=False):
        for start in range(0, len(ids), ROWS):
            part = slice(start, start + ROWS)
            weight = np.exp(logp[part].astype(np.float32)).ravel()
            expected += np.bincount(ids[part].ravel(), weight, minlength=vocab_size)
    best = np.argsort(-expected, kind="stable")[: min(size, int((expected > 0).sum()))]
    return np.sort(best).astype(np.int32)


def lost_share(lessons: Lessons, ids: NDArray[np.integer]) -> float:
    """Returns the share of held-out tokens outside the vocabulary; 0 without held-out texts."""
    lost = [~np.isin(tokens, ids) for (tokens,) in lessons.arrays("tokens", held_out=True)]
    return float(np.concatenate(lost).mean()) if any(map(len, lost)) else 0.0
