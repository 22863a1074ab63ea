"""Block efficiencies of a replayed dump with their intervals, in the form of the JSON of `rescore run`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rescore.decode.replay.bootstrap import Resampled
from rescore.decode.replay.drafters import headless
from rescore.decode.replay.run import DumpResult, mean_over_tasks

EQUAL = (16, 64)  # nodes at which drafters are compared
BASELINES = ("static", "dynamic", "pushed")  # other ways to make trees
MEANS = ("block_efficiency", "headroom_recovered", "verified_per_pass", "accepted_per_verified")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """overall: means over the tasks; tasks: each task's own; seed and resamples: of the intervals."""

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


def uncertainty(resampled: Resampled, task: str | None = None) -> dict[str, Any]:
    """Intervals of every drafter, and differences of the pairs that were replayed, of a task or of the mean
    over tasks.
    """
    differences = []
    for name, against in compared(resampled.names):
        difference = resampled.difference(name, against, task)
        differences.append(
            {"drafter": name, "against": against, **asdict(difference.interval), "p_value": difference.p_value}
        )
    return {"interval": resampled.to_json(task), "differences": differences}


def compared(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """What the models add to the heads and the heads to the model, at equal budgets, and trees against paths; without
    heads, the blend against others and against itself without one source.
    """
    pairs = [("rescored", "base"), ("parallel_rescored", "parallel_base"), ("tree_16", "parallel_rescored")]
    budgets = [name.removeprefix("tree_") for name in names if name.removeprefix("tree_").isdigit()]
    pairs += [(f"tree_{n}", f"{other}_{n}") for other in ("tree_base", "lm_alone") for n in budgets]
    pairs += [(f"tree_{n}", f"{other}_{n}") for other in BASELINES for n in EQUAL]
    pairs += [
        ("neural", "base"),
        ("neural", "rescored"),
        ("neural_beam", "neural"),
        ("neural_beam", "parallel_rescored"),
    ]
    pairs += [(f"open_{n}", f"{other}_{n}") for other in ("tuned", "tree", "lm_text", "lm_alone") for n in EQUAL]
    pairs += [(f"tuned_{n}", f"tree_{n}") for n in EQUAL]
    pairs += [*headless.COMPARED, *headless.COMPARED_TUNED]
    return [pair for pair in pairs if set(pair) <= set(names)]
