"""How many nodes a tree is worth: what a pass costs against its width, measured where it runs.

A tree of n nodes is the first n of a larger one, so all sizes of a step are at hand, and with them the tokens that each
is expected to bring under q: one certain token a request, and the sum of exp(logq) of the nodes. The step takes the
size with the most tokens a second; where no size beats a plain pass, the steps that follow are not drafted, for a
while. On a processor that is busy with one token a wide pass costs much; on an idle GPU nearly nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.decode.cost.pass_costs import PassCosts
from rescore.decode.models.block import Block
from rescore.decode.models.target import Target

WIDTHS = (1, 2, 3, 5, 9, 17, 33, 65, 129)
REPEATS = 3
MOST = WIDTHS[-1] - 1
HALF_LIFE = 32  # steps after which what was accepted counts half
LONGEST_REST = 16  # steps without drafts until they are tried again
PRIOR = 2.0  # expected tokens that speak for q before anything was accepted


@torch.inference_mode()
def measure_passes(
    target: Target,
    *,
    rows: int = 1,
    length: int = 64,
    widths: Sequence[int] = WIDTHS,
    repeats: int = REPEATS,
    most: float = np.inf,
) -> PassCosts:
    """The median of passes of each width behind `length` tokens, as the loop makes them: hidden states, logits, argmax.

    Stops behind the width that costs `most` times the first, which no draft is worth.
    """
    if target.context is not None:
        widths = [width for width in widths if width < target.context] or [1]
        length = max(1, min(length, target.context - max(widths)))
    prompt = np.zeros(length, np.int64)
    cache, firsts = target.open([prompt] * rows, 1, length + max(widths))
    start = len(firsts[0])
    target.read(Block.of_texts(firsts, [0] * rows, target.device), cache)
    tokens, seconds = [], []
    for width in widths:
        block = Block.of_texts([np.zeros(width, np.int64)] * rows, [start] * rows, target.device)
        times = []
        for _ in range(1 + repeats):
            began = time.perf_counter()
            target.logits(target.read(block, cache)).argmax(dim=-1).cpu()  # which waits for the device
            times.append(time.perf_counter() - began)
        tokens.append(rows * width)
        seconds.append(statistics.median(times[1:]))
        if seconds[-1] > most * seconds[0]:
            break
    return PassCosts.of_times(tokens, seconds)


_measured: WeakKeyDictionary[Target, dict[tuple[int, int], PassCosts]] = WeakKeyDictionary()


def pass_costs(target: Target, rows: int, length: int, most: float) -> PassCosts:
    """Measured once in a process for each target, power of two of rows, and of length."""
    key = (_bucket(rows), _bucket(length))
    known = _measured.setdefault(target, {})
    if key not in known:
        known[key] = measure_passes(target, rows=key[0], length=key[1], most=most)
    return known[key]


def _bucket(number: int) -> int:
    return 1 << (number - 1).bit_length()


class AutoWidth:
    """Chooses the size of every step's trees for the tokens a second that they bring; `most` nodes at most."""

    def __init__(self, target: Target, *, most: int = MOST):
        if not 1 <= most <= 1024:
            raise ValueError(f"most: expected trees of 1..1024 nodes, got {most}")
        self.target, self.most = target, most

    def open(self, prompts: Sequence[NDArray[np.int64]], slots: int) -> WidthSession:
        """For requests with these prompts and lattices of T slots."""
        costs = pass_costs(self.target, len(prompts), max(len(prompt) for prompt in prompts), 1.0 + slots)
        return WidthSession(costs, len(prompts))


class WidthSession:
    """The sizes of one call.

    Heads are surer of themselves than they should be, the more so on text that is unlike their own: of 2.7 tokens that
    the demo's trees of 64 nodes expect, half come on its own text and a quarter on others'. So what was expected is
    weighed with the share of it that came, of late.
    """

    def __init__(self, costs: PassCosts, requests: int):
        self.costs = costs
        self._expected = np.zeros(requests)  # of each request's last tree
        self._lengths = np.zeros(requests, np.int64)  # of its history then; 0 before the first
        self._sums = np.zeros(2)  # accepted and expected tokens, the older ones fading
        # Steps that will not be drafted; how many after the next step that is not worth it.
        self._rest, self._longest_rest = 0, 1

    @property
    def ratio(self) -> float:
        """Accepted tokens for each that q expected."""
        return float((PRIOR + self._sums[0]) / (PRIOR + self._sums[1]))

    def size(self, logq: NDArray[np.float32], lengths: Sequence[int], drafting: float = 0.0) -> int:
        """Nodes of the trees of a step, 0 where a plain pass brings more.

        logq [B, n] of the largest trees, -inf for padding; lengths of the histories; drafting: the seconds that this
        step has taken so far.
        """
        self._learn(np.asarray(lengths, np.int64))
        q = np.exp(logq.astype(np.float64))
        tokens = len(q) + self.ratio * np.append(0.0, np.cumsum(q.sum(axis=0)))
        seconds = drafting + self.costs.at(len(q) * np.arange(1, q.shape[1] + 2))
        n = best_size(tokens, seconds)
        self._expected = q[:, :n].sum(axis=1)
        self._plan_rest(tokens[n] / seconds[n] < len(q) / (seconds[0] - drafting))
        return n

    def rests(self, lengths: Sequence[int]) -> bool:
        """Whether this step is better not drafted at all, since lately plain passes would have brought more; asked
        instead of `size`.
        """
        if not self._rest:
            return False
        self._rest -= 1
        self._learn(np.asarray(lengths, np.int64))
        self._expected = np.zeros(len(lengths))
        return True

    def _plan_rest(self, wanted: bool) -> None:
        """Rests twice as long as the last time, as long as drafts are not worth their time."""
        self._rest = self._longest_rest if wanted else 0
        self._longest_rest = min(2 * self._longest_rest, LONGEST_REST) if wanted else 1

    def select(self, rows: Sequence[int]) -> None:
        self._expected, self._lengths = self._expected[list(rows)], self._lengths[list(rows)]

    def _learn(self, lengths: NDArray[np.int64]) -> None:
        """A history grows by what was accepted, and one."""
        seen = self._lengths > 0
        accepted = (lengths - self._lengths - 1)[seen].sum()
        self._sums = self._sums * 0.5 ** (1 / HALF_LIFE) + np.array([accepted, self._expected[seen].sum()])
        self._lengths = lengths


def best_size(tokens: NDArray[np.float64], seconds: NDArray[np.float64]) -> int:
    """The n of the most tokens a second, of tokens and seconds [n + 1] for 0, 1, .. nodes; the least of equals."""
    return int(np.argmax(tokens / seconds))
