"""The oracle: the upper bound of any choice among the candidates."""

from __future__ import annotations

from typing import Any

from rescore.decode.replay.analyses.efficiency_table import EfficiencyTable
from rescore.decode.report import numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section, Table

MEAN = "mean over tasks"


def section(found: EfficiencyTable, seed: int) -> Section:
    """found: result of `oracle_efficiency`."""
    table = found.to_json(seed)
    return Section(
        key="oracle",
        title="Oracle",
        cites="figure 6, tables 4, 9, 10",
        prose=(
            "The oracle drafts the longest prefix of the true text that the first k candidates of each head contain. "
            "It bounds every rescorer of this lattice; k = 1 is the base draft. If the curves still rise at the right, "
            "more candidates would help. If the curves of few and of many heads coincide, the later heads add nothing.",
        ),
        parts=(_plot(table), _by_task(table), _by_heads(table)),
    )


def _plot(table: dict[str, Any]) -> Plot:
    views = [
        PlotView(name=MEAN, traces=_curves(table, None)),
        *(PlotView(name=task, traces=_curves(table, task)) for task in table["tasks"]),
    ]
    return Plot(
        title="Oracle block efficiency against candidates per head",
        alt="Curves of oracle block efficiency over the number of candidates k, one per number of heads.",
        views=views,
        layout=plots.axes(
            "candidates per head, k", "tokens per target pass", **plots.powers([float(k) for k in _values(table, "k")])
        ),
    )


def _curves(table: dict[str, Any], task: str | None) -> list[dict[str, Any]]:
    traces, heads = [], _values(table, "heads")
    for place, number in enumerate(heads):
        rows = [row for row in table["rows"] if row["heads"] == number]
        y = [row["mean"] if task is None else row["block_efficiency"][task] for row in rows]
        intervals = [numbers.interval(row["mean_interval"] if task is None else row["interval"][task]) for row in rows]
        traces.append(
            plots.shaded(
                plots.curve(f"{number} heads", [float(row["k"]) for row in rows], y, intervals=intervals),
                place / max(len(heads) - 1, 1),
            )
        )
    return traces


def _by_task(table: dict[str, Any]) -> Table:
    most = _values(table, "heads")[-1]
    rows = [
        (
            numbers.count(row["k"]),
            *(
                numbers.decimal(row["block_efficiency"][task], 2, numbers.interval(row["interval"][task]))
                for task in table["tasks"]
            ),
            numbers.decimal(row["mean"], 3, numbers.interval(row["mean_interval"])),
        )
        for row in table["rows"]
        if row["heads"] == most
    ]
    return Table(
        title=f"Oracle block efficiency of all {most} heads", headers=("k", *table["tasks"], "mean"), rows=rows
    )


def _by_heads(table: dict[str, Any]) -> Table:
    heads, mean = _values(table, "heads"), {(row["k"], row["heads"]): row["mean"] for row in table["rows"]}
    rows = [(numbers.count(k), *(numbers.decimal(mean[k, number], 3) for number in heads)) for k in _values(table, "k")]
    return Table(
        title="Oracle block efficiency with fewer heads, mean over tasks",
        headers=("k", *(f"{number} heads" for number in heads)),
        rows=rows,
    )


def _values(table: dict[str, Any], key: str) -> list[int]:
    return sorted({row[key] for row in table["rows"]})
