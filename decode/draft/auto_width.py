"""Chooses how many nodes to draft, from the measured cost of passes by width.

A tree of n nodes is the first n of a larger one, so one search gives all sizes, and the tokens that each is expected to
yield under q: one root token per request, plus every node's acceptance probability. Each step takes the size with the
most tokens per second (`Pace`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from rescore.decode.draft.pace import AcceptanceRates, Pace, PassTimes
from rescore.decode.models.draft_step import LastPass
from rescore.lattice.tree import Trees

if TYPE_CHECKING:
    from rescore.decode.models.target import Target


SIZES = (0, 1, 3, 7, 11, 15, 23, 31, 47, 63, 95, 127)  # few sizes of trees, so that shapes of passes recur
FIRST_STEP_NODES = 31  # nodes that a first step considers
MAX_NODES = SIZES[-1]
LATER = 0.01  # tokens that the target's prediction after a rejected node brings in later passes, where it is counted


_times: WeakKeyDictionary[Target, dict[int, PassTimes]] = WeakKeyDictionary()
_rates: WeakKeyDictionary[Target, AcceptanceRates] = WeakKeyDictionary()


class AutoWidth:
    """Chooses the size of each step's trees, at most `most` nodes, to maximise tokens per second.

    Costs of passes are kept per target for the life of the process, by the length of the prompts: after long texts,
    wide passes cost more relative to plain ones. A new length starts from the costs of the nearest one.
    """

    def __init__(self, target: Target, *, most: int = MAX_NODES):
        if not 1 <= most <= 1024:
            raise ValueError(f"most: expected trees of 1..1024 nodes, got {most}")
        self.target, self.most = target, most

    def open(self, requests: int, length: int = 1, *, learns: bool = False) -> WidthSession:
        """Opens a session. length: of the longest prompt; learns: whether predictions after rejected nodes count."""
        times, near = self._known(length)
        rates = _rates.setdefault(self.target, AcceptanceRates())
        return WidthSession(Pace(times, rates, near), requests, self.most, LATER if learns else 0.0)

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
    """The sizes of one call's trees.

    A step calls `begin` and, if its pace does not rest, `size`, and then `end`. Acceptance probabilities under q are
    corrected by the acceptance of earlier nodes (`AcceptanceRates`).
    """

    def __init__(self, pace: Pace, requests: int, most: int = MAX_NODES, later: float = 0.0):
        self.pace, self.requests, self._later = pace, requests, later
        self.sizes = np.array([n for n in SIZES if n < most] + [most])
        self._last = FIRST_STEP_NODES
        self._tail: int | None = None

    @property
    def wanted(self) -> int:
        """Nodes of the trees to pass to `size`: about twice as many as in the last step, or more."""
        return int(self.sizes[self.sizes <= max(2 * self._last + 1, FIRST_STEP_NODES)][-1])

    def begin(self, last: Iterable[LastPass] = (), tail: int | None = None) -> None:
        """Starts a step and ends the timing of the last pass, whose results are `last`. tail: of the step."""
        self.pace.begin()
        self._tail = tail
        if drafted := [one for one in last if one.tree.size]:
            self.pace.rates.note([one.tree for one in drafted], [one.accepted for one in drafted])

    def size(self, trees: Trees, room: Sequence[int], drafting: float = 0.0) -> int:
        """Returns the number of nodes for this step's trees; 0 if a plain pass yields more.

        trees: the largest ones; room: the most tokens that each request can still use; drafting: seconds that this step
        has taken so far.
        """
        p = self.pace.rates.corrected(trees.logq, trees.parents)
        p[trees.depths > np.array(room)[:, None]] = 0
        rows, sizes = len(p), np.append(self.sizes[self.sizes < p.shape[1]], p.shape[1])
        accepted = np.append(0.0, np.cumsum(p.sum(axis=0)))[sizes]
        gained = rows + accepted + self._later * rows * sizes
        widths = rows * (1 + sizes)
        if self._tail is not None:
            whole = np.append(rows, p.sum(axis=0))[sizes]  # rows whose draft is accepted whole
            # The others read all that is new once more in the next pass: the root token and what was accepted.
            widths = widths + rows * self._tail + (rows - whole) * (self._tail + 1) + accepted - sizes * whole
        return int(sizes[self.pace.best(gained, widths, rows, drafting)])

    def end(self, nodes: int) -> None:
        """Ends drafting, with trees of at most `nodes` nodes, and starts the timing of their pass."""
        self._last = nodes
        self.pace.end(self.requests * (1 + (self._tail or 0) + nodes))

    def select(self, rows: Sequence[int]) -> None:
        self.requests = len(rows)
