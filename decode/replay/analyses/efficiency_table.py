"""Block efficiencies of several settings side by side: the form of tables 4, 7, 9, 10 and figures 6, 7 of Kim et al."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rescore.decode.replay.figures import Resampled, pair
from rescore.decode.replay.run import DumpResult


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EfficiencyTable:
    """A table of block efficiencies.

    cites  the table or figure of the paper
    rows   facts printed beside each drafter, such as {"k": 4, "heads": 9}
    """

    cites: str
    rows: Mapping[str, Mapping[str, Any]]
    result: DumpResult

    def efficiency(self, name: str) -> dict[str, float]:
        """Returns a drafter's block efficiency on each task."""
        return {task.task: task.tallies[name].block_efficiency for task in self.result.tasks}

    def to_json(self, seed: int = 0) -> dict[str, Any]:
        """Returns rows with block efficiency per task and as mean over tasks, each with its interval [low, high]."""
        resampled = Resampled.of(self.result, seed=seed)
        tasks = [task.task for task in self.result.tasks]
        rows = []
        for name, facts in self.rows.items():
            verified = sum(task.tallies[name].verified_per_pass for task in self.result.tasks) / len(tasks)
            rows.append(
                {
                    "name": name,
                    **facts,
                    "verified_per_pass": verified,
                    "block_efficiency": self.efficiency(name),
                    "interval": {task: pair(resampled.efficiency(name, task)) for task in tasks},
                    "mean": resampled.efficiency(name).value,
                    "mean_interval": pair(resampled.efficiency(name)),
                }
            )
        return {"cites": self.cites, "tasks": tasks, "rows": rows}
