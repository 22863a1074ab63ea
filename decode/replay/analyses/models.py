"""Compares language models: in-domain and general ones (Kim et al., table 7), orders 2, 3, 4 (table 9)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay import rows as replays
from rescore.decode.replay.analyses.efficiency_table import EfficiencyTable
from rescore.decode.replay.recorded import fitted_models
from rescore.decode.replay.replay import OracleReplay, Replay
from rescore.decode.replay.run import replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import SplitPart
from rescore.lm.ngram import NGram

ORDERS = (2, 3, 4)


def compare_models(
    dump: Dump,
    models: Mapping[str, NGram],
    *,
    alpha: float | Sequence[float],
    paths: int = 16,
    others: Sequence[Replay] = (),
    top_k: int | None = None,
    threads: int = 1,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
    cites: str = "table 7",
) -> EfficiencyTable:
    """Replays the best path and the p best paths with each model, beside the base draft and the oracles of k = 2 and K.

    alpha: one weight, or one per slot [T], the same for all models. others: drafters to compare with, such as a neural
    rescorer. Rows give the model (None: no model) and p. ValueError if a model's vocabulary is not the dump's.
    """
    k = top_k or dump.header.top_k
    rows: dict[str, dict[str, Any]] = {"base": {"model": None, "p": 1}}
    drafters: list[Replay] = [OracleReplay(widths={"base": 1})]
    for name, model in models.items():
        (model,) = fitted_models(dump, [model])
        rescorer = Rescorer(model, alpha=[alpha] if isinstance(alpha, Sequence) else alpha, threads=threads)
        budgets = {name: 1, f"{name} p={paths}": paths}
        rows |= {row: {"model": name, "p": p} for row, p in budgets.items()}
        drafters.append(replays.paths(rescorer, budgets, top_k=top_k))
    rows |= {name: {"model": None, "p": None} for other in others for name in other.names}
    oracles = {f"oracle k={n}": n for n in (2, k) if n <= k}
    rows |= {name: {"model": None, "p": 1} for name in oracles}
    result = replay_dump(
        dump, [*drafters, *others, OracleReplay(widths=oracles)], tasks=tasks, split=split, advance=advance
    )
    return EfficiencyTable(cites=cites, rows=rows, result=result)


def compare_orders(dump: Dump, model: NGram, *, orders: Sequence[int] = ORDERS, **options: Any) -> EfficiencyTable:
    """Runs `compare_models` on the model truncated to each order that it has (`NGram.of_order`)."""
    models = {f"{n}-gram": model if n == model.order else model.of_order(n) for n in orders if n <= model.order}
    return compare_models(dump, models, cites="table 9", **options)
