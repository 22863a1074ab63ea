"""The report of `rescore bench decode` as lines and tables, on the screen and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from rescore.decode.cli.output import Column, Part, TextTable, column, columns_of
from rescore.decode.lab.report.page import plain

MACHINE = ("cpu", "cores", "memory_gib", "load")
FIGURES = {
    "tokens per second, ratio to plain": "times_plain",
    "the same after the prompts": "times_plain_behind_prompts",
    "tokens per pass": "tokens_per_pass",
}


def parts_of(report: Mapping[str, Any]) -> Iterator[Part]:
    """The machine, what was compared, the tables of each batch size, and why drafts did not pay."""
    facts, settings = report["machine"], report["settings"]
    versions = [f"{name} {value}" for name, value in facts.items() if name not in MACHINE and value is not None]
    yield (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, load {facts['load']}; "
        f"{', '.join(versions)}"
    )
    yield (
        f"{settings['model']}: {settings['prompts']} prompts, {settings['max_tokens']} tokens, "
        f"{settings['dtype']}, {settings['repeats']} rounds, {settings['threads']} threads"
    )
    yield from (f"equal: {texts}" for texts in report["checked"])
    for row in report["results"]:
        yield from tables(row["group"], row["engines"])
    if remarks := [line for row in report["results"] for line in unpaid(row["group"], row["engines"])]:
        yield from ("", *remarks)


def tables(group: str, engines: Mapping[str, Any]) -> Iterator[TextTable]:
    """One of all tasks together; if there are several, one of each figure by task."""
    own = list(engines.values())
    columns = [
        Column("tokens/s", [spread(one["tokens_per_s"], ".1f") for one in own]),
        Column("x plain", [spread(one["mean_times_plain"], ".2f") for one in own]),
        *columns_of(
            own,
            ("tokens/pass", "tokens_per_pass", ".2f"),
            ("drafted", "drafted_per_pass", ".1f"),
            ("drafting", "drafting_share", ".0%"),
        ),
        column("needed", (one["payoff"] and one["payoff"]["needed_per_pass"] for one in own), ".2f", "-"),
        column("differ", (one["different_texts"] for one in own), missing="-"),
    ]
    yield TextTable("drafter", list(engines), columns, title=group)
    tasks = list(own[0]["tasks"])
    for title, figure in FIGURES.items() if len(tasks) > 1 else ():
        values = [[value(one["tasks"][task][figure]) for task in tasks] for one in own]
        means = [None if None in of else fmean(filter(None, of)) for of in values]
        columns = [column(task, of, ".2f", "-") for task, of in zip((*tasks, "mean"), (*zip(*values), means))]
        yield TextTable("drafter", list(engines), columns, title=f"{group}, {title}")


def unpaid(group: str, engines: Mapping[str, Any]) -> Iterator[str]:
    """Lines that say why drafts did not pay, and what to try."""
    for name, one in engines.items():
        if one["payoff"] and not one["payoff"]["pays"]:
            yield f"{group}, {name}"
            yield from (f"  {what}  {line}" for what in ("why", "try") for line in one["payoff"][what])


def value(figure: Any) -> float | None:
    """A figure, or the median of its rounds."""
    return figure["median"] if isinstance(figure, dict) else figure


def spread(figure: Mapping[str, float], form: str) -> str:
    """The median, with minimum and maximum."""
    return f"{figure['median']:{form}} ({figure['min']:{form}}-{figure['max']:{form}})"


def markdown(title: str, parts: Sequence[Part]) -> str:
    """Lines as a list, and tables."""
    lines = [f"## {title}", ""]
    for part in parts:
        if not isinstance(part, TextTable):
            lines += [f"- {plain(str(part))}"] if part else []
            continue
        lines += ["", f"**{plain(part.title)}**", "", _row(part.header, *(one.header for one in part.columns))]
        lines += ["|---|" + "---:|" * len(part.columns)]
        lines += [_row(label, *(one.cells[i] for one in part.columns)) for i, label in enumerate(part.labels)]
    return "\n".join([*lines, ""])


def _row(*cells: str) -> str:
    return "| " + " | ".join(map(plain, cells)) + " |"
