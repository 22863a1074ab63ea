"""Block efficiencies of a replayed dump with intervals, in the format of the JSON of `rescore run`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rescore.decode.replay import headless
from rescore.decode.replay.bootstrap import Resampled
from rescore.decode.replay.names import (
    BASE,
    CALIBRATED_TREE,
    EAGLE_TREE,
    HEADS_TREE,
    LM_ALONE,
    LM_AND_TEXT,
    MEDUSA_TREE,
    NEURAL,
    NEURAL_BEAM,
    OPEN_TREE,
    PARALLEL_BASE,
    PARALLEL_RESCORED,
    PUSHED_TREE,
    RESCORED,
    TREE,
    sized,
    split,
)
from rescore.decode.replay.run import DumpResult, mean_over_tasks

EQUAL = (16, 64)  # nodes at which drafters are compared
BASELINES = (MEDUSA_TREE, EAGLE_TREE, PUSHED_TREE)  # other methods for trees
MEANS = ("block_efficiency", "headroom_recovered", "verified_per_pass", "accepted_per_verified")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """overall: means over tasks; tasks: the figures of each task; seed, resamples, level: of the intervals."""

    overall: dict[str, Any]
    tasks: tuple[dict[str, Any], ...]
    seed: int
    resamples: int
    level: float

    @classmethod
    def of(cls, result: DumpResult, *, seed: int) -> Figures:
        resampled = Resampled.of(result, seed=seed)
        tasks = tuple({**task.to_json(), **uncertainty(resampled, task.task)} for task in result.tasks)
        overall = {measure: mean_over_tasks(tasks, measure) for measure in MEANS}
        return cls(
            overall={**overall, **uncertainty(resampled)},
            tasks=tasks,
            seed=seed,
            resamples=len(resampled.samples),
            level=resampled.level,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "overall": self.overall,
            "tasks": list(self.tasks),
            "bootstrap": {"level": self.level, "resamples": self.resamples, "seed": self.seed},
        }


def uncertainty(resampled: Resampled, task: str | None = None) -> dict[str, Any]:
    """Intervals of every drafter, and differences of replayed pairs, for a task or for the mean over tasks."""
    differences = []
    for name, against in compared(resampled.names):
        difference = resampled.difference(name, against, task)
        differences.append(
            {"drafter": name, "against": against, **asdict(difference.interval), "p_value": difference.p_value}
        )
    return {"interval": resampled.to_json(task), "differences": differences}


def compared(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs of drafters to compare: heads with and without model, and model with and without heads, at equal budgets;
    trees and paths; without heads, the blend and other drafters or the blend without a source.
    """
    pairs = [(RESCORED, BASE), (PARALLEL_RESCORED, PARALLEL_BASE), (sized(TREE, 16), PARALLEL_RESCORED)]
    sizes = [n for stem, n in map(split, names) if stem == TREE and n is not None]
    pairs += [(sized(TREE, n), sized(other, n)) for other in (HEADS_TREE, LM_ALONE) for n in sizes]
    pairs += [(sized(TREE, n), sized(other, n)) for other in BASELINES for n in EQUAL]
    pairs += [
        (NEURAL, BASE),
        (NEURAL, RESCORED),
        (NEURAL_BEAM, NEURAL),
        (NEURAL_BEAM, PARALLEL_RESCORED),
    ]
    pairs += [
        (sized(OPEN_TREE, n), sized(other, n))
        for other in (CALIBRATED_TREE, TREE, LM_AND_TEXT, LM_ALONE)
        for n in EQUAL
    ]
    pairs += [(sized(CALIBRATED_TREE, n), sized(TREE, n)) for n in EQUAL]
    pairs += [*headless.COMPARED, *headless.COMPARED_TUNED]
    return [pair for pair in pairs if set(pair) <= set(names)]
