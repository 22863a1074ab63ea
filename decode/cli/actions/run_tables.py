"""Tables of `rescore run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from rescore.decode.cli.actions.output import GAPS, Column, column_tables, columns_width
from rescore.decode.draft.names import (
    BASE,
    BLEND,
    HEADS_TREE,
    LM_ALONE,
    ORACLE,
    PARALLEL_BASE,
    PARALLEL_RESCORED,
    PROMPT_LOOKUP,
    RECYCLING,
    SUFFIX_DECODING,
    TREE,
    TUNED,
    WITHOUT_HEADS,
    bounded,
    sized,
    split,
)

Report = dict[str, Any]
GUTTER = 2  # columns between the tables of two dumps
BOLD = (TREE, TREE + TUNED, BLEND, BLEND + TUNED)


def either(name: str, nodes: int) -> tuple[str, str]:
    """A drafter's rows of one size, the better one first."""
    return sized(name + TUNED, nodes), sized(name, nodes)


# The rows that are printed unasked, each the first of its alternatives that was replayed: with heads and without.
ROWS = (
    (BASE,),
    (PARALLEL_RESCORED, PARALLEL_BASE),
    (*either(TREE, 16), sized(HEADS_TREE, 16)),
    either(WITHOUT_HEADS, 16),
    either(BLEND, 16),
    either(BLEND, 64),
    (ORACLE,),
)
ROWS_WITHOUT_HEADS = (
    (PROMPT_LOOKUP,),
    (sized(SUFFIX_DECODING, 16),),
    (sized(RECYCLING, 16),),
    (sized(LM_ALONE, 16),),
    either(BLEND, 16),
    either(BLEND, 64),
)
BEST = (*either(BLEND, 16), *either(TREE, 16), sized(HEADS_TREE, 16))  # there is no blend with several models
BASELINES = (BASE, PROMPT_LOOKUP)


def summary(report: Report, width: int) -> list[RenderableType]:
    """A verdict, and at most eight rows of means over the tasks."""
    rows = shown_rows(report)
    shown = {**report, "settings": {**report["settings"], "drafters": rows}}
    table = column_tables("drafter", rows, means_columns(shown), width=width, bold={best_of(report)})
    return [
        verdict(report),
        "",
        "tokens per pass, mean over the tasks; ±: half of the 95% interval; verified: draft tokens per pass",
        *table,
        "",
        settings_line(report),
    ]


def shown_rows(report: Report) -> list[str]:
    replayed = report["settings"]["drafters"]
    wanted = ROWS if BASE in replayed else ROWS_WITHOUT_HEADS
    found = [next((name for name in names if name in replayed), None) for names in wanted]
    return [name for name in found if name]


def best_of(report: Report) -> str:
    rows = shown_rows(report)
    return next(name for name in BEST if name in rows)


def verdict(report: Report) -> str:
    """The best drafter of 16 nodes against the heads' own draft, or against prompt lookup where there are no heads."""
    best, parts = best_of(report), []
    for one in report["overall"]:
        efficiency = one["block_efficiency"]
        base = next(name for name in BASELINES if name in efficiency)
        of = title(report, one).partition(", ")[2]
        parts.append(f"{efficiency[best]:.2f} where {base} has {efficiency[base]:.2f} ({of})")
    return f"{best}: tokens per pass {', '.join(parts)}"


def tables(report: Report, width: int) -> list[RenderableType]:
    """Settings, a table per dump, differences and times. Tables stand side by side if they fit into `width`, else a
    table of means comes first.
    """
    drafters = report["settings"]["drafters"]
    labels = [*drafters, "", *facts_of(report)]
    bold = {name for name in drafters if split(name)[0] in BOLD}
    found = [(title(report, overall), dump_columns(report, overall)) for overall in report["overall"]]
    below = [*difference_tables(report, width), "", *time_lines(report)]
    gap = side_by_side(labels, found, width)
    parts = [
        Group(name, *column_tables("drafter", labels, columns, width=width, gap=gap, bold=bold))
        for name, columns in found
    ]
    if gap is None:
        if len(found) > 1:
            means = column_tables("drafter", drafters, means_columns(report), width=width, bold=bold)
            parts.insert(0, Group("block efficiency, mean over the tasks", *means))
        return [settings_line(report), *(part for table in parts for part in ("", table)), *below]
    row = Table.grid(padding=(0, GUTTER, 0, 0))
    row.add_row(*parts)
    return [settings_line(report), "", row, *below]


def side_by_side(labels: list[str], found: list[tuple[str, list[Column]]], width: int) -> int | None:
    """The gap between columns with which the tables fit side by side; None if they do not."""
    for gap in GAPS:
        widths = [columns_width("drafter", labels, columns, gap) for _, columns in found]
        if len(found) > 1 and sum(widths) + GUTTER * (len(found) - 1) <= width:
            return gap
    return None


def title(report: Report, overall: Report) -> str:
    sampled = f", temperature {overall['temperature']:g}" if overall["temperature"] else ""
    part = "" if overall["part"] == "all" else f", {overall['part']} part"
    alike = sum(other["kind"] == overall["kind"] for other in report["overall"]) > 1
    return f"block efficiency, {overall['kind']}{sampled}{part}" + (f" ({overall['dump']})" if alike else "")


def means_columns(report: Report) -> list[Column]:
    """For every dump: verified if it differs from the first dump's, mean, half its interval, headroom."""
    drafters = report["settings"]["drafters"]
    columns: list[Column] = []
    for overall in report["overall"]:
        verified = [f"{overall['verified_per_pass'][name]:.0f}" for name in drafters]
        if not columns or verified != columns[0].cells:
            columns.append(Column("verified", verified))
        columns.append(Column(overall["kind"], [f"{overall['block_efficiency'][name]:.3f}" for name in drafters]))
        columns.append(Column("±", half_widths(report, overall)))
        if overall["headroom_recovered"]:
            columns.append(Column("headroom", headroom_cells(report, overall)))
    return columns


