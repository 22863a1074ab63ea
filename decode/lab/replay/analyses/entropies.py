"""Entropies of the heads and their relation to block efficiency (Kim et al., section 5.2, figures 2 and 3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.lab.replay.replay import OracleReplay
from rescore.decode.lab.replay.run import replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import SplitPart

BINS = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskEntropies:
    """Entropies in nats of the heads' distributions over all V tokens, at all rows of a task.

    density  float64 [h, BINS], histograms with integral 1 over 0..ln V (figure 2)
    mean     float64 [h]
    h_max    the last head, from 1, up to which the mean never falls: max { k : for all i < k, mean_i <= mean_{i+1} }
    block_efficiency  of the base draft
    """

    task: str
    density: NDArray[np.float64]
    mean: NDArray[np.float64]
    h_max: int
    block_efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Least squares y = intercept + slope x over the tasks, and Pearson's r (figure 3)."""

    slope: float
    intercept: float
    r: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entropies:
    """Entropies of all tasks.

    edges       float64 [BINS + 1], of the histograms
    regression  the base draft's block efficiency on h_max; None if undefined
    """

    edges: NDArray[np.float64]
    tasks: tuple[TaskEntropies, ...]
    regression: Regression | None


def entropies(
    dump: Dump,
    *,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Entropies:
    """Returns each task's histograms and means of the heads' entropies and h_max, and the regression over tasks."""
    edges = np.linspace(0, max(np.log(dump.header.vocab_size), 1e-3), BINS + 1)
    counts: dict[str, NDArray[np.int64]] = {}
    sums: dict[str, NDArray[np.float64]] = {}

    def add(block: Any, outcomes: Any) -> None:
        if block.entropy is None:
            raise ValueError(f"{dump.path}: expected entropies of the heads, got a dump without; make it from logits")
        values = block.entropy.astype(np.float64)
        # Rounding may put a value slightly above ln V.
        found = [np.histogram(np.minimum(column, edges[-1]), edges)[0] for column in values.T]
        counts[block.task] = counts.get(block.task, 0) + np.array(found)
        sums[block.task] = sums.get(block.task, 0) + values.sum(axis=0)

    base = OracleReplay(widths={"base": 1})
    result = replay_dump(dump, [base], tasks=tasks, split=split, advance=advance, listeners=[add])
    out = []
    for task in result.tasks:
        rows = int(task.tokens.sum())
        mean = sums[task.task] / rows
        out.append(
            TaskEntropies(
                task=task.task,
                density=counts[task.task] / (rows * (edges[1] - edges[0])),
                mean=mean,
                h_max=h_max(mean),
                block_efficiency=task.tallies["base"].block_efficiency,
            )
        )
    return Entropies(
        edges=edges,
        tasks=tuple(out),
        regression=regression([one.h_max for one in out], [one.block_efficiency for one in out]),
    )


def h_max(mean: NDArray[np.float64]) -> int:
    """Returns the last head, from 1, up to which the mean entropies [h] never fall."""
    falls = np.diff(mean) < 0
    return int(falls.argmax()) + 1 if falls.any() else len(mean)


def regression(x: Sequence[float], y: Sequence[float]) -> Regression | None:
    """Fits y on x; None unless both have at least two distinct values."""
    if len(set(x)) < 2 or len(set(y)) < 2:
        return None
    slope, intercept = np.polyfit(x, y, 1).tolist()
    return Regression(slope=slope, intercept=intercept, r=float(np.corrcoef(x, y)[0, 1]))
