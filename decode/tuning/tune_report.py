"""Compares tuned settings with the default ones, on the tuning and the held-out part of a dump."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.settings_parts import BLEND, PathWeights
from rescore.decode.replay import rows
from rescore.decode.replay.bootstrap import Resampled, pair
from rescore.decode.replay.headless import blend
from rescore.decode.replay.names import (
    BLENDED,
    PARALLEL_RESCORED,
    PARALLEL_TUNED,
    RESCORED,
    TREE,
    TUNED_BLEND,
    by_task,
    of_sizes,
    sized,
)
from rescore.decode.replay.oracle import OracleReplay
from rescore.decode.replay.replay import Replay
from rescore.decode.replay.run import BASE, ORACLE, DumpResult, replay_dump
from rescore.decode.tuning.trial_replays import SIZES, TrialReplays, mean_efficiency
from rescore.decode.tuning.tuned_drafters import ROWS, tuned_drafters
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram


def evaluate(
    dump: Dump,
    settings: Settings,
    models: Sequence[NGram],
    part: str,
    *,
    alpha: float,
    threads: int = 1,
    advance: Callable[[int], None] = lambda rows: None,
) -> DumpResult:
    """Replays the part "tune" or "heldout": base, default drafters with one `alpha`, tuned drafters, oracle."""
    k, p = settings.top_k, settings.p
    default = Rescorer(models, alpha=[alpha / len(models)] * len(models), threads=threads)
    drafters: list[Replay] = [
        OracleReplay(widths={BASE: 1}),
        rows.paths(default, {RESCORED: 1, PARALLEL_RESCORED: p}, top_k=k),
        rows.trees(default, of_sizes(TREE, SIZES), top_k=k),
        *tuned_drafters(settings, dump, models=models, sizes=SIZES, threads=threads),
        OracleReplay(widths={ORACLE: k}),
    ]
    return replay_dump(dump, drafters, split=settings.split.part(part), advance=advance)


def evaluate_blend(dump: Dump, settings: Settings, model: NGram | None, part: str, *, threads: int = 1) -> DumpResult:
    """Replays the part "tune" or "heldout" of a dump without heads: the blend with default and with tuned weights."""
    drafters = [
        blend(dump, model, calibration, of_sizes(name, SIZES), threads)
        for name, calibration in ((BLENDED, HEADLESS), (TUNED_BLEND, settings.calibration(BLEND)))
    ]
    return replay_dump(dump, drafters, split=settings.split.part(part))


def tuned_values(replays: TrialReplays, settings: Settings, *, alpha: float) -> dict[str, float]:
    """Returns the block efficiency (mean over tasks) of every drafter of `evaluate` on the tuning part, reusing the
    replays of the search.
    """
    default = PathWeights.scalar(alpha, len(replays.models))
    values = {BASE: mean_efficiency(replays.bounds)[BASE]}
    values |= mean_efficiency(replays.of_paths(default)) | mean_efficiency(replays.of_trees(default))
    assert settings.paths is not None, "settings for a model with heads have weights of paths"
    values[PARALLEL_TUNED] = mean_efficiency(replays.of_paths(settings.paths))[PARALLEL_RESCORED]
    for kind, row in ROWS.items() if settings.trees else ():
        overall = replays.of_calibration(kind, settings.calibration(kind), replays.tasks)
        values |= {sized(row, int(n)): value for n, value in mean_efficiency(overall).items()}
        if settings.trees and settings.trees[kind].by_task:
            tasks = [
                mean_efficiency(replays.of_calibration(kind, settings.calibration(kind, task), [task]))
                for task in replays.tasks
            ]
            values |= {sized(by_task(row), int(n)): float(np.mean([task[n] for task in tasks])) for n in tasks[0]}
    return {**values, ORACLE: mean_efficiency(replays.bounds)[ORACLE]}


def compared(names: Sequence[str]) -> dict[str, str]:
    """Returns {tuned drafter: drafter to compare it with}: the default one or, for weights per task, the tuned drafter
    with common weights.
    """
    default = {PARALLEL_TUNED: PARALLEL_RESCORED}
    for n in SIZES:
        default |= {sized(TUNED_BLEND, n): sized(BLENDED, n)}
        default |= {sized(row, n): sized(TREE, n) for row in ROWS.values()}
        default |= {sized(by_task(row), n): sized(row, n) for row in ROWS.values()}
    return {name: default[name] for name in names if name in default}


def heldout_json(result: DumpResult, seed: int) -> dict[str, Any]:
    """Returns the block efficiency of all drafters on the held-out part, by task and as mean, with intervals, and their
    differences from the drafters in `compared`.
    """
    resampled = Resampled.of(result, seed=seed)
    tasks = [task.task for task in result.tasks]
    rows = {}
    for name in result.names:
        mean = resampled.efficiency(name)
        rows[name] = {
            "tasks": {task: resampled.efficiency(name, task).value for task in tasks},
            "intervals": {task: pair(resampled.efficiency(name, task)) for task in tasks},
            "mean": mean.value,
            "interval": pair(mean),
        }
    for name, against in compared(result.names).items():
        difference = resampled.difference(name, against)
        rows[name]["difference"] = {
            "against": against,
            "value": difference.interval.value,
            "interval": pair(difference.interval),
            "p_value": difference.p_value,
        }
    return {
        "tasks": tasks,
        "drafters": rows,
        "bootstrap": {"seed": seed, "level": resampled.level, "resamples": len(resampled.samples)},
    }