def headroom_cells(report: Report, overall: Report) -> list[str]:
    """Of drafters that the oracle bounds."""
    values = {name: overall["headroom_recovered"].get(name) for name in report["settings"]["drafters"]}
    return ["" if value is None or not bounded(name) else f"{value:.0%}" for name, value in values.items()]


def half_widths(report: Report, overall: Report) -> list[str]:
    bounds = [overall["interval"]["block_efficiency"][name] for name in report["settings"]["drafters"]]
    return ["" if low is None else f"{(high - low) / 2:.3f}" for low, high in bounds]


def difference_tables(report: Report, width: int) -> list[RenderableType]:
    """For every dump: differences of drafters in the mean over tasks, intervals, p-values."""
    found = [{(one["drafter"], one["against"]): one for one in overall["differences"]} for overall in report["overall"]]
    pairs = [pair for pair in found[0] if all(pair in one for one in found)]
    if not pairs:
        return []
    labels = [f"{name} - {against}" for name, against in pairs]
    columns = []
    for overall, of_dump in zip(report["overall"], found):
        differences = [of_dump[pair] for pair in pairs]
        columns.append(Column(overall["kind"], [f"{one['value']:+.3f}" for one in differences]))
        columns.append(
            Column(
                "interval",
                ["" if one["low"] is None else f"{one['low']:+.3f} {one['high']:+.3f}" for one in differences],
            )
        )
        columns.append(Column("p", ["" if one["p_value"] is None else f"{one['p_value']:.3f}" for one in differences]))
    level = report["settings"]["bootstrap"]["level"]
    return [
        "",
        f"differences, mean over the tasks; {level:.0%} intervals over sequences",
        *column_tables("", labels, columns, width=width),
    ]


def dump_columns(report: Report, overall: Report) -> list[Column]:
    """Columns verified, one per task, mean, half its interval, headroom: cells of every drafter, then of the facts."""
    drafters, facts = report["settings"]["drafters"], facts_of(report)
    blank = [""] * (1 + len(facts))
    columns = [Column("verified", [f"{overall['verified_per_pass'][name]:.0f}" for name in drafters] + blank)]
    for task in report["tasks"]:
        if task["dump"] == overall["dump"]:
            cells = [f"{task['block_efficiency'][name]:.2f}" for name in drafters]
            columns.append(Column(task["task"], [*cells, "", *(fact(task) for fact in facts.values())]))
    columns.append(Column("mean", [f"{overall['block_efficiency'][name]:.3f}" for name in drafters] + blank))
    columns.append(Column("±", half_widths(report, overall) + blank))
    if overall["headroom_recovered"]:
        columns.append(Column("headroom", headroom_cells(report, overall) + blank))
    return columns


def repetition(drafter: str, measure: str, form: str) -> Callable[[Report], str]:
    return lambda task: format(task["repetition"][drafter][measure], form)


def duel(outcome: str) -> Callable[[Report], str]:
    return lambda task: f"{task['rescored_against_base'][outcome]:,}"


# Facts of each task, below its block efficiencies: of any dump, and of heads with an n-gram model.
FACTS: dict[str, Callable[[Report], str]] = {
    "sequences": lambda task: f"{task['sequences']:,}",
    "tokens": lambda task: f"{task['tokens']:,}",
    "loops": lambda task: f"{task['loop_share']:.0%}",
}
FACTS_OF_MODEL: dict[str, Callable[[Report], str]] = {
    "repeats, base": repetition("base", "consecutive", ".1%"),
    "repeats, rescored": repetition("rescored", "consecutive", ".1%"),
    "max run, base": repetition("base", "max_run", ".2f"),
    "max run, rescored": repetition("rescored", "max_run", ".2f"),
    "wins": duel("wins"),
    "ties": duel("ties"),
    "losses": duel("losses"),
}


def facts_of(report: Report) -> dict[str, Callable[[Report], str]]:
    return {**FACTS, **FACTS_OF_MODEL} if all("rescored_against_base" in task for task in report["tasks"]) else FACTS


def settings_line(report: Report) -> str:
    settings = report["settings"]
    models = ", ".join(one["path"] + ("" if one["weight"] == 1 else f"={one['weight']:g}") for one in settings["lm"])
    alpha = settings["alpha"]
    weight = f"alpha {alpha:g}" if isinstance(alpha, float) else "alpha " + ",".join(f"{value:g}" for value in alpha)
    candidates = f"{settings['top_k']} candidates per slot, " if settings["top_k"] else ""
    tuned = f"; tuned as in {settings['tuned']}" if settings["tuned"] else ""
    if all(BASE not in one["block_efficiency"] for one in report["overall"]):
        return f"model without heads; {models or 'no n-gram model (--lm)'}{tuned}"
    if not models:
        return f"no n-gram model (--lm); {candidates}p = {settings['paths']}{tuned}"
    return f"{models}: {weight}, {candidates}p = {settings['paths']}{tuned}"


def time_lines(report: Report) -> list[str]:
    threads = report["settings"]["threads"]
    told = {"paths": f"{report['settings']['paths']} paths", "tree": "a tree of 128", "blend": "a blend of 128"}
    return [
        f"{times['dump']}: ms per lattice: "
        f"{', '.join(f'{times[key]:.3f} for {what}' for key, what in told.items() if key in times)}; "
        f"{threads} thread{'s' * (threads > 1)}"
        for times in report["ms_per_lattice"]
    ]
