"""Predicted speed on a machine: the cost model with this dump's block efficiencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rescore.decode.cost.cost_inputs import ways_of
from rescore.decode.cost.cost_model import PLAIN, CostOptions, Method, Roofline, forecast
from rescore.decode.cost.cost_tables import (
    BATCHES,
    Columns,
    Rows,
    batches_of,
    step_columns,
    step_rows,
    step_title,
    token_columns,
    token_rows,
)
from rescore.decode.draft.registry import split
from rescore.decode.replay.headline import EQUAL
from rescore.decode.replay.replay import DrafterReplay
from rescore.decode.report import plots
from rescore.decode.report.content import Curve, Plot, Section, Table
from rescore.decode.report.measured import Measured

PLOTTED = tuple(2**i for i in range(11))  # batches
ROWS = 1024  # lattices searched together, when a search is timed


def cost_section(measured: Measured) -> Section | None:
    options = measured.options.cost
    if not options:
        return None
    drafters = ways(measured, options)
    source = (
        "Times are predicted, not measured: the longer of memory time and compute time, at assumed shares of the data "
        "sheet's figures. Drafting is measured on this machine."
        if isinstance(options.clock, Roofline)
        else "Passes are measured, without heads."
    )
    return Section(
        lead=True,
        key="cost",
        title=f"Cost: {options.name} on {options.machine}",
        prose=(
            f"The speed of a model of shape {options.name} on {options.machine} with these block efficiencies, after "
            f"{options.length:,} tokens of text. {source}",
            "With many texts at once passes are bound by arithmetic, and every verified token costs time: below as "
            "many texts as the last column says, a way is faster than plain decoding.",
        ),
        plots=[_plot(options, drafters)],
        tables=_tables(options, drafters),
    )


def ways(measured: Measured, options: CostOptions) -> list[Method]:
    """The drafters with a predicted cost; of several paths, only for one number of them. The cost model does not know
    the passes of a neural rescorer (`rescore cost --neural` does).
    """
    found = ways_of(
        measured.figures.overall["block_efficiency"],
        measured.figures.overall["verified_per_pass"],
        measured.options.budgets.p,
        drafting_seconds(measured),
    )
    return [way for way in found if is_costed(way.name)]


def is_costed(name: str) -> bool:
    stem, budget = split(name.partition(",")[0])
    return not stem.startswith("neural") and (budget is None or not stem.startswith("parallel"))


def drafting_seconds(measured: Measured) -> Mapping[str, float]:
    """Wall-clock seconds per lattice, by drafter, on the first lattices of the part.

    Each budget is timed separately, since a search for 128 nodes says nothing about one for 8, and warmed up on the
    first sequence. Drafters without `budgets` or a measured search time are left out.
    """
    part = measured.options.split.part(measured.options.part)
    block = next(block for task in measured.figures.task_names for block in part.blocks(measured.dump, task))
    block = block.part(0, max(1, int((block.offsets <= ROWS).sum()) - 1))
    found = {}
    for drafter in (one for one in measured.drafters if isinstance(one, DrafterReplay)):
        for name, budget in drafter.budgets.items():
            if is_costed(name):
                alone = replace(drafter, budgets={name: budget})
                alone.lines(block.part(0, 1))
                seconds = alone.lines(block)[name].seconds
                if np.isfinite(seconds).any():
                    found[name] = float(np.nanmean(seconds))
    return found


def _plot(options: CostOptions, drafters: Sequence[Method]) -> Plot:
    batches = batches_of(options, PLOTTED)
    of_batches = [
        forecast(options.shape, drafters, options.clock, batch=batch, length=options.length)[1:] for batch in batches
    ]
    even = Curve(name=PLAIN.name, x=batches, y=[1.0] * len(batches), series="oracle", dash="dash", mode="lines")
    views: dict[str, list[Curve]] = {}
    for way, found in sorted(zip(drafters, zip(*of_batches)), key=lambda pair: round(pair[0].verified) != min(EQUAL)):
        series = plots.style(way.name.partition(",")[0])[0]
        curve = Curve(name=way.name, x=batches, y=[one.times_plain for one in found], series=series)
        views.setdefault(f"{way.verified:.0f} verified tokens", [even]).append(curve)
    return Plot(
        title="Speed relative to plain decoding",
        x="texts at once",
        y="times plain decoding",
        views=views,
        xaxis=plots.logarithmic(),
        tabled=False,
    )


def _tables(options: CostOptions, drafters: Sequence[Method]) -> list[Table]:
    """Of all paths, of trees at a few budgets, and of the fastest way."""
    shown = [way for way in drafters if way.rows > 1 or way.verified < min(EQUAL) or round(way.verified) in EQUAL]
    names, batches = {PLAIN.name, *(way.name for way in shown)}, batches_of(options, BATCHES)
    steps = [row for row in step_rows(options, drafters, batches) if row["fastest"] or row["way"] in names]
    by_batch = [[row for row in steps if row["batch"] == batch] for batch in batches]
    tokens = token_rows(options, shown)
    title = "Bytes moved and operations per decoded token, one text at a time"
    return [
        *(_table(step_title(rows, options.length), rows, step_columns(rows)) for rows in by_batch),
        _table(title, tokens, token_columns(tokens)),
    ]


def _table(title: str, rows: Rows, columns: Columns) -> Table:
    """The fastest way is emphasised."""
    return Table(
        title,
        ("way", *columns),
        [*zip([row["way"] for row in rows], *(values for _, values in columns.values()))],
        {header: form for header, (form, _) in columns.items()},
        strong=frozenset(place for place, row in enumerate(rows) if row.get("fastest")),
    )
