"""The best language model weight of each task, tuned on one part and reported on the rest (Kim et al., table 8)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay import rows as replays
from rescore.decode.replay.figures import Difference, Resampled, pair
from rescore.decode.replay.replay import OracleReplay, Replay
from rescore.decode.replay.run import replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram

GRID = (0.1, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 5.0, 10.0)  # appendix E

# Makes the drafter with the given name and weight.
MakeDrafter = Callable[[str, float], Replay]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWeight:
    """The weight of one task.

    tuned    block efficiency on the tuning part at every weight of the grid
    best     the weight with the greatest; the smallest on ties
    heldout  block efficiency at that weight on the held-out part
    gain     its difference from the base draft there
    """

    task: str
    tuned: tuple[float, ...]
    best: float
    heldout: float
    gain: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of all tasks. grid: the weights tried, ascending."""

    grid: tuple[float, ...]
    tasks: tuple[TaskWeight, ...]
    split: Split

    def to_json(self) -> dict[str, Any]:
        tasks = [
            {
                "task": one.task,
                "tuned": list(one.tuned),
                "best": one.best,
                "heldout": one.heldout,
                "gain": one.gain.interval.value,
                "gain_interval": pair(one.gain.interval),
                "p_value": one.gain.p_value,
            }
            for one in self.tasks
        ]
        return {"cites": "table 8", "grid": list(self.grid), "tasks": tasks, "split": structs.asdict(self.split)}


def weights_by_task(
    dump: Dump,
    make: MakeDrafter,
    split: Split,
    *,
    grid: Sequence[float] = GRID,
    tasks: Collection[str] | None = None,
    seed: int = 0,
    advance: Callable[[int], None] = lambda rows: None,
) -> Weights:
    """Returns the best weight of each task for the drafters that `make` makes (`best_draft`: the paper's).

    The held-out part is replayed at that weight only. Tasks without a tuning part are left out. seed: of the resamples.
    advance: called with the rows done, of the tuning part and then of the rest.
    """
    names = {f"alpha {alpha:g}": alpha for alpha in sorted(grid)}
    if len(names) < max(len(grid), 1):
        raise ValueError(f"grid: expected at least one weight, all different, got {list(grid)}")
    tuned = replay_dump(
        dump,
        [make(name, alpha) for name, alpha in names.items()],
        tasks=tasks,
        split=split.part("tune"),
        advance=advance,
    )
    found = []
    for task in tuned.tasks:
        efficiency = {name: tally.block_efficiency for name, tally in task.tallies.items()}
        best = max(efficiency, key=efficiency.__getitem__)
        drafters = [OracleReplay(widths={"base": 1}), make("best", names[best])]
        rest = Resampled.of(
            replay_dump(dump, drafters, tasks=[task.task], split=split.part("heldout"), advance=advance), seed=seed
        )
        found.append(
            TaskWeight(
                task=task.task,
                tuned=tuple(efficiency.values()),
                best=names[best],
                heldout=rest.efficiency("best").value,
                gain=rest.difference("best", "base"),
            )
        )
    return Weights(grid=tuple(names.values()), tasks=tuple(found), split=split)


def best_draft(model: NGram, *, top_k: int | None = None, threads: int = 1) -> MakeDrafter:
    """Makes drafters that propose the best path with the model at a weight."""
    return lambda name, alpha: replays.paths(Rescorer(model, alpha=alpha, threads=threads), {name: 1}, top_k=top_k)
