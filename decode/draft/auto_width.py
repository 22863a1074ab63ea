"""Chooses how many nodes to draft, from the measured cost of passes by width.

A tree of n nodes is the first n of a larger one, so one search gives all sizes, and the tokens that each is expected to
yield under q: one root token per request, plus every node's acceptance probability. Each step takes the size with the
most tokens per second. If no size beats a plain pass, drafting rests until the search has taken at most 1% of the time
(`rest_after`). A wide pass is expensive on a processor that one token keeps busy, and nearly free on an idle GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.pass_times import PassTimes, rest_after
from rescore.decode.models.draft_step import LastPass
from rescore.lattice.tree import TokenTree
from rescore.lattice.trees import Trees

if TYPE_CHECKING:
    from rescore.decode.models.target import Target


# Edges of the bins of conditional q, a token's probability given the draft's tokens before it: finer towards 1, where
# most of the accepted tokens are.
EDGES = np.array([0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99])
PRIOR = 8.0  # accepted tokens that q itself counts as in each bin
FADING = 0.5 ** (1 / 512)  # weight of what was learned, per step: the next text may differ


class AcceptanceRates:
    """How many tokens were accepted, of those that q let expect, by conditional q; updated as drafts are verified."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, len(EDGES) + 1))  # tokens accepted and expected
        self._steps = 0  # since the counts were last faded

    def corrected(self, logq: NDArray[np.float32], parents: NDArray[np.int32]) -> NDArray[np.float64]:
        """Probabilities that the nodes of trees are accepted; 0 for padding, whose logq is -inf.

        Columns [n] of a `TokenTree`, or [B, n] of several trees; parents precede their children.
        """
        accepted, expected = self._faded() + PRIOR
        p = _core.acceptance(np.atleast_2d(logq), np.atleast_2d(parents), EDGES, accepted / expected)
        return p.reshape(logq.shape)

    def note(self, trees: Sequence[TokenTree], accepted: Sequence[Sequence[int]]) -> None:
        """Counts verified trees, of which the nodes `accepted` were accepted, from the root token down.

        Their siblings were rejected. Descendants of rejected nodes were not tested and are not counted.
        """
        _core.count_accepted(
            self._faded(), EDGES, [tree.logq for tree in trees], [tree.parents for tree in trees], accepted
        )

    def fade(self) -> None:
        """Begins a step: earlier counts weigh a little less."""
        self._steps += 1

    def _faded(self) -> NDArray[np.float64]:
        """The counts as of this step."""
        if self._steps:
            self._counts *= FADING**self._steps
            self._steps = 0
        return self._counts


SIZES = (0, 1, 3, 7, 11, 15, 23, 31, 47, 63, 95, 127)  # few sizes of trees, so that shapes of passes recur
FIRST = 31  # nodes that a first step considers
MOST = SIZES[-1]
LATER = 0.01  # tokens that the target's prediction after a rejected node brings in later passes, where it is counted


_times: WeakKeyDictionary[Target, dict[int, PassTimes]] = WeakKeyDictionary()
_rates: WeakKeyDictionary[Target, AcceptanceRates] = WeakKeyDictionary()


class AutoWidth:
    """Chooses the size of each step's trees, at most `most` nodes, to maximise tokens per second.

    Costs of passes are kept per target for the life of the process, by the length of the prompts: after long texts,
    wide passes cost more relative to plain ones. A new length starts from the costs of the nearest one.
    """

    def __init__(self, target: Target, *, most: int = MOST):
        if not 1 <= most <= 1024:
            raise ValueError(f"most: expected trees of 1..1024 nodes, got {most}")
        self.target, self.most = target, most

    def open(self, requests: int, length: int = 1, *, learns: bool = False) -> WidthSession:
        """Opens a session. length: of the longest prompt; learns: whether predictions after rejected nodes count."""
        times, near = self._known(length)
        rates = _rates.setdefault(self.target, AcceptanceRates())
        return WidthSession(times, requests, self.most, rates, near, LATER if learns else 0.0)

    def plain_s(self, requests: int, length: int = 1) -> float | None:
        """Returns the shortest of the latest times of a plain pass; None if none was measured. Arguments: as `open`."""
        times, near = self._known(length)
        return times.fastest(requests) or near.fastest(requests)

    def _known(self, length: int) -> tuple[PassTimes, PassTimes]:
        """The pass times for prompts of this length, and those that a session starts from."""
        known, key = _times.setdefault(self.target, {}), length.bit_length()
        near = min((other for other in [*known] if known[other].known()), key=lambda one: abs(one - key), default=key)
        times = known.setdefault(key, PassTimes())
        return times, known[near]


