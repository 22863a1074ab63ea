"""How many nodes a tree is worth: what passes cost against their width, learned from the passes of the loop itself.

A tree of n nodes is the first n of a larger one, so all sizes of a step are at hand, and with them the tokens that each
is expected to bring under q: one root token a request, and of each node the probability that it is accepted. The step
takes the size with the most tokens per second; where no size beats a plain pass, the steps that follow are not drafted,
for a while. On a processor that is busy with one token a wide pass costs much; on an idle GPU nearly nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rescore.decode.cost.acceptance_rates import SURELY, AcceptanceRates
from rescore.decode.cost.pass_times import PassTimes
from rescore.decode.models.heads import LastPass
from rescore.decode.models.target import Target
from rescore.lattice.trees import Trees

SIZES = (0, 1, 3, 7, 11, 15, 23, 31, 47, 63, 95, 127)  # of trees: few, so that passes of the same shape recur
FIRST = 15  # nodes that are looked at in a first step
TRIED = 7  # nodes of the first trees of a process, before it is known what passes cost
MOST = SIZES[-1]
FADING = 0.5 ** (1 / 32)  # what was accepted, or gained, counts half after 32 steps
LONGEST_REST = 16  # steps without drafts until they are tried again


_times: WeakKeyDictionary[Target, dict[int, PassTimes]] = WeakKeyDictionary()
_rates: WeakKeyDictionary[Target, AcceptanceRates] = WeakKeyDictionary()


class AutoWidth:
    """Chooses the size of every step's trees for the tokens per second that they bring; `most` nodes at most.

    What passes cost is remembered for each target as long as the process runs, by the length of the prompts: behind
    long texts wide passes cost more beside plain ones. Of a length that is new, those of the nearest one count at
    first.
    """

    def __init__(self, target: Target, *, most: int = MOST):
        if not 1 <= most <= 1024:
            raise ValueError(f"most: expected trees of 1..1024 nodes, got {most}")
        self.target, self.most = target, most

    def open(self, requests: int, length: int = 1) -> WidthSession:
        """length: of the longest prompt."""
        known, key = _times.setdefault(self.target, {}), length.bit_length()
        near = min((other for other in [*known] if known[other].tried), key=lambda one: abs(one - key), default=key)
        times = known.setdefault(key, PassTimes())
        rates = _rates.setdefault(self.target, AcceptanceRates())
        return WidthSession(times, requests, self.most, rates, known[near])


class WidthSession:
    """The sizes of one call.

    A step asks either `rests` or, if it drafts, `size`; what follows up to the next step is the pass that is timed.
    What q says of a node is corrected by what became of such nodes before (`AcceptanceRates`).
    """

    def __init__(
        self,
        times: PassTimes,
        requests: int,
        most: int = MOST,
        rates: AcceptanceRates | None = None,
        near: PassTimes | None = None,
    ):
        self.times, self.requests = times, requests
        self._near = near or times
        self.rates = rates or AcceptanceRates()
        self.sizes = np.array([n for n in SIZES if n < most] + [most])
        self._last = FIRST
        self._pass: tuple[int, float] | None = None  # the tokens of the pass under way, and when it began
        # Steps that will not be drafted; how many after the next step that is not worth it; what drafting has gained.
        self._rest, self._longest_rest, self._gained = 0, 1, 0.0

    @property
    def wanted(self) -> int:
        """Nodes of the trees that `size` should be given: twice as many as the last ones had, or more."""
        return int(self.sizes[self.sizes <= max(2 * self._last + 1, FIRST)][-1])

    def begin(self, last: Iterable[LastPass] = ()) -> None:
        """A step begins: the pass of the step before is over. last: what it said of each request."""
        if self._pass is not None:
            tokens, began = self._pass
            self.times.note(tokens, time.perf_counter() - began)
            self._pass = None
        self.rates.fade()
        if drafted := [one for one in last if one.tree.size]:
            self.rates.note([one.tree for one in drafted], [one.accepted for one in drafted])

    def end(self, nodes: int) -> None:
        """The step's drafts are made, of so many nodes at most, and their pass begins."""
        self._last = nodes
        self._pass = self.requests * (1 + nodes), time.perf_counter()

    def size(self, trees: Trees, room: Sequence[int], drafting: float = 0.0) -> int:
        """Nodes of the trees of a step, 0 where a plain pass brings more.

        trees: the largest ones; room: the most tokens that each request has use for; drafting: the seconds that this
        step has taken so far.
        """
        p = self.rates.corrected(trees.logq, trees.parents, trees.depths)
        p[trees.depths > np.array(room)[:, None]] = 0
        sizes = np.append(self.sizes[self.sizes < p.shape[1]], p.shape[1])
        times = self.times if self.times.tried else self._near
        costs = times.costs()
        if costs is None and not times.tried:  # the first passes of a process: a tree and none in turns
            return 0 if self.times.latest > len(p) else int(sizes[sizes <= TRIED][-1])
        if costs is None:  # drafts did not pay for long; what is nearly sure to be accepted pays whatever a pass costs
            sure = int((p >= SURELY).all(axis=0).sum())
            if not sure:
                self._plan_rest(-drafting / (drafting + times.narrowest))
            return int(sizes[sizes <= sure][-1])
        tokens = len(p) + np.append(0.0, np.cumsum(p.sum(axis=0)))[sizes]
        seconds = drafting + costs.at(len(p) * (1 + sizes))
        best = best_size(tokens, seconds)
        self._plan_rest(tokens[best] / seconds[best] * (seconds[0] - drafting) / len(p) - 1)
        return int(sizes[best])

    def rests(self) -> bool:
        """Whether this step is better not drafted at all, since lately plain passes would have brought more; asked
        before `size`, and instead of it where so.
        """
        if not self._rest:
            return False
        self._rest -= 1
        return True

    def _plan_rest(self, gain: float) -> None:
        """Rests twice as long as the last time, where drafting costs more than it has brought of late.

        gain: of this step over a plain one that drafts nothing, as a share; below 0 by the time of drafting where a
        plain pass is best.
        """
        self._gained = max(self._gained, 0.0) * FADING + gain
        self._rest = self._longest_rest if self._gained < 0 else 0
        self._longest_rest = min(2 * self._longest_rest, LONGEST_REST) if self._gained < 0 else 1

    def select(self, rows: Sequence[int]) -> None:
        self.requests = len(rows)


def best_size(tokens: NDArray[np.float64], seconds: NDArray[np.float64]) -> int:
    """Index of the size with the most tokens per second, from tokens [m] and seconds [m]; the first of equals."""
    return int(np.argmax(tokens / seconds))
