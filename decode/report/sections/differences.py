"""Paired differences between drafters, and the gain of each source of the blend, by leaving one out at a time."""

from __future__ import annotations

from rescore.decode.draft.registry import sized
from rescore.decode.replay.figures import EQUAL, SIGNIFICANT, Figures
from rescore.decode.report import plots
from rescore.decode.report.content import Curve, Plot, Section, Table
from rescore.decode.report.measured import Measured

SOURCES = ("blend-without-lm", "blend-without-heads", "blend")


def section(measured: Measured) -> Section:
    figures = measured.figures
    return Section(
        key="differences",
        title="What each source adds",
        prose=(
            "The plot: the n-gram model alone, the blend of all sources, and the blend without one of them. The table: "
            "the block efficiency of a drafter minus that of another at the same budget, on the same sequences, as the "
            "mean over tasks with its interval and two-sided p-value, and the number of tasks on which the first is "
            f"better or worse with p below {SIGNIFICANT}. P-values are not corrected for multiple comparisons.",
        ),
        plots=[_plot(figures)] if sized("blend", EQUAL[0]) in figures.names else [],
        tables=[_table(figures)],
    )


def _plot(figures: Figures) -> Plot:
    views = {
        f"{n} nodes{told.replace(' ', ', ')}": _bars(figures, told, n)
        for told in ("", " tuned")
        for n in EQUAL
        if sized("blend" + told, n) in figures.names
    }
    title = "Tokens per pass with and without each source"
    return Plot(title=title, x="task", y="tokens per target pass", views=views)


def _bars(figures: Figures, told: str, n: int) -> list[Curve]:
    tasks, stems = figures.task_names, ("lm-alone", *(name + told for name in SOURCES))
    return [
        Curve(
            name=stem,
            x=tasks,
            y=[figures.value(name, task) for task in tasks],
            series=plots.style(stem)[0],
            mode="bars",
        )
        for stem in stems
        for name in [sized(stem, n)]
        if name in figures.names
    ]


def _table(figures: Figures) -> Table:
    rows, sure = [], 0
    for one in figures.overall["differences"]:
        pair = one["drafter"], one["against"]
        found = [figures.difference(*pair, task) for task in (None, *figures.task_names)]
        whole, *each = (one for one in found if one)
        signs = [difference.sign for difference in each]
        sure += bool(whole.sign)
        rows.append((*pair, whole.interval, whole.p_value, signs.count(1), signs.count(-1), len(each)))
    return Table(
        "Paired differences of block efficiency",
        ("drafter", "against", "difference", "p", "better", "worse", "tasks"),
        rows,
        {"difference": ".3f", "p": "p"},
        gist=f"{sure} of {len(rows)} with p below {SIGNIFICANT}",
    )
