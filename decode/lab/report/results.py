"""The drafters' results: how much faster, tokens per pass, and what each source of the blend adds."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from rescore.decode.draft.registry import FEW, SPECS, row_name, split, uses_heads_alone
from rescore.decode.lab.replay import headline
from rescore.decode.lab.replay.figures import SIGNIFICANT, Difference, Figures, Interval
from rescore.decode.lab.replay.headline import EQUAL
from rescore.decode.lab.replay.table import read_table
from rescore.decode.lab.report import plots
from rescore.decode.lab.report.content import Curve, Plot, Section, Table
from rescore.decode.lab.report.measured import Measured

EXPLAINED = {"base": ", the heads' own draft"}
COSTS = (1.1, 1.25, 1.5, 2.0)  # of a pass with a draft, in passes of one token
PLAIN = "plain"
CONTROLS = {"blend-without-lm": "the n-gram model gives", "blend-without-heads": "the model's heads give"}


def verdict(overall: dict[str, Any]) -> str:
    """Compares the best drafter of few nodes with the reference; means over tasks."""
    efficiency = overall["block_efficiency"]
    best, reference = headline.best(efficiency), headline.reference(efficiency)
    return f"{best}: tokens per pass {headline.verdict(best, efficiency)}{EXPLAINED.get(reference, '')}."


def speed_section(measured: Measured) -> Section:
    figures, bench = measured.figures, measured.options.bench
    fast = measured_speed(bench) if bench else needed_speed(figures)
    prose = [text for text in (fast[0], sources(figures), loops(figures)) if text]
    return Section(key="summary", title="How much faster", prose=prose, tables=fast[1:], lead=True)


def needed_speed(figures: Figures) -> tuple[str, Table]:
    """What passes may cost: without times of passes, a drafter's tokens per pass bound its speed."""
    first = headline.best(figures.names)
    value = figures.overall["block_efficiency"][first]
    rows = [
        (name, figures.overall["verified_per_pass"][name], figures.efficiency(name), *(at / cost for cost in COSTS))
        for name in headline.leading(figures.names)
        for at in [figures.overall["block_efficiency"][name]]
        if name != "oracle"
    ]
    table = Table(
        "Times as fast as plain decoding, by the time of a pass with a draft",
        ("drafter", "verified", "break-even", *(f"{cost:g} × a plain pass" for cost in COSTS)),
        rows,
        {"verified": ".0f"},
        gist=f"{first} pays up to {value:.2f} × a plain pass",
        open=True,
    )
    text = (
        f"Speed is tokens per pass divided by the time of a pass, drafting included, in plain passes: {first} pays "
        f"while a pass takes less than {value:.2f} plain ones; at {COSTS[1]:g} it decodes {value / COSTS[1]:.2f} "
        "times as fast. rescore bench decode measures the speed itself."
    )
    return text, table


def measured_speed(path: Path) -> tuple[str, Table]:
    """Tokens per second from the lines of `rescore bench decode`: the ratio to plain decoding of every round."""
    found: dict[tuple[int, str], dict[int, list[float]]] = {}  # (batch, drafter): round: tokens, passes, seconds
    for group, lines in read_table(path):
        if "round" not in group:
            raise ValueError(f"{path}: expected lines of `rescore bench decode -o`, got a table without rounds")
        name = row_name(group["drafter"], group["budget"])
        own = found.setdefault((group["batch"], name), {}).setdefault(group["round"], [0.0, 0.0, 0.0])
        passes = np.maximum(lines.tokens - lines.accepted, 1)  # of a text whose passes were not timed: several
        for place, values in enumerate((lines.tokens, passes, lines.seconds)):
            own[place] += float(values.sum(dtype=np.float64))
    if not any(name == PLAIN for _, name in found):
        raise ValueError(f"{path}: expected lines of plain decoding to compare with, got none")
    rows, best = [], ("", 0.0)
    for (batch, name), rounds in found.items():
        pace = [tokens / seconds for tokens, _, seconds in rounds.values()]
        plain = [tokens / seconds for tokens, _, seconds in found[batch, PLAIN].values()]
        times = [mine / theirs for mine, theirs in zip(pace, plain)]
        middle = Interval(value=statistics.median(times), low=min(times), high=max(times))
        best = max(best, (f"{name}, {batch} text{'s' * (batch > 1)} at once", middle.value), key=lambda one: one[1])
        tokens, passes, _ = (sum(of[place] for of in rounds.values()) for place in range(3))
        rows.append((name, batch, statistics.median(pace), middle, tokens / passes))
    text = (
        f"Measured by rescore bench decode: the fastest, {best[0]}, decodes {best[1]:.2f} times as many tokens per "
        "second as plain decoding, over all texts together. The range is that of the rounds."
    )
    headers = ("drafter", "texts at once", "tokens/s", "× plain", "tokens/pass")
    return text, Table(f"Measured speed ({path})", headers, rows, {"tokens/s": ",.1f"}, gist=best[0], open=True)


