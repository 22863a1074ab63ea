"""A block of a dump: whole sequences of one task and the predictions of every head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.sausage import Sausage, unchecked_sausage
from rescore.lattice.short_repr import short_repr

WINDOW = 24
DISTINCT = 8
MASS_SLACK = 0.02  # float16 logp gives p with a relative error of up to 0.4% at p = 0.01, and less for greater p


def is_loop(tokens: Any) -> bool:
    """Whether the last 24 tokens hold fewer than 8 distinct ones; shorter continuations do not count as loops."""
    tokens = np.asarray(tokens)
    return len(tokens) >= WINDOW and len(np.unique(tokens[-WINDOW:])) < DISTINCT


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DumpBlock:
    """S sequences with n positions (rows) in all. All arrays are read-only views of the mapped shard.

    tokens         int32 or uint16 [n], the continuations, concatenated
    offsets        int64 [S + 1], sequence s has the rows offsets[s]..offsets[s + 1] - 1
    prompt_tokens  int32 or uint16 [m], prompt_offsets int64 [S + 1]: the prompt of each continuation
    topk_ids       uint16 or int32 [n, h, K] in [0, V), the candidates of head j + 1 in order of rank
    topk_logp      float16 or float32 [n, h, K], their log-probabilities over all V tokens
    entropy        float16 or float32 [n, h], nats over all V tokens, or None
    seeds          uint64 [n], the seed of each position's random numbers, or None
    prompt_topk_ids, prompt_topk_logp  [m, K], like topk_*, head 1's predictions after each token of the prompts; or
                   None

    Row i of a sequence was predicted from the prompt and tokens[:i]; its head j (from 1) predicts tokens[i + j - 1].
    `file`, `first_row` and `first_sequence` locate the block in its shard.
    """

    task: str
    file: str
    first_row: int
    first_sequence: int
    tokens: NDArray
    offsets: NDArray[np.int64]
    prompt_tokens: NDArray
    prompt_offsets: NDArray[np.int64]
    topk_ids: NDArray
    topk_logp: NDArray
    entropy: NDArray | None
    seeds: NDArray[np.uint64] | None
    prompt_topk_ids: NDArray | None = None
    prompt_topk_logp: NDArray | None = None

    __repr__ = short_repr

    @property
    def rows(self) -> int:
        """n"""
        return len(self.tokens)

    @property
    def sequences(self) -> int:
        """S"""
        return len(self.offsets) - 1

    @property
    def slots(self) -> int:
        """T = h - 1"""
        return self.topk_ids.shape[1] - 1

    @property
    def loops(self) -> int:
        """Number of sequences that loop."""
        return sum(is_loop(self.tokens[start:end]) for start, end in zip(self.offsets[:-1], self.offsets[1:]))

    def sausages(self, rows: Any = slice(None), k: int | None = None) -> Sausage:
        """Lattices [R, T, K] of the given rows (integers, a slice or a mask): heads 2..h, the first k candidates."""
        ids = self.topk_ids[rows, 1:, :k].astype(np.int32)
        return unchecked_sausage(ids, -self.topk_logp[rows, 1:, :k].astype(np.float32))

    def truth(self, rows: Any = slice(None), slots: int | None = None) -> NDArray[np.int32]:
        """The true tokens of the given rows' slots, int32 [R, T], padding -1 past the end of the sequence.

        slots: how many; None for those of heads 2..h.
        """
        rows = np.arange(self.rows)[rows]
        ahead = rows[:, None] + np.arange(1, (self.slots if slots is None else slots) + 1)
        inside = ahead < self.offsets[np.searchsorted(self.offsets, rows, side="right")][:, None]
        return np.where(inside, self.tokens[np.where(inside, ahead, 0)], -1).astype(np.int32)

    @property
    def texts(self) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """The prompt and the continuation of each sequence, int32 [m] and [n]."""
        prompts = np.split(self.prompt_tokens.astype(np.int32), self.prompt_offsets[1:-1])
        return list(zip(prompts, np.split(self.tokens.astype(np.int32), self.offsets[1:-1])))

    @property
    def sequence_of(self) -> NDArray[np.int64]:
        """The sequence of each row, int64 [n]."""
        return np.repeat(np.arange(self.sequences), np.diff(self.offsets))

    @property
    def sequence_ends(self) -> NDArray[np.int64]:
        """The end of each row's sequence: one past its last row, int64 [n]."""
        return np.repeat(self.offsets[1:], np.diff(self.offsets))

    def history(self, row: int, n: int) -> NDArray[np.int32]:
        """The last n tokens (fewer at the start) up to and including the root token, tokens[row]; the prompt counts."""
        if not 0 <= row < self.rows or n < 0:
            raise ValueError(
                f"history: expected one of the block's {self.rows} rows, from 0, and n >= 0, got {row} and {n}"
            )
        history = self.histories([row], n)[0]
        return history[history >= 0]

    def histories(self, rows: Any, n: int) -> NDArray[np.int32]:
        """`history` of many rows: int32 [R, n], padding -1 in front."""
        rows = np.arange(self.rows)[rows]
        sequence = self.sequence_of[rows]
        place = rows[:, None] + np.arange(1 - n, 1)  # in tokens; places before the sequence are in the prompt
        before = self.offsets[sequence][:, None] - place
        ends = self.prompt_offsets[sequence + 1][:, None]
        in_prompt = (before > 0) & (ends - before >= self.prompt_offsets[sequence][:, None])
        histories = np.where(before <= 0, self.tokens[np.maximum(place, 0)], -1).astype(np.int32)
        histories[in_prompt] = self.prompt_tokens[(ends - before)[in_prompt]]
        return histories

    def part(self, first: int, last: int) -> DumpBlock:
        """The block of sequences first..last - 1, at least one, as views."""
        if not 0 <= first < last <= self.sequences:
            raise ValueError(f"part: expected 0 <= first < last <= {self.sequences}, got {first} and {last}")
        rows = slice(int(self.offsets[first]), int(self.offsets[last]))
        prompts = slice(int(self.prompt_offsets[first]), int(self.prompt_offsets[last]))
        ids, logp = self.prompt_topk_ids, self.prompt_topk_logp
        return replace(
            self,
            first_row=self.first_row + rows.start,
            first_sequence=self.first_sequence + first,
            tokens=self.tokens[rows],
            offsets=self.offsets[first : last + 1] - self.offsets[first],
            prompt_tokens=self.prompt_tokens[prompts],
            prompt_offsets=self.prompt_offsets[first : last + 1] - self.prompt_offsets[first],
            topk_ids=self.topk_ids[rows],
            topk_logp=self.topk_logp[rows],
            entropy=None if self.entropy is None else self.entropy[rows],
            seeds=None if self.seeds is None else self.seeds[rows],
            prompt_topk_ids=None if ids is None else ids[prompts],
            prompt_topk_logp=None if logp is None else logp[prompts],
        )

    def check(self, vocab_size: int, *, exact: bool = False) -> None:
        """Raises ValueError naming task, file, row and head of the first invalid value.

        exact: head 1's first candidate must equal the token, as in a greedy dump.
        """
        for name in ("tokens", "prompt_tokens"):
            array = getattr(self, name)
            self._refuse(array.astype(np.int64) >= vocab_size, name, f"is not in 0..V - 1 = {vocab_size - 1}")
            self._refuse(array < 0, name, f"is not in 0..V - 1 = {vocab_size - 1}")
        self._check_top("topk_ids", "topk_logp", vocab_size)
        if self.prompt_topk_ids is not None:
            self._check_top("prompt_topk_ids", "prompt_topk_logp", vocab_size)
        if self.entropy is not None:
            entropy, most = self.entropy.astype(np.float32), np.log(vocab_size) * 1.001 + 1e-3
            self._refuse(
                ~((entropy >= 0) & (entropy <= most)), "entropy", f"is not in 0..ln V = {np.log(vocab_size):.4f} nats"
            )
        if exact:
            self._refuse(
                self.topk_ids[:, 0, 0] != self.tokens,
                "tokens",
                "is not head 1's first candidate, as expected in a greedy dump; allow_inexact accepts it",
            )

    def _check_top(self, name: str, logp_name: str, vocab_size: int) -> None:
        """Checks candidates: ids, order of rank, and log-probabilities over all V tokens."""
        ids, logp = getattr(self, name), getattr(self, logp_name).astype(np.float32)
        self._refuse((ids < 0) | (ids >= vocab_size), name, f"is not in 0..V - 1 = {vocab_size - 1}")
        self._refuse(~(logp <= 0) | ~np.isfinite(logp), logp_name, "is not a finite log-probability (<= 0)")
        self._refuse(
            np.diff(logp, axis=-1, prepend=np.inf) > 0,
            logp_name,
            "is greater than the one before it: expected candidates in order of rank",
        )
        self._refuse(
            (np.exp(logp).sum(-1) > 1 + MASS_SLACK)[..., None],
            logp_name,
            "starts a slot whose probabilities sum to more than 1: expected a softmax over all V tokens",
        )
        ids = np.sort(ids, axis=-1)
        self._refuse(
            (ids[..., 1:] == ids[..., :-1]).any(-1)[..., None], name, "starts a slot in which an id occurs twice"
        )

    def _refuse(self, bad: NDArray, name: str, what: str) -> None:
        if not bad.any():
            return
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        value = getattr(self, name)[index].item()
        shown = f"{value:.6g}" if isinstance(value, float) else value
        of_prompt = name.startswith("prompt_")
        if of_prompt:
            sequence = int(np.searchsorted(self.prompt_offsets, index[0], side="right")) - 1
            place = f"prompt token {index[0]} of the block"
        else:
            sequence = int(np.searchsorted(self.offsets, index[0], side="right")) - 1
            place = (
                f"position {index[0] - int(self.offsets[sequence])} (row {index[0] + self.first_row} of {self.file})"
            )
        index = (index[0], 0, *index[1:]) if of_prompt and len(index) > 1 else index  # of head 1
        head = f", head {index[1] + 1}" if len(index) > 1 else ""
        rank = f", rank {index[2] + 1}" if len(index) > 2 else ""
        raise ValueError(
            f"task {self.task!r}, sequence {sequence + self.first_sequence}, {place}{head}{rank}: "
            f"{name} = {shown} {what}"
        )
