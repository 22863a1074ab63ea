"""Chooses chain lengths: the expected accepted tokens under q against pass times, measured from outside the engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.pace import Pace
from rescore.lattice.tree import TokenTree

MARGIN = 1.02  # a draft must promise this many times the tokens per second of plain decoding
LEAST = 0.01  # a drafted token with a smaller acceptance probability is never verified


class FixedCost:
    """Chain lengths when a drafted token costs a fixed share of a token decoded without drafts.

    Its methods are called in the order below, call by call.
    """

    def __init__(self, cost: float):
        self._cost = max(cost, LEAST)

    def rests(self) -> bool:
        """Returns whether this call is skipped: it drafts nothing and learns nothing."""
        return False

    def begin(self, one_pass: bool) -> None:
        """Begins a call. one_pass: since the last call, exactly one pass ran, over that call's drafts."""

    def note(self, chains: Sequence[TokenTree], accepted: Sequence[int]) -> None:
        """Records how many tokens of each of the last call's chains were accepted."""

    def least(self, rows: int, most: int) -> float:
        """Returns the q below which no token of a chain of at most `most` tokens pays; at least `LEAST`."""
        return self._cost

    def lengths(self, chains: Sequence[TokenTree], drafting: float) -> list[int]:
        """Returns how many tokens of each chain to verify. drafting: seconds spent in this call so far."""
        return [one.size for one in chains]

    def end(self, tokens: int, rows: int) -> None:
        """Ends a call; the next pass reads `tokens` tokens in `rows` rows."""


class ChainPace(FixedCost):
    """Chain lengths that maximise tokens per second, from measured pass times and observed acceptance."""

    def __init__(self) -> None:
        self.pace = Pace()

    def rests(self) -> bool:
        """Where drafted tokens are expensive most drafts would be empty, and resting saves their search."""
        return self.pace.rests()

    def begin(self, one_pass: bool) -> None:
        self.pace.begin(one_pass)

    def note(self, chains: Sequence[TokenTree], accepted: Sequence[int]) -> None:
        self.pace.rates.note(chains, [range(many) for many in accepted])

    def end(self, tokens: int, rows: int) -> None:
        self.pace.end(_rounded(tokens))

    def least(self, rows: int, most: int) -> float:
        seconds = self.pace.costs(rows).at(np.arange(rows, rows * (1 + most) + 2))
        return float(np.clip(np.diff(seconds).min() / seconds[0] * rows, LEAST, 1.0))

    def lengths(self, chains: Sequence[TokenTree], drafting: float) -> list[int]:
        rows, accepted = len(chains), self._accepted(chains)
        p = np.concatenate(accepted)
        order = np.argsort(-p, kind="stable")  # the tokens most likely to be accepted first, whatever their chain
        gained = rows + np.append(0.0, np.cumsum(p[order]))
        seconds = self.pace.costs(rows).at(rows + np.arange(len(gained)))
        best = self.pace.best(gained, seconds, rows, drafting, MARGIN)
        chain = np.repeat(np.arange(rows), [len(one) for one in accepted])
        return np.bincount(chain[order[:best]], minlength=rows).tolist()

    def _accepted(self, chains: Sequence[TokenTree]) -> list[NDArray[np.float64]]:
        """Returns the acceptance probability of each token of each chain."""
        logq = np.full((len(chains), max(one.size for one in chains)), -np.inf, np.float32)
        for row, one in zip(logq, chains):
            row[: one.size] = one.logq
        places = np.tile(np.arange(logq.shape[1], dtype=np.int32), (len(logq), 1))
        p = self.pace.rates.corrected(logq, places - 1)
        return [row[: one.size] for row, one in zip(p, chains)]


def _rounded(tokens: int) -> int:
    """Rounds to three significant bits: passes of similar widths take similar times."""
    step = 1 << max(0, tokens.bit_length() - 3)
    return (tokens + step // 2) // step * step