def sources(figures: Figures) -> str:
    """What the blend of few nodes owes to each source, and its lead over published drafters."""
    blend, found = row_name("blend", FEW), figures.differences()
    owed = [
        f"{gives} {_effect(found[blend, control])}"
        for stem, gives in CONTROLS.items()
        if (blend, control := row_name(stem, FEW)) in found
    ]
    behind = [
        f"{name} is {_effect(found[blend, name])} behind"
        for name in headline.leading(figures.names)
        if (spec := SPECS.get(split(name)[0])) and spec.cites and (blend, name) in found
    ]
    return f"Of {blend}'s tokens per pass, {', '.join([*owed, *behind])}." if owed or behind else ""


def loops(figures: Figures) -> str:
    found = {task["task"]: task["loop_share"] for task in figures.tasks if task["loop_share"] > 0.05}
    if not found:
        return ""
    return (
        f"Caution: text loops in {', '.join(f'{share:.0%} of {task}' for task, share in found.items())}, which "
        "inflates the tokens per pass of every drafter."
    )


def _effect(difference: Difference) -> str:
    return f"{difference.interval.value:.2f}{'' if difference.sign else ' (not significant)'}"


def passes_section(measured: Measured) -> Section:
    figures = measured.figures
    prose = [
        "Block efficiency is generated tokens per pass of the target model; plain decoding has 1. Further left is "
        "cheaper, further up is better: compare drafters at the same number of verified tokens per pass. Ranges are "
        f"{figures.level:.0%} bootstrap intervals over sequences ({figures.bootstrap['resamples']:,} resamples, seed "
        f"{figures.seed})."
    ]
    heads = "oracle" in figures.names
    if heads:
        prose.append(
            "The oracle (chosen in the legend) bounds any choice among the heads' candidates. Headroom is the distance "
            "from the base draft to it; in the paper, 16 rescored paths recover 17–55% of it, 33% on average, with 128 "
            "verified tokens. Blends and the LM alone also draft other tokens and may exceed the oracle. Parallel "
            "paths are the paper's method: each adds T tokens to verify, although most share a prefix."
        )
    else:
        prose.append("A replay lacks the predictions after rejected nodes, which decoding also counts.")
    return Section(
        lead=True,
        key="efficiency",
        title="Tokens per pass",
        prose=prose,
        plots=[_efficiency_plot(figures)],
        tables=[_by_task(figures)],
    )


def _efficiency_plot(figures: Figures) -> Plot:
    return Plot(
        title="Tokens per pass against verified tokens per pass",
        x="verified tokens per pass",
        y="tokens per target pass",
        views=plots.views(figures.task_names, lambda task: _curves(figures, task)),
        xaxis=plots.logarithmic(),
        tabled=False,
    )


