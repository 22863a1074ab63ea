"""Comparison of language models: orders of the first, and several models."""

from __future__ import annotations

from typing import Any

from rescore.decode.replay.analyses.efficiency_table import EfficiencyTable
from rescore.decode.report import numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section, Table


def section(orders: EfficiencyTable, several: EfficiencyTable | None, seed: int) -> Section:
    """orders: the first model truncated to each order; several: each model alone, if there are several."""
    parts: list[Plot | Table] = [
        _plot(orders.to_json(seed), "Orders of the first language model"),
        _table(orders.to_json(seed), "Orders of the first language model"),
    ]
    if several:
        parts += [
            _plot(several.to_json(seed), "Each language model alone"),
            _table(several.to_json(seed), "Each language model alone"),
        ]
    return Section(
        key="models",
        title="Language models",
        cites="tables 7, 9",
        prose=(
            "The best path and the p best paths of the lattice with the language model truncated to lower orders, "
            "which shows how much of the gain needs longer contexts. All have the same weight alpha.",
            "In the paper, 2-grams do nearly as well as 4-grams, and in-domain models no better than general ones.",
        ),
        parts=parts,
    )


def _plot(table: dict[str, Any], title: str) -> Plot:
    names = list(dict.fromkeys(row["model"] for row in table["rows"] if row["model"]))
    budgets = list(dict.fromkeys(row["p"] for row in table["rows"] if row["model"]))

    def traces(task: str | None) -> list[dict[str, Any]]:
        found = {(row["model"], row["p"]): row for row in table["rows"]}
        out = []
        for p, series in zip(budgets, ("paths-base", "paths")):
            rows = [found[name, p] for name in names]
            y = [row["mean"] if task is None else row["block_efficiency"][task] for row in rows]
            intervals = [
                numbers.interval(row["mean_interval"] if task is None else row["interval"][task]) for row in rows
            ]
            out.append(plots.curve("1 path" if p == 1 else f"{p} paths", names, y, series=series, intervals=intervals))
        return out

    return Plot(
        title=title,
        alt="Block efficiency of the best path and of the p best paths with each language model.",
        views=[
            PlotView(name="mean over tasks", traces=traces(None)),
            *(PlotView(name=task, traces=traces(task)) for task in table["tasks"]),
        ],
        layout=plots.axes("", "tokens per target pass", x_type="category"),
    )


def _table(table: dict[str, Any], title: str) -> Table:
    rows = [
        (
            # Names of models are the user's.
            numbers.text(row["name"] if row["model"] else row["name"]),
            *(
                numbers.decimal(row["block_efficiency"][task], 2, numbers.interval(row["interval"][task]))
                for task in table["tasks"]
            ),
            numbers.decimal(row["mean"], 3, numbers.interval(row["mean_interval"])),
        )
        for row in table["rows"]
    ]
    return Table(title=title, headers=("draft", *table["tasks"], "mean"), rows=rows)
