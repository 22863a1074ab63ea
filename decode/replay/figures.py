"""Measures of a replayed dump with intervals, and differences between its drafters: the JSON of `run` and `report`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rescore.decode.draft.names import (
    BASE,
    BLEND,
    BY_TASK,
    EAGLE_TREE,
    HEADS_TREE,
    LM_ALONE,
    MEDUSA_TREE,
    NEURAL,
    NEURAL_BEAM,
    PARALLEL_BASE,
    PARALLEL_RESCORED,
    PROMPT_LOOKUP,
    PUSHED_TREE,
    RECYCLING,
    RESCORED,
    SUFFIX_DECODING,
    TREE,
    TUNED,
    TUNED_BLEND,
    TUNED_TREE,
    WITH_MEMORY,
    WITHOUT_HEADS,
    WITHOUT_LM,
    sized,
)
from rescore.decode.replay.bootstrap import Resampled
from rescore.decode.replay.run import DumpResult, mean_over_tasks

EQUAL = (16, 64)  # nodes at which drafters are compared first
MEANS = ("block_efficiency", "headroom_recovered", "verified_per_pass", "accepted_per_verified")
# What drafters are compared with: each with the same number of nodes, and whole drafts.
AGAINST = {
    TREE: (HEADS_TREE, LM_ALONE, MEDUSA_TREE, EAGLE_TREE, PUSHED_TREE),
    TUNED_TREE: (TREE,),
    BLEND: (TREE, HEADS_TREE, WITHOUT_HEADS, WITHOUT_LM, LM_ALONE, SUFFIX_DECODING, RECYCLING),
    TUNED_BLEND: (BLEND, TUNED_TREE, WITHOUT_HEADS + TUNED, WITHOUT_LM + TUNED),
    BLEND + BY_TASK: (TREE + BY_TASK, WITHOUT_HEADS + BY_TASK),
    BLEND + WITH_MEMORY: (BLEND,),
}
PAIRS = (
    (RESCORED, BASE),
    (PARALLEL_RESCORED, PARALLEL_BASE),
    (PARALLEL_RESCORED + TUNED, PARALLEL_RESCORED),
    (sized(TREE, 16), PARALLEL_RESCORED),
    (NEURAL, BASE),
    (NEURAL, RESCORED),
    (NEURAL_BEAM, NEURAL),
    (NEURAL_BEAM, PARALLEL_RESCORED),
    *((sized(name, 16), other) for name in (BLEND, BLEND + WITH_MEMORY) for other in (PROMPT_LOOKUP, RECYCLING)),
    *((sized(name, n), sized(other, n)) for name, others in AGAINST.items() for other in others for n in (16, 32, 64)),
)


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
    differences, names = [], {*resampled.names}
    for name, against in (pair for pair in PAIRS if {*pair} <= names):
        difference = resampled.difference(name, against, task)
        differences.append(
            {"drafter": name, "against": against, **asdict(difference.interval), "p_value": difference.p_value}
        )
    return {"interval": resampled.to_json(task), "differences": differences}
