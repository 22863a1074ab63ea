"""Choosing the weights of the p best paths on the tuning part of a dump.

Two ways are tried and the better is kept: one alpha for all slots, from the grid of Kim et al. (appendix E) and a
golden-section search around its best; and weights of every slot and model fitted to the truth's likelihood, with a
common factor of all alpha chosen by block efficiency, uphill from 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rescore.decode.replay.analyses.weights import GRID
from rescore.decode.replay.drafters.paths import PathReplay
from rescore.decode.replay.drafters.trees import TreeReplay
from rescore.decode.replay.run import DumpResult, replay_dump
from rescore.decode.replay.split import SplitPart, chosen_blocks
from rescore.decode.replay.worth import ReplayDrafter
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.tuning.fit import fit_weights
from rescore.decode.tuning.line_search import Trials, climb, refine
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)  # of fitted alpha
STEPS = 4  # of golden-section search
SIZES = (16, 64)  # nodes that trees are tuned for
SCALAR, FITTED = "scalar", "fitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathWeights:
    """head [1] or [T]; alpha of each of J models, [1] or [T]. `way`: "scalar" or "fitted", how they were found."""

    head: tuple[float, ...]
    alpha: tuple[tuple[float, ...], ...]
    way: str = FITTED

    def to_json(self) -> dict[str, Any]:
        return {"way": self.way, "head": list(self.head), "alpha": list(map(list, self.alpha))}

    def rescorer(self, models: Sequence[NGram], threads: int = 1) -> Rescorer:
        return Rescorer(models, alpha=np.array(self.alpha, np.float64), head=np.array(self.head), threads=threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarTuning:
    """One alpha for all slots, shared evenly among the models. best: for the names of `judged`; value: their
    `log_efficiency` there.

    efficiency: for each alpha tried, ascending, block efficiency of all names (mean of tasks, tuning part).
    """

    judged: tuple[str, ...]
    best: float
    value: float
    efficiency: dict[float, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTuning:
    """scalar: of the p best paths; scalar_trees: of uncalibrated trees, for comparison. fitted: factor of alpha to the
    value of `log_efficiency`.
    """

    weights: PathWeights
    scalar: ScalarTuning
    scalar_trees: ScalarTuning
    fitted: dict[float, float]


def log_efficiency(result: DumpResult, names: Sequence[str]) -> float:
    """What tuning maximises: ln of block efficiency, mean over tasks and drafters, so that no easy task outweighs the
    others.
    """
    return float(np.mean([math.log(task.tallies[name].block_efficiency) for task in result.tasks for name in names]))


def tune_paths(
    dump: Dump,
    models: Sequence[NGram],
    part: SplitPart,
    *,
    paths: int = 16,
    top_k: int | None = None,
    threads: int = 1,
    advance: Callable[[str], None],
) -> PathTuning:
    """The weights of the models for the p best paths. advance: told of every trial before it is made."""

    def of_paths(rescorer: Rescorer) -> ReplayDrafter:
        return PathReplay(rescorer=rescorer, budgets={"rescored": 1, "parallel_rescored": paths}, top_k=top_k)

    def of_trees(rescorer: Rescorer) -> ReplayDrafter:
        return TreeReplay(rescorer=rescorer, budgets={f"tree_{n}": n for n in SIZES}, top_k=top_k)

    scalar = tune_scalar(dump, models, part, of_paths, ("parallel_rescored",), threads, advance)
    scalar_trees = tune_scalar(dump, models, part, of_trees, tuple(f"tree_{n}" for n in SIZES), threads, advance)
    advance("fit of the paths' weights")
    tasks = [task for task in dump.tasks if part.sequences(dump, task)]
    head, alpha = fit_weights(chosen_blocks(dump, tasks, part), models, top_k=top_k)

    def fitted(factor: float) -> PathWeights:
        return PathWeights(head=tuple(head.tolist()), alpha=tuple(map(tuple, (factor * alpha).tolist())))

    def value(factor: float) -> float:
        advance(f"fitted alpha times {factor:g}")
        return log_efficiency(
            replay_dump(dump, [of_paths(fitted(factor).rescorer(models, threads))], split=part), scalar.judged
        )

    factors = Trials(value)
    best = climb(factors, FACTORS, FACTORS.index(1.0))
    weights = fitted(best) if factors(best) > scalar.value else scalar_weights(scalar.best, len(models))
    return PathTuning(
        weights=weights, scalar=scalar, scalar_trees=scalar_trees, fitted=dict(sorted(factors.values.items()))
    )


def scalar_weights(alpha: float, models: int) -> PathWeights:
    return PathWeights(head=(1.0,), alpha=((alpha / models,),) * models, way=SCALAR)


def tune_scalar(
    dump: Dump,
    models: Sequence[NGram],
    part: SplitPart,
    make: Callable[[Rescorer], ReplayDrafter],
    judged: tuple[str, ...],
    threads: int,
    advance: Callable[[str], None],
) -> ScalarTuning:
    """The paper's grid, then golden-section search, for what `make` drafts."""
    efficiency = {}

    def value(alpha: float) -> float:
        advance(f"{judged[0]}, alpha {alpha:.3g}")
        result = replay_dump(dump, [make(scalar_weights(alpha, len(models)).rescorer(models, threads))], split=part)
        efficiency[alpha] = {
            name: float(np.mean([task.tallies[name].block_efficiency for task in result.tasks]))
            for name in result.names
        }
        return log_efficiency(result, judged)

    trials = Trials(value)
    best = refine(trials, GRID, STEPS)
    return ScalarTuning(judged=judged, best=best, value=trials(best), efficiency=dict(sorted(efficiency.items())))
