"""Measures of a replayed dump with intervals, and differences between its drafters: the JSON of `run` and `report`.

Intervals of block efficiency are by the bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993).

Sequences are resampled with replacement within each task, and each resample is measured as a whole: its tokens divided
by its passes. All drafters share the resamples, so differences between them are paired. A mean over tasks resamples
every task. Intervals are percentile intervals (chapter 13). They do not cover what all sequences have in common: the
model, its training, the choice of tasks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.lab.replay.headline import PAIRS
from rescore.decode.lab.replay.run import DumpResult, mean_over_tasks

RESAMPLES = 2000
LEVEL = 0.95
SIGNIFICANT = 0.05
CELLS = 1 << 16  # draws held in memory at once, about 2 MB
MEANS = ("block_efficiency", "headroom_recovered", "verified_per_pass", "accepted_per_verified")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A measured value and its percentile interval; low and high are None for fewer than two sequences."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of two drafters on the same sequences, with the two-sided p-value of no difference (None as in
    `Interval`).

    p is the smallest level at which the percentile interval excludes 0: with m of the R resamples on the rarer side of
    0, p = 2 (m + 1) / (R + 1), at most 1.
    """

    interval: Interval
    p_value: float | None

    @property
    def sign(self) -> int:
        """1 or -1 if the difference is significant, else 0."""
        if self.p_value is None or self.p_value >= SIGNIFICANT:
            return 0
        return 1 if self.interval.value > 0 else -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Figures:
    """The measures of a replay; block efficiencies also in R resamples.

    value    float64 [tasks, drafters], block efficiencies
    samples  float64 [R, tasks, drafters], NaN for tasks of one sequence
    seed, level  of the intervals
    """

    result: DumpResult
    value: NDArray[np.float64]
    samples: NDArray[np.float64]
    seed: int
    level: float

    @classmethod
    def of(cls, result: DumpResult, *, seed: int = 0, resamples: int = RESAMPLES, level: float = LEVEL) -> Figures:
        """Resamples the sequences of a replay. ValueError unless resamples >= 100 and 0 < level < 1."""
        if resamples < 100:
            raise ValueError(f"resamples: expected at least 100, got {resamples}")
        if not 0 < level < 1:
            raise ValueError(f"level: expected a number between 0 and 1, got {level}")
        rng = np.random.default_rng(seed)
        value, samples = [], []
        for task in result.tasks:
            counts = np.column_stack([task.tokens, *task.passes.values()]).astype(np.float64)
            whole, sums = counts.sum(axis=0), resampled_sums(counts, resamples, rng)
            value.append(whole[0] / whole[1:])
            size = len(task.passes)
            samples.append(sums[:, :1] / sums[:, 1:] if len(counts) > 1 else np.full((resamples, size), np.nan))
        return cls(result=result, value=np.array(value), samples=np.stack(samples, axis=1), seed=seed, level=level)

    @property
    def names(self) -> list[str]:
        """The drafters, in the order of the table."""
        return self.result.names

    @property
    def task_names(self) -> list[str]:
        return [task.task for task in self.result.tasks]

    @cached_property
    def overall(self) -> dict[str, Any]:
        """Means of the measures over tasks."""
        means = {measure: mean_over_tasks(self.tasks, measure) for measure in MEANS}
        return {**means, **self._uncertainty()}

    @cached_property
    def tasks(self) -> list[dict[str, Any]]:
        """The measures of each task."""
        return [{**task.to_json(), **self._uncertainty(task.task)} for task in self.result.tasks]

    def at(self, task: str | None) -> dict[str, Any]:
        """The measures of a task, or the means over tasks."""
        return self.overall if task is None else self.tasks[self.task_names.index(task)]

    def efficiency(self, name: str, task: str | None = None) -> Interval:
        """Returns a drafter's block efficiency on a task, or its mean over tasks."""
        at = self._name(name)
        return self._interval(self.value[:, at], self.samples[..., at], task)

    def difference(self, name: str, against: str, task: str | None = None) -> Difference:
        """Returns the block efficiency of `name` minus that of `against`, on a task or as the mean over tasks."""
        one, other = self._name(name), self._name(against)
        samples = self.samples[..., one] - self.samples[..., other]
        interval = self._interval(self.value[:, one] - self.value[:, other], samples, task)
        drawn = self._of(samples, task)
        p = None if np.isnan(drawn).any() else p_value(drawn)
        return Difference(interval=interval, p_value=p)

    def differences(self, task: str | None = None) -> dict[tuple[str, str], Difference]:
        """Those of the PAIRS that were replayed."""
        pairs = (pair for pair in PAIRS if {*pair} <= {*self.names})
        return {pair: self.difference(*pair, task) for pair in pairs}

    def headroom(self, name: str, task: str | None = None) -> Interval | None:
        """Returns headroom recovered on a task, or its mean over the tasks with headroom; None if there is none."""
        at, base, oracle = self._name(name), self._name("base"), self._name("oracle")
        room = self.value[:, oracle] - self.value[:, base]
        has = room > 0 if task is None else (room > 0) & (np.array(self.task_names) == task)
        if not has.any():
            return None

        def recovered(values: NDArray[np.float64]) -> NDArray[np.float64]:
            """NaN in a resample without headroom, which leaves the share undefined."""
            room = values[..., oracle] - values[..., base]
            return np.divide(values[..., at] - values[..., base], room, out=np.full_like(room, np.nan), where=room > 0)

        return self._interval(recovered(self.value[has]), recovered(self.samples[:, has]), None)

    def _uncertainty(self, task: str | None = None) -> dict[str, Any]:
        """Intervals of every drafter, of headroom with base and oracle present, and differences of replayed pairs."""
        ends = {"block_efficiency": {name: pair(self.efficiency(name, task)) for name in self.names}}
        if {"base", "oracle"} <= {*self.names}:
            recovering = (name for name in self.names if name not in ("base", "oracle"))
            ends["headroom_recovered"] = {name: pair(self.headroom(name, task)) for name in recovering}
        differences = [
            {"drafter": name, "against": against, **asdict(one.interval), "p_value": one.p_value}
            for (name, against), one in self.differences(task).items()
        ]
        return {"interval": ends, "differences": differences}

    @property
    def bootstrap(self) -> dict[str, Any]:
        return {"level": self.level, "resamples": len(self.samples), "seed": self.seed}

    def to_json(self) -> dict[str, Any]:
        return {"overall": self.overall, "tasks": self.tasks, "bootstrap": self.bootstrap}

    def _name(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"drafter: expected one of {', '.join(self.names)}, got {name!r}")
        return self.names.index(name)

    def _of(self, values: NDArray[np.float64], task: str | None) -> NDArray[np.float64]:
        """Selects a task's values from [.., tasks], or averages over tasks."""
        if task is not None and task not in self.task_names:
            raise ValueError(f"task: expected one of {', '.join(self.task_names)}, got {task!r}")
        return values.mean(axis=-1) if task is None else values[..., self.task_names.index(task)]

    def _interval(self, value: NDArray[np.float64], samples: NDArray[np.float64], task: str | None) -> Interval:
        drawn = self._of(samples, task)
        if np.isnan(drawn).all():
            return Interval(value=float(self._of(value, task)), low=None, high=None)
        low, high = np.nanquantile(drawn, [(1 - self.level) / 2, (1 + self.level) / 2])
        return Interval(value=float(self._of(value, task)), low=float(low), high=float(high))


def pair(interval: Interval | None) -> list[float | None] | None:
    """Returns [low, high] for a report."""
    return None if interval is None else [interval.low, interval.high]


def resampled_sums(counts: NDArray[np.float64], resamples: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns column sums [resamples, C] over S rows drawn with replacement from counts [S, C], once per resample."""
    rows = len(counts)
    sums = np.empty((resamples, counts.shape[1]))
    step = max(1, CELLS // rows)
    for first in range(0, resamples, step):
        size = min(step, resamples - first)
        drawn = rng.integers(0, rows, (size, rows)) + rows * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * rows).reshape(size, rows)
        sums[first : first + size] = times.astype(np.float64) @ counts
    return sums


def p_value(differences: NDArray[np.float64]) -> float:
    """Returns the two-sided p-value of resampled differences [R]; see `Difference`."""
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (rarer + 1) / (len(differences) + 1))