def _curves(figures: Figures, task: str | None) -> list[Curve]:
    verified = figures.at(task)["verified_per_pass"]
    shown = {plots.curve_of(name) for name in headline.leading(figures.names) if name != "oracle"}
    known = [name for name in figures.names if name in verified]
    ends = [pick(verified[name] for name in known if name != "oracle") for pick in (min, max)]
    found = []
    for title, names in plots.curves(known).items():
        names, mode = sorted(names, key=verified.__getitem__), "lines+markers"
        x = [verified[name] for name in names]
        if title == "oracle":
            names, x, mode = ["oracle"] * 2, ends, "lines"
        y, (series, dash) = [figures.efficiency(name, task) for name in names], plots.style(title)
        hidden = title not in shown
        found.append(Curve(name=title, x=x, y=y, series=series, dash=dash, mode=mode, texts=names, hidden=hidden))
    return found


def _by_task(figures: Figures) -> Table:
    """Of the drafters without a budget and at those compared first; the plot has all."""
    names = [name for name in figures.names if split(name)[1] in (None, *EQUAL)]
    main, heads, overall = headline.leading(names), "oracle" in figures.names, figures.overall
    efficiency = overall["block_efficiency"]
    best = max((name for name in names if name != "oracle"), key=efficiency.__getitem__)
    rows = [
        (
            name,
            overall["verified_per_pass"][name],
            *(figures.efficiency(name, task) for task in (*figures.task_names, None)),
            *(
                [figures.headroom(name) if uses_heads_alone(name) and name not in ("base", "oracle") else None]
                if heads
                else []
            ),
            overall["accepted_per_verified"][name] if name != "oracle" else None,
        )
        for name in names
    ]
    return Table(
        "Block efficiency per task",
        ("drafter", "verified", *figures.task_names, "mean", *(["headroom"] * heads), "accepted / verified"),
        rows,
        {"verified": ".0f", "mean": ".3f", "headroom": ".0%", "accepted / verified": ".3f"},
        strong=frozenset(place for place, name in enumerate(names) if name in main),
        gist=f"best: {best}, {efficiency[best]:.2f}",
    )


def sources_section(measured: Measured) -> Section:
    figures = measured.figures
    return Section(
        key="differences",
        title="What each source adds",
        prose=(
            "The table: the block efficiency of a drafter minus that of another at the same budget, on the same "
            "sequences, and the number of tasks on which the first is better or worse with p below "
            f"{SIGNIFICANT}, not corrected for multiple comparisons.",
        ),
        plots=[_sources_plot(figures)] if row_name("blend", EQUAL[0]) in figures.names else [],
        tables=[_differences_table(figures)],
    )


def _sources_plot(figures: Figures) -> Plot:
    views = {
        f"{n} nodes{told.replace(' ', ', ')}": _bars(figures, told, n)
        for told in ("", " tuned")
        for n in EQUAL
        if row_name("blend" + told, n) in figures.names
    }
    title = "Tokens per pass with and without each source"
    return Plot(title=title, x="task", y="tokens per target pass", views=views)


def _bars(figures: Figures, told: str, n: int) -> list[Curve]:
    tasks = figures.task_names
    stems = [row.title + (told if row.varied else "") for row in SPECS["blend"].rows]
    return [
        Curve(
            name=stem,
            x=tasks,
            y=[figures.efficiency(name, task) for task in tasks],
            series=plots.style(stem)[0],
            mode="bars",
        )
        for stem in stems
        for name in [row_name(stem, n)]
        if name in figures.names
    ]


def _differences_table(figures: Figures) -> Table:
    rows, sure = [], 0
    for pair, whole in figures.differences().items():
        signs = [figures.difference(*pair, task).sign for task in figures.task_names]
        sure += bool(whole.sign)
        rows.append((*pair, whole.interval, whole.p_value, signs.count(1), signs.count(-1), len(signs)))
    return Table(
        "Paired differences of block efficiency",
        ("drafter", "against", "difference", "p", "better", "worse", "tasks"),
        rows,
        {"difference": ".3f", "p": "p"},
        gist=f"{sure} of {len(rows)} with p below {SIGNIFICANT}",
    )
