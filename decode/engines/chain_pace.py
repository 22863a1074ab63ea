"""How long drafted chains should be: what the engine's passes cost, seen from outside, against what q expects."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rescore.decode.cost.acceptance_rates import SURELY, AcceptanceRates
from rescore.decode.cost.pass_costs import PassCosts
from rescore.decode.cost.pass_times import PassTimes
from rescore.lattice.tree import TokenTree

REMEMBERED = 1024  # passes after which the time of a width that was not used is forgotten
MARGIN = 1.02  # how many times as many tokens per second a draft must promise
DEAR = 0.25  # cost of a drafted token, beside a token's, from which on calls rest when they find nothing
LONGEST_REST = 16  # calls
LEAST = 0.01  # expected tokens below which a drafted token is never worth verifying


class ChainLengths(Protocol):
    """Chooses the lengths of chains, call by call."""

    def rests(self) -> bool:
        """Whether this call drafts nothing and learns nothing; asked first."""

    def begin(self, one_pass: bool) -> None:
        """A call begins. one_pass: whether all that came since the last one was a pass over its drafts."""

    def note(self, chains: Sequence[TokenTree], accepted: Sequence[int]) -> None:
        """Chains of the last call, and how many tokens of each were accepted."""

    def least(self, rows: int, most: int) -> float:
        """q below which no token of the chains, at most `most` long, can pay; at least `LEAST`."""

    def lengths(self, chains: Sequence[TokenTree], drafting: float) -> list[int]:
        """How much of each chain is worth verifying. drafting: the seconds that this call has taken so far."""

    def end(self, tokens: int, rows: int) -> None:
        """A call returns; the pass that follows reads so many tokens in so many rows."""


class FixedCost:
    """A drafted token costs a fixed share of a token without drafts."""

    def __init__(self, cost: float):
        self._cost = max(cost, LEAST)

    def rests(self) -> bool:
        return False

    def begin(self, one_pass: bool) -> None:
        pass

    def note(self, chains: Sequence[TokenTree], accepted: Sequence[int]) -> None:
        pass

    def least(self, rows: int, most: int) -> float:
        return self._cost

    def lengths(self, chains: Sequence[TokenTree], drafting: float) -> list[int]:
        return [one.size for one in chains]

    def end(self, tokens: int, rows: int) -> None:
        pass


class ChainPace:
    """The lengths that bring the most tokens per second, by the times of the passes so far and by what was accepted."""

    def __init__(self) -> None:
        self.times = PassTimes(stale=REMEMBERED)
        self.rates = AcceptanceRates()
        self._pass: tuple[int, float] | None = None  # the tokens of the pass under way, and when it began
        self._costs: PassCosts | None = None  # as known when the call began
        self._least = 0.0
        self._rest, self._longest_rest = 0, 1  # calls that draft nothing; how many after the next one in vain

    def rests(self) -> bool:
        """Where a drafted token is dear, most calls would find nothing: they are saved what looking takes."""
        if not self._rest:
            return False
        self._rest -= 1
        self._pass = None
        return True

    def begin(self, one_pass: bool) -> None:
        if self._pass is not None and one_pass:
            tokens, began = self._pass
            self.times.note(tokens, time.perf_counter() - began)
            self._costs = self.times.costs()
        self._pass = None
        self.rates.fade()

    def note(self, chains: Sequence[TokenTree], accepted: Sequence[int]) -> None:
        self.rates.note(chains, [range(many) for many in accepted])

    def end(self, tokens: int, rows: int) -> None:
        self._pass = _rounded(tokens), time.perf_counter()
        in_vain = tokens == rows and self._costs is not None and self._least > DEAR
        self._rest = self._longest_rest if in_vain else 0
        self._longest_rest = min(2 * self._longest_rest, LONGEST_REST) if in_vain else 1

    def least(self, rows: int, most: int) -> float:
        if self._costs is None:
            return SURELY
        seconds = self._costs.at(np.arange(rows, rows * (1 + most) + 2))
        self._least = float(np.clip(np.diff(seconds).min() / seconds[0] * rows, LEAST, 1.0))
        return self._least

    def lengths(self, chains: Sequence[TokenTree], drafting: float) -> list[int]:
        rows, costs = len(chains), self._costs
        accepted = self._accepted(chains)
        if costs is None:
            return [int((one >= SURELY).sum()) for one in accepted]
        p = np.sort(np.concatenate(accepted))[::-1]
        tokens = rows + np.append(0.0, np.cumsum(p))
        rate = tokens / (drafting + costs.at(rows + np.arange(len(tokens))))
        best = int(np.argmax(rate))
        return _shared(accepted, p[: best if rate[best] >= MARGIN * rate[0] else 0])

    def _accepted(self, chains: Sequence[TokenTree]) -> list[NDArray[np.float64]]:
        """The probability of each token of the chains."""
        logq = np.full((len(chains), max(one.size for one in chains)), -np.inf, np.float32)
        for row, one in zip(logq, chains):
            row[: one.size] = one.logq
        places = np.tile(np.arange(logq.shape[1], dtype=np.int32), (len(logq), 1))
        p = self.rates.corrected(logq, places - 1, places + 1)
        return [row[: one.size] for row, one in zip(p, chains)]


def _shared(chains: Sequence[NDArray[np.float64]], greatest: NDArray[np.float64]) -> list[int]:
    """How many of each chain's numbers are among the greatest of all; of equal ones, those of the first chains."""
    if not len(greatest):
        return [0] * len(chains)
    least = greatest[-1]
    taken = [int((one > least).sum()) for one in chains]
    left = len(greatest) - sum(taken)
    for row, one in enumerate(chains):
        more = min(int((one == least).sum()), left)
        taken[row] += more
        left -= more
    return taken


def _rounded(tokens: int) -> int:
    """To three significant bits: passes of nearly the same width take nearly the same time."""
    step = 1 << max(0, tokens.bit_length() - 3)
    return (tokens + step // 2) // step * step
