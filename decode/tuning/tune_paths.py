"""Tunes the weights of the p best paths. A trial is a replay of the tuning part of a dump with one set of weights.

Two ways are tried and the better one is kept: one alpha for all slots, from the grid of Kim et al. (appendix E) refined
by golden-section search; and maximum-likelihood weights per slot and model, with a common factor of all alpha chosen by
block efficiency, by hill climbing from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rescore.decode.draft.blended_drafter import blend_rescorer
from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.registry import row_name
from rescore.decode.draft.settings import HEADLESS_KINDS, PathWeights
from rescore.decode.replay.analyses.efficiency import GRID
from rescore.decode.replay.replay import Replay
from rescore.decode.replay.rows import path_replay, tree_replay
from rescore.decode.replay.run import DumpResult, replay_blocks
from rescore.decode.tuning.fit import fit_weights
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.split import SplitPart, chosen_blocks
from rescore.lm.model.ngram import NGram

SIZES = (16, 64)  # node budgets that trees are tuned for
GOLDEN = (math.sqrt(5) - 1) / 2
FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)  # of fitted alpha
STEPS = 4  # of golden-section search


class TrialReplays:
    """Replays of one part of a dump. The part is read once and stays mapped, and its blocks are replayed concurrently.

    paths: p; top_k: candidates per slot (None: all).
    """

    def __init__(
        self,
        dump: Dump,
        models: Sequence[NGram],
        part: SplitPart,
        *,
        paths: int = 16,
        top_k: int | None = None,
        threads: int = 1,
    ):
        self.dump, self.models, self.part, self.paths, self.top_k = dump, tuple(models), part, paths, top_k
        self.threads = threads

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks with a sequence in the part."""
        return tuple(task for task in self.dump.tasks if self.part.sequences(self.dump, task))

    def blocks(self, tasks: Collection[str]) -> list[DumpBlock]:
        return [block for block in self._blocks if block.task in tasks]

    @cached_property
    def _blocks(self) -> list[DumpBlock]:
        return list(chosen_blocks(self.dump, self.tasks, self.part))

    def of_paths(self, weights: PathWeights) -> DumpResult:
        """Replays "rescored" and "parallel-rescored"."""
        budgets = {"rescored": 1, "parallel-rescored": self.paths}
        return self.replay(
            lambda threads: path_replay(weights.rescorer(self.models, threads), budgets, top_k=self.top_k),
            self.tasks,
        )

    def of_trees(self, weights: PathWeights) -> DumpResult:
        """Replays "tree", uncalibrated, with all SIZES."""
        budgets = {row_name("tree", n): n for n in SIZES}
        return self.replay(
            lambda threads: tree_replay(weights.rescorer(self.models, threads), budgets, top_k=self.top_k),
            self.tasks,
        )

    def of_calibration(self, kind: str, calibration: Calibration, tasks: Sequence[str]) -> DumpResult:
        """Replays trees of a kind with all SIZES, named by size, with the one model, or none."""
        model, vocab_size = next(iter(self.models), None), self.dump.header.vocab_size
        return self.replay(
            lambda threads: tree_replay(
                blend_rescorer(vocab_size, model, calibration, threads=threads),
                {str(n): n for n in SIZES},
                heads=kind not in HEADLESS_KINDS,
                top_k=self.top_k,
            ),
            tasks,
        )

    def replay(self, make: Callable[[int], Replay], tasks: Collection[str]) -> DumpResult:
        """Replays the drafter that make(threads) makes."""
        blocks = self.blocks(tasks)
        workers = min(self.threads, len(blocks))
        return replay_blocks(blocks, [make(self.threads // workers)], kind=self.dump.header.kind, workers=workers)


def log_efficiency(result: DumpResult, names: Sequence[str]) -> float:
    """Returns the objective of tuning, ln of block efficiency, averaged over tasks and drafters. The logarithm keeps
    easy tasks from dominating.
    """
    return float(np.mean([math.log(task.tallies[name].block_efficiency) for task in result.tasks for name in names]))


def mean_efficiency(result: DumpResult) -> dict[str, float]:
    """Returns every drafter's block efficiency, averaged over tasks."""
    return {
        name: float(np.mean([task.tallies[name].block_efficiency for task in result.tasks])) for name in result.names
    }


class Trials:
    """Evaluates numbers, each at most once, and keeps their values."""

    def __init__(self, value_of: Callable[[float], float]):
        self._value_of = value_of
        self.values: dict[float, float] = {}

    def __call__(self, number: float) -> float:
        if number not in self.values:
            self.values[number] = self._value_of(number)
        return self.values[number]

    @property
    def best(self) -> float:
        """The number with the greatest value; the smallest on ties."""
        return min(self.values, key=lambda number: (-self.values[number], number))


def refine(trials: Trials, grid: Sequence[float], steps: int) -> float:
    """Golden-section search (Kiefer 1953) between the neighbours of the best number of a sorted grid.

    Returns the best of all trials, not the last one: measures on a dump are neither smooth nor unimodal.
    """
    at = max(range(len(grid)), key=lambda i: trials(grid[i]))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    for _ in range(steps):
        if trials(left) >= trials(right):
            high, right = right, left
            left = high - GOLDEN * (high - low)
        else:
            low, left = left, right
            right = low + GOLDEN * (high - low)
    return trials.best


def climb(trials: Trials, grid: Sequence[float], start: int) -> float:
    """Climbs a sorted grid from grid[start] until neither neighbour is better. Returns the best of all trials."""
    at, before = start, -1
    while at != before:
        before = at
        near = [i for i in (at, at + 1, at - 1) if 0 <= i < len(grid)]
        at = max(near, key=lambda i: trials(grid[i]))
    return trials.best


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarTuning:
    """The result of tuning one alpha for all slots, shared evenly among the models.

    judged      the drafters whose `log_efficiency` is maximised
    best        the best alpha; value: `log_efficiency` at it
    efficiency  for each alpha tried, ascending, block efficiency of all drafters (mean over tasks, tuning part)
    """

    judged: tuple[str, ...]
    best: float
    value: float
    efficiency: dict[float, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTuning:
    """The result of `tune_paths`.

    weights       the better of the two ways
    scalar        one alpha for the p best paths
    scalar_trees  one alpha for uncalibrated trees, for comparison; None with several models
    fitted        `log_efficiency` by the factor of fitted alpha
    """

    weights: PathWeights
    scalar: ScalarTuning
    scalar_trees: ScalarTuning | None
    fitted: dict[float, float]


def tune_paths(replays: TrialReplays, *, advance: Callable[[str], None]) -> PathTuning:
    """Tunes the weights of heads and models for the p best paths. advance: called before each trial."""
    models = len(replays.models)
    scalar = tune_scalar(replays.of_paths, models, ("parallel-rescored",), advance)
    scalar_trees = None
    if models == 1:
        scalar_trees = tune_scalar(replays.of_trees, models, tuple(row_name("tree", n) for n in SIZES), advance)
    advance("fit of the paths' weights")
    head, alpha = fit_weights(
        replays.blocks(replays.tasks), replays.models, top_k=replays.top_k, workers=replays.threads
    )

    def fitted(factor: float) -> PathWeights:
        return PathWeights(head=tuple(head.tolist()), alpha=tuple(map(tuple, (factor * alpha).tolist())))

    def value(factor: float) -> float:
        advance(f"fitted alpha times {factor:g}")
        return log_efficiency(replays.of_paths(fitted(factor)), scalar.judged)

    factors = Trials(value)
    best = climb(factors, FACTORS, FACTORS.index(1.0))
    weights = fitted(best) if factors(best) > scalar.value else PathWeights.scalar(scalar.best, models)
    return PathTuning(
        weights=weights, scalar=scalar, scalar_trees=scalar_trees, fitted=dict(sorted(factors.values.items()))
    )


def tune_scalar(
    replay: Callable[[PathWeights], DumpResult], models: int, judged: tuple[str, ...], advance: Callable[[str], None]
) -> ScalarTuning:
    """Tunes one alpha: the paper's grid, then golden-section search."""
    efficiency = {}

    def value(alpha: float) -> float:
        advance(f"{judged[0]}, alpha {alpha:.3g}")
        result = replay(PathWeights.scalar(alpha, models))
        efficiency[alpha] = mean_efficiency(result)
        return log_efficiency(result, judged)

    trials = Trials(value)
    best = refine(trials, GRID, STEPS)
    return ScalarTuning(judged=judged, best=best, value=trials(best), efficiency=dict(sorted(efficiency.items())))
