"""The measures of a replay (docs/reference/measures.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rescore.decode.lab.replay.table import Lines
from rescore.lattice.short_repr import short_repr

SLOTS, LENGTHS = 32, 48  # counted slots of drafts, and powers of two of lengths of texts


@dataclass(slots=True, kw_only=True, eq=False)
class Tally:
    """Counts of one drafter on one task: per sequence where resampling needs it, otherwise totals.

    Memory grows with the dump through these arrays only, so they are int32.

    tokens    int32 [S], tokens of each sequence
    passes    int32 [S], target passes: the prompt's, and one per row visited
    accepted  draft tokens accepted
    verified  draft tokens verified
    timed     drafts that were timed, and their seconds
    by_slot   int64 [3, SLOTS], of slot t + 1 in column t: drafts whose true continuation has a token there, those
              accepted up to it, and those accepted up to the slot before it, so that it is tested
    by_length  int64 [2, LENGTHS], passes that verify a draft and the tokens they yield; column b is of passes after
               2^b to 2^(b + 1) - 1 generated tokens
    """

    tokens: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    passes: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    accepted: int = 0
    verified: int = 0
    timed: int = 0
    seconds: float = 0.0
    by_slot: NDArray[np.int64] = field(default_factory=lambda: np.zeros((3, SLOTS), np.int64))
    by_length: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, LENGTHS), np.int64))

    __repr__ = short_repr

    def add(self, lines: Lines) -> None:
        """Counts the passes that decoding makes, of the sequences of a block."""
        made, sequence = lines.visited, lines.sequence - lines.sequence[:1]
        timed = np.isfinite(lines.seconds)
        tokens = np.bincount(sequence[made], weights=lines.tokens[made]).astype(np.int32)
        drafts = made & (lines.position >= 0)
        left = tokens[sequence[drafts]] - 1 - lines.position[drafts]
        self.tokens = np.append(self.tokens, tokens)
        self.passes = np.append(self.passes, np.bincount(sequence[made]).astype(np.int32))
        self.accepted += int(lines.accepted[made].sum(dtype=np.int64))
        self.verified += int(lines.drafted[made].sum(dtype=np.int64))
        self.timed += int(timed.sum())
        self.seconds += float(lines.seconds[timed].sum(dtype=np.float64))
        self.by_slot = self.by_slot + _by_slot(lines.accepted[drafts], left)
        self.by_length = self.by_length + _by_length(lines.position[drafts] + 1, lines.tokens[drafts])

    @property
    def steps(self) -> int:
        """Passes that verify a draft: all except the prompts' passes."""
        return int(self.passes.sum(dtype=np.int64)) - len(self.passes)

    @property
    def block_efficiency(self) -> float:
        """Generated tokens per target pass, between 1 and h."""
        return int(self.tokens.sum(dtype=np.int64)) / int(self.passes.sum(dtype=np.int64))

    @property
    def verified_per_pass(self) -> float:
        """Draft tokens verified per pass that verifies a draft."""
        return self.verified / max(self.steps, 1)

    @property
    def accepted_per_verified(self) -> float:
        """Draft tokens accepted per draft token verified."""
        return self.accepted / max(self.verified, 1)

    @property
    def acceptance_length(self) -> float:
        """1 + accepted / drafts, as serving engines print it."""
        return 1 + self.accepted / max(self.steps, 1)


def _by_slot(accepted: NDArray[np.int32], left: NDArray[np.int32]) -> NDArray[np.int64]:
    """`Tally.by_slot` of accepted lengths and of the tokens that the text still has, [n] each."""
    lengths, whole = (np.bincount(np.minimum(of, SLOTS), minlength=SLOTS + 1) for of in (accepted, left))
    ended = np.bincount(np.minimum(accepted[accepted == left], SLOTS), minlength=SLOTS + 1)
    at_least = lengths[::-1].cumsum()[::-1]
    return np.stack((whole[::-1].cumsum()[::-1][1:], at_least[1:], (at_least - ended)[:-1]))


def _by_length(before: NDArray[np.int32], tokens: NDArray[np.int32]) -> NDArray[np.int64]:
    """`Tally.by_length` of the tokens before passes and those they yield, [n] each."""
    place = np.frexp(before)[1] - 1
    counts = [np.bincount(place, weights=weights, minlength=LENGTHS) for weights in (None, tokens)]
    return np.array(counts).astype(np.int64)


def headroom_recovered(value: float, base: float, oracle: float) -> float | None:
    """Returns (B - B_base) / (B_oracle - B_base); None if the oracle leaves no headroom."""
    return (value - base) / (oracle - base) if oracle > base else None


@dataclass(slots=True)
class Repetition:
    """Repetition in drafts, summed over blocks (table 3 of Kim et al.)."""

    neighbours: int = 0
    equal: int = 0
    drafts: int = 0
    runs: int = 0

    def add(self, drafts: NDArray[np.int32]) -> None:
        """Adds drafts [n, T], padding -1."""
        if not drafts.size:
            return
        inside = drafts[:, 1:] >= 0
        equal = (drafts[:, 1:] == drafts[:, :-1]) & inside
        self.neighbours += int(inside.sum())
        self.equal += int(equal.sum())
        self.drafts += len(drafts)
        self.runs += int(longest_runs(drafts).sum())

    @property
    def consecutive(self) -> float:
        """Share of neighbouring draft tokens that are equal."""
        return self.equal / max(self.neighbours, 1)

    @property
    def max_run(self) -> float:
        """Mean length of the longest run of one token in a draft."""
        return self.runs / max(self.drafts, 1)


def longest_runs(drafts: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the length of the longest run of equal tokens in each draft [n, T] (padding -1), int32 [n]."""
    run = (drafts[:, 0] >= 0).astype(np.int32)
    best = run
    for t in range(1, drafts.shape[1]):
        run = np.where(drafts[:, t] < 0, 0, np.where(drafts[:, t] == drafts[:, t - 1], run + 1, 1)).astype(np.int32)
        best = np.maximum(best, run)
    return best


@dataclass(slots=True)
class Duel:
    """Counts steps at which the rescored draft wins, ties or loses against the base draft, by accepted length (table 5
    of Kim et al.).

    repairs: wins that remove a repetition; regressions: losses that introduce one.
    """

    wins: int = 0
    ties: int = 0
    losses: int = 0
    repairs: int = 0
    regressions: int = 0

    def add(
        self,
        base: NDArray[np.int32],
        rescored: NDArray[np.int32],
        base_drafts: NDArray[np.int32],
        rescored_drafts: NDArray[np.int32],
    ) -> None:
        """Adds the accepted lengths [n] and drafts [n, T] of the steps of one replay."""
        won, lost = rescored > base, rescored < base
        before, after = longest_runs(base_drafts) > 1, longest_runs(rescored_drafts) > 1
        self.wins += int(won.sum())
        self.losses += int(lost.sum())
        self.ties += int((~won & ~lost).sum())
        self.repairs += int((won & before & ~after).sum())
        self.regressions += int((lost & ~before & after).sum())
