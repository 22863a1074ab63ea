"""Block efficiencies of several settings side by side (Kim et al., tables 4, 7 to 10 and figures 6, 7): the oracle by
number of candidates and of heads, language models, and the best weight of each task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.figures import Difference, Figures, pair
from rescore.decode.replay.recorded import fitted_models
from rescore.decode.replay.replay import OracleReplay, Replay
from rescore.decode.replay.rows import path_replay
from rescore.decode.replay.run import DumpResult, replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split, SplitPart
from rescore.lm.model.ngram import NGram

ORDERS = (2, 3, 4)
GRID = (0.1, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 5.0, 10.0)  # appendix E


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EfficiencyTable:
    """A table of block efficiencies.

    rows   facts printed beside each drafter, such as {"k": 4, "heads": 9}
    """

    rows: Mapping[str, Mapping[str, Any]]
    result: DumpResult

    @property
    def tasks(self) -> list[str]:
        return [task.task for task in self.result.tasks]

    def efficiency(self, name: str) -> dict[str, float]:
        """Returns a drafter's block efficiency on each task."""
        return {task.task: task.tallies[name].block_efficiency for task in self.result.tasks}

    def to_json(self, seed: int = 0) -> dict[str, Any]:
        """Returns rows with block efficiency per task and as mean over tasks, each with its interval [low, high]."""
        figures, tasks = Figures.of(self.result, seed=seed), self.tasks
        rows = []
        for name, facts in self.rows.items():
            verified = sum(task.tallies[name].verified_per_pass for task in self.result.tasks) / len(tasks)
            rows.append(
                {
                    "name": name,
                    **facts,
                    "verified_per_pass": verified,
                    "block_efficiency": self.efficiency(name),
                    "interval": {task: pair(figures.efficiency(name, task)) for task in tasks},
                    "mean": figures.efficiency(name).value,
                    "mean_interval": pair(figures.efficiency(name)),
                }
            )
        return {"tasks": tasks, "rows": rows}


def oracle_efficiency(
    dump: Dump,
    *,
    widths: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> EfficiencyTable:
    """Returns oracle block efficiency for every k and number of heads; k = 1 is the base draft. Rows give k and heads.

    widths: by default 1, 2, 4, .. and K. heads: by default 3, 6, 9, .. and h. The lattice of h' heads is the first
    h' - 1 slots. ValueError unless 1 <= k <= K and 2 <= heads <= h.
    """
    header, slots = dump.header, dump.slots
    if not slots:
        raise ValueError(f"{dump.path}: expected a dump of a model with heads, got one without, which has no lattices")
    widths, heads = widths or powers_of_two(header.top_k), heads or multiples(3, header.heads)
    if bad := [k for k in widths if not 1 <= k <= header.top_k]:
        raise ValueError(f"oracle: {dump.path}: expected k in 1..{header.top_k}, got {bad[0]}")
    if bad := [n for n in heads if not 2 <= n <= slots + 1]:
        raise ValueError(f"oracle: {dump.path}: expected heads in 2..{header.heads}, got {bad[0]}")
    rows = {f"oracle k={k} heads={n}": {"k": k, "heads": n} for n in heads for k in widths}
    drafters = [OracleReplay(widths={f"oracle k={k} heads={n}": k for k in widths}, slots=n - 1) for n in heads]
    result = replay_dump(dump, drafters, tasks=tasks, split=split, advance=advance)
    return EfficiencyTable(rows=rows, result=result)


def powers_of_two(most: int) -> list[int]:
    """Returns 1, 2, 4, .. and `most`."""
    return [*(1 << i for i in range(most.bit_length()) if 1 << i < most), most]


def multiples(step: int, most: int) -> list[int]:
    """Returns step, 2 step, .. and `most`."""
    return [*range(step, most, step), most]


def compare_models(
    dump: Dump,
    models: Mapping[str, NGram],
    *,
    alpha: float | Sequence[float],
    paths: int = 16,
    top_k: int | None = None,
    threads: int = 1,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> EfficiencyTable:
    """Replays the best path and the p best paths with each model, beside the base draft and the oracles of k = 2 and K.

    alpha: one weight, or one per slot [T], the same for all models. Rows give the model (None: no model) and p.
    ValueError if a model's vocabulary is not the dump's.
    """
    k = top_k or dump.header.top_k
    rows: dict[str, dict[str, Any]] = {"base": {"model": None, "p": 1}}
    drafters: list[Replay] = [OracleReplay(widths={"base": 1})]
    for name, model in models.items():
        (model,) = fitted_models(dump, [model])
        rescorer = Rescorer(model, alpha=[alpha] if isinstance(alpha, Sequence) else alpha, threads=threads)
        budgets = {name: 1, f"{name} p={paths}": paths}
        rows |= {row: {"model": name, "p": p} for row, p in budgets.items()}
        drafters.append(path_replay(rescorer, budgets, top_k=top_k))
    oracles = {f"oracle k={n}": n for n in (2, k) if n <= k}
    rows |= {name: {"model": None, "p": 1} for name in oracles}
    drafters.append(OracleReplay(widths=oracles))
    result = replay_dump(dump, drafters, tasks=tasks, split=split, advance=advance)
    return EfficiencyTable(rows=rows, result=result)


def compare_orders(
    dump: Dump,
    model: NGram,
    *,
    orders: Sequence[int] = ORDERS,
    others: Mapping[str, NGram] = MappingProxyType({}),
    **options: Any,
) -> EfficiencyTable:
    """Runs `compare_models` on the model truncated to each order that it has (`NGram.of_order`), and on others."""
    models = {f"{n}-gram": model if n == model.order else model.of_order(n) for n in orders if n <= model.order}
    return compare_models(dump, {**models, **others}, **options)


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
    """The weights of all tasks, each tuned on one part and reported on the rest. grid: the weights tried, ascending."""

    grid: tuple[float, ...]
    tasks: tuple[TaskWeight, ...]
    split: Split


def weights_by_task(
    dump: Dump,
    model: NGram,
    split: Split,
    *,
    top_k: int | None = None,
    threads: int = 1,
    grid: Sequence[float] = GRID,
    tasks: Collection[str] | None = None,
    seed: int = 0,
    advance: Callable[[int], None] = lambda rows: None,
) -> Weights:
    """Returns the best weight of each task for the best path with a model, the paper's draft.

    The held-out part is replayed at that weight only. Tasks without a tuning part are left out. seed: of the resamples.
    advance: called with the rows done, of the tuning part and then of the rest.
    """
    names = {f"alpha {alpha:g}": alpha for alpha in sorted(grid)}
    if len(names) < max(len(grid), 1):
        raise ValueError(f"grid: expected at least one weight, all different, got {list(grid)}")

    def make(name: str, alpha: float) -> Replay:
        return path_replay(Rescorer(model, alpha=alpha, threads=threads), {name: 1}, top_k=top_k)

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
        rest = Figures.of(
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
