"""Compares tuned settings with the default ones, on the tuning and the held-out part of a dump."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.registry import sized, split
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.replay.figures import Resampled, pair
from rescore.decode.replay.recorded import fitted_models
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.replay.run import DumpResult, replay_dump
from rescore.decode.tuning.trial_replays import SIZES
from rescore.lattice.dump import Dump
from rescore.lm.model.ngram import NGram

COMPARED = ("base", "rescored", "parallel-rescored", "tree", "blend-without-heads", "blend")


def evaluate(
    dump: Dump,
    settings: Settings,
    models: Sequence[NGram],
    part: str,
    *,
    alpha: float = DEFAULT_ALPHA,
    threads: int = 1,
    advance: Callable[[int], None] = lambda rows: None,
) -> DumpResult:
    """Replays the part "tune" or "heldout": base, drafters with default weights (one `alpha`) and with tuned ones, the
    oracle.
    """
    weights = [alpha / len(models)] * len(models) if models else None
    sources = RecordedSources(dump, Rescorer(models, alpha=weights, threads=threads), tuned=fitted_models(dump, models))
    budgets = Budgets(nodes=SIZES, p=settings.p or 1, top_k=settings.top_k or None)
    drafters = rows_of(sources, budgets, only=COMPARED, settings=settings)
    return replay_dump(dump, drafters, split=settings.split.part(part), advance=advance)


def compared(name: str) -> str | None:
    """The drafter to compare a tuned one with: the default one or, for weights per task, the tuned one."""
    stem, budget = split(name)
    for variant, other in ((" tuned by task", " tuned"), (" tuned", "")):
        if stem.endswith(variant):
            return sized(stem.removesuffix(variant) + other, budget)
    return None


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
        if against := compared(name):
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