def forget(target: Target) -> None:
    """Drops what the process has learned of a target: the next call drafts as a process's first one."""
    _times.pop(target, None)
    _rates.pop(target, None)


class WidthSession:
    """The sizes of one call.

    A step calls `rests` first and, if it drafts, `size`. The time from `end` to the next `begin` is that of the pass.
    Acceptance probabilities under q are corrected by the acceptance of earlier nodes (`AcceptanceRates`).
    """

    def __init__(
        self,
        times: PassTimes,
        requests: int,
        most: int = MOST,
        rates: AcceptanceRates | None = None,
        near: PassTimes | None = None,
        later: float = 0.0,
    ):
        self.times, self.requests = times, requests
        self._near, self._later = near or times, later
        self.rates = rates or AcceptanceRates()
        self.sizes = np.array([n for n in SIZES if n < most] + [most])
        self._last = FIRST
        self._pass: tuple[int, float] | None = None  # tokens of the current pass, and its start time
        self._rest = 0  # steps left

    @property
    def wanted(self) -> int:
        """Nodes of the trees to pass to `size`: about twice as many as in the last step, or more."""
        return int(self.sizes[self.sizes <= max(2 * self._last + 1, FIRST)][-1])

    def begin(self, last: Iterable[LastPass] = ()) -> None:
        """Starts a step and ends the timing of the previous pass. last: its result for each request."""
        if self._pass is not None:
            tokens, began = self._pass
            self.times.note(tokens, time.perf_counter() - began)
            self._pass = None
        self.rates.fade()
        if drafted := [one for one in last if one.tree.size]:
            self.rates.note([one.tree for one in drafted], [one.accepted for one in drafted])

    def end(self, nodes: int) -> None:
        """Ends drafting, with trees of at most `nodes` nodes, and starts the timing of their pass."""
        self._last = nodes
        self._pass = self.requests * (1 + nodes), time.perf_counter()

    def size(self, trees: Trees, room: Sequence[int], drafting: float = 0.0) -> int:
        """Returns the number of nodes for this step's trees; 0 if a plain pass yields more.

        trees: the largest ones; room: the most tokens that each request can still use; drafting: seconds that this step
        has taken so far.
        """
        p = self.rates.corrected(trees.logq, trees.parents)
        p[trees.depths > np.array(room)[:, None]] = 0
        sizes = np.append(self.sizes[self.sizes < p.shape[1]], p.shape[1])
        costs = (self.times if self.times.known() else self._near).costs(len(p))
        tokens = len(p) + np.append(0.0, np.cumsum(p.sum(axis=0)))[sizes] + self._later * len(p) * sizes
        seconds = costs.at(len(p) * (1 + sizes))
        best = best_size(tokens, drafting + seconds)
        if not sizes[best]:
            self._rest = rest_after(drafting, seconds[0])
        return int(sizes[best])

    def rests(self) -> bool:
        """Whether to skip drafting in this step. Call it before `size`, and call `size` only if it is false."""
        if not self._rest:
            return False
        self._rest -= 1
        return True

    def select(self, rows: Sequence[int]) -> None:
        self.requests = len(rows)


def best_size(tokens: NDArray[np.float64], seconds: NDArray[np.float64]) -> int:
    """Index of the size with the most tokens per second, given tokens [m] and seconds [m]; the first of equal ones."""
    return int(np.argmax(tokens / seconds))
