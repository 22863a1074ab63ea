"""Block efficiencies side by side (Kim et al., tables 4, 7, 9, 10 and figures 6, 7): the oracle by number of candidates
and of heads, and language models. Rows are facts printed beside each drafter, such as {"k": 4, "heads": 9}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.lab.replay.figures import Figures, pair
from rescore.decode.lab.replay.recorded import fitted_models
from rescore.decode.lab.replay.replay import OracleReplay, Replay
from rescore.decode.lab.replay.rows import path_replay
from rescore.decode.lab.replay.run import DumpResult, replay_dump
from rescore.lattice.dump import Dump
from rescore.lm.model.ngram import NGram

Rows = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EfficiencyTable:
    """A table of block efficiencies, of these rows of a result."""

    rows: Rows
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
    **options: Any,
) -> EfficiencyTable:
    """Returns oracle block efficiency, see `oracle_rows`. options: of `replay_dump`."""
    rows, drafters = oracle_rows(dump, widths, heads)
    return EfficiencyTable(rows=rows, result=replay_dump(dump, drafters, **options))


def oracle_rows(
    dump: Dump, widths: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> tuple[Rows, list[Replay]]:
    """The oracle for every k and number of heads; k = 1 is the base draft. Rows give k and heads.

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
    return rows, [OracleReplay(widths={f"oracle k={k} heads={n}": k for k in widths}, slots=n - 1) for n in heads]


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
    **options: Any,
) -> EfficiencyTable:
    """Replays the rows of `model_rows`, beside the base draft and the oracles of k = 2 and K. options: of
    `replay_dump`.
    """
    k = top_k or dump.header.top_k
    rows, drafters = model_rows(dump, models, alpha=alpha, paths=paths, top_k=top_k, threads=threads)
    oracles = {f"oracle k={n}": n for n in (2, k) if n <= k}
    bounds = {name: {"model": None, "p": 1} for name in ("base", *oracles)}
    drafters = [OracleReplay(widths={"base": 1}), *drafters, OracleReplay(widths=oracles)]
    rows = {"base": bounds.pop("base"), **rows, **bounds}
    return EfficiencyTable(rows=rows, result=replay_dump(dump, drafters, **options))


def of_orders(model: NGram, orders: Sequence[int] = (2, 3, 4)) -> dict[str, NGram]:
    """The model truncated to each order that it has (`NGram.of_order`), by name."""
    return {f"{n}-gram": model if n == model.order else model.of_order(n) for n in orders if n <= model.order}


def model_rows(
    dump: Dump,
    models: Mapping[str, NGram],
    *,
    alpha: float | Sequence[float],
    paths: int,
    top_k: int | None,
    threads: int,
) -> tuple[Rows, list[Replay]]:
    """The best path and the p best paths with each model.

    alpha: one weight, or one per slot [T], the same for all models. Rows give the model (None: no model) and p.
    ValueError if a model's vocabulary is not the dump's.
    """
    rows: Rows = {}
    drafters: list[Replay] = []
    for name, model in models.items():
        (model,) = fitted_models(dump, [model])
        rescorer = Rescorer(model, alpha=[alpha] if isinstance(alpha, Sequence) else alpha, threads=threads)
        budgets = {name: 1, f"{name} p={paths}": paths}
        rows |= {row: {"model": name, "p": p} for row, p in budgets.items()}
        drafters.append(path_replay(rescorer, budgets, top_k=top_k))
    return rows, drafters
