"""The drafts: acceptance by position, tokens per pass along the text, causes of lost tokens, calibration of q."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.names import split
from rescore.decode.replay.analyses.lost_tokens import CAUSES, LostTokens
from rescore.decode.replay.analyses.reliability import EDGES, Reliability
from rescore.decode.replay.run import DumpResult
from rescore.decode.report import plots
from rescore.decode.report.content import Plot, PlotView, Section, Table
from rescore.decode.report.measured import BUDGET, LARGER, SHOWN, Measured

SLOTS = 16  # in the plot of acceptance by position, without heads
LEAST_PASSES, LEAST_NODES = 30, 30  # bins of fewer are not plotted
TITLES = {
    "absent": "not in the lattice",
    "lm": "misranked by the LM",
    "budget": "lost to the budget",
    "heads": "ranked too low",
}
SERIES = {"absent": "other", "lm": "paths-base", "budget": "lm-alone", "heads": "tree-base"}
TICKS = (0.001, 0.01, 0.1, 1.0)
DASHES = ("solid", "dot", "dashdot")  # drafters of one colour

Counts = Mapping[str, NDArray[np.int64]]  # of each drafter, summed over tasks


def section(measured: Measured) -> Section:
    prose = [
        "Acceptance by position is the share of a drafter's drafts that are accepted up to each position, over the "
        "passes of its own replay. If the curve falls steeply at first, the first slots matter most, and nodes at "
        "later ones are rarely reached. Along the text: a longer running text offers more to copy from. Bins of fewer "
        f"than {LEAST_PASSES} passes are left out."
    ]
    parts: list[Plot | Table] = [*_acceptance(measured), *_along_text(measured.result)]
    if measured.lost:
        prose.append(
            f"Lost tokens: in every pass of the tree of {BUDGET} nodes, the first rejected position has one cause, the "
            "first of these that holds: the true token is not among the candidates; the tree of the heads alone has "
            f"it, so the language model misranked it; a tree of {LARGER} nodes has it, so it is lost to the budget; "
            "otherwise heads and language model together rank it too low. The shares are of all tokens lost from that "
            "position on."
        )
        parts += _lost(measured.lost)
    if measured.q:
        prose.append(
            f"Calibration: the nodes drafted by {measured.q_of}, binned by the probability q of their prefix, and the "
            "share of them that was accepted. On the dashed line q is calibrated; below it q is overconfident, above "
            "it underconfident. The sum of q over a tree's nodes is its expected number of accepted tokens."
        )
        parts += _reliability(measured.q)
    return Section(key="drafts", title="The drafts", prose=prose, parts=parts)


def _summed(result: DumpResult, counts: str, task: str | None) -> Counts:
    """`Tally.by_slot` or `by_length` of the shown drafters, of a task or of all tasks together."""
    tallies = [one.tallies for one in result.tasks if task in (None, one.task)]
    return {
        name: np.sum([getattr(of[name], counts) for of in tallies], axis=0) for name in result.names if name in SHOWN
    }


def _acceptance(measured: Measured) -> tuple[Plot, Table]:
    slots = range(1, (measured.dump.slots or SLOTS) + 1)

    def shares(task: str | None) -> dict[str, list[float | None]]:
        found = _summed(measured.result, "by_slot", task)
        return {
            name: [int(a) / int(n) if n else None for n, a in zip(drafts[: len(slots)], accepted)]
            for name, (drafts, accepted, _) in found.items()
        }

    def curves(task: str | None) -> list[dict[str, Any]]:
        traces, seen = [], Counter[str]()
        for name, values in shares(task).items():
            series = plots.style(name)["series"]
            dash = "dash" if name == "oracle" else DASHES[seen[series] % len(DASHES)]
            seen[series] += 1
            rounded = [None if value is None else round(value, 5) for value in values]
            traces.append(plots.curve(name, list(slots), rounded, series=series, dash=dash))
        return traces

    title = "Drafts accepted up to a position"
    plot = Plot(
        title=title,
        alt="Falling curves of the share of drafts accepted up to each position, one per drafter.",
        views=plots.views(measured.figures.task_names, curves, whole="all tasks"),
        layout=plots.axes(
            "position in the draft", "share of drafts", y_tickformat=".0%", x_dtick=1, y_rangemode="tozero"
        ),
    )
    rows = [(name, *values) for name, values in shares(None).items()]
    return plot, Table.of(f"{title}, all tasks together", ("drafter", *map(str, slots)), rows, ".1%")


def _along_text(result: DumpResult) -> tuple[Plot, Table]:
    def curves(task: str | None) -> list[dict[str, Any]]:
        traces = []
        for name, (passes, tokens) in _summed(result, "by_length", task).items():
            bins, style = np.flatnonzero(passes >= LEAST_PASSES), plots.style(name)
            traces.append(
                plots.curve(
                    name,
                    [2**place for place in bins.tolist()],
                    np.round(tokens[bins] / passes[bins], 4).tolist(),
                    **(style | {"dash": "dashdot"} if split(name)[1] == 64 else style),
                    texts=[f"{name}, {count:,} passes" for count in passes[bins].tolist()],
                )
            )
        return traces

    title = "Tokens per pass by tokens generated before the pass"
    views = plots.views([task.task for task in result.tasks], curves, whole="all tasks")
    plot = Plot(
        title=title,
        alt="Curves of tokens per pass over the tokens generated before the pass, one per drafter.",
        views=views,
        layout=plots.axes(
            "tokens generated before the pass, from",
            "tokens per target pass",
            **plots.powers([x for view in views for trace in view.traces for x in trace["x"]]),
        ),
    )
    whole = _summed(result, "by_length", None)
    rows = [
        (
            f"{2**place}–{2 ** (place + 1) - 1}" if place else "1",
            *(float(n[place] / p[place]) if p[place] >= LEAST_PASSES else None for p, n in whole.values()),
        )
        for place in np.flatnonzero(np.any([passes >= LEAST_PASSES for passes, _ in whole.values()], axis=0)).tolist()
    ]
    return plot, Table.of(f"{title}, all tasks together", ("tokens", *whole), rows)


def _lost(found: Sequence[LostTokens]) -> tuple[Plot, Table]:
    facts = [(one, one.to_json()) for one in found]
    shares = [of["tokens_share"] or dict.fromkeys(CAUSES) for _, of in facts]
    traces = [
        plots.bars(TITLES[cause], [one.task for one in found], [of[cause] for of in shares], series=SERIES[cause])
        for cause in CAUSES
    ]
    plot = Plot(
        title="Lost tokens by cause",
        alt="Stacked bars of the share of lost tokens by cause, one per task.",
        views=[PlotView(name="all tasks", traces=traces)],
        layout=plots.axes("", "share of lost tokens", y_tickformat=".0%", barmode="stack"),
    )
    rows = [
        (one.task, one.steps, one.whole / one.steps if one.steps else None, of["lost_tokens"], *share.values())
        for (one, of), share in zip(facts, shares)
    ]
    headers = ("task", "steps", "steps without loss", "lost tokens", *TITLES.values())
    return plot, Table.of("Lost tokens by cause", headers, rows, ".1%", gist=_most(shares))


def _most(shares: Sequence[Mapping[str, float | None]]) -> str:
    """The cause of most lost tokens, mean over the tasks that lose some."""
    known = [share for share in shares if share["absent"] is not None]
    means = {cause: float(np.mean([share[cause] for share in known])) for cause in CAUSES if known}
    worst = max(means, key=means.__getitem__, default=None)
    return "nothing is lost" if worst is None else f"most: {TITLES[worst]}, {means[worst]:.0%}"


def _reliability(found: Sequence[Reliability]) -> tuple[Plot, Table, Table]:
    def sums(task: str | None) -> list[NDArray[Any]]:
        chosen = [one for one in found if task in (None, one.task)]
        return [np.sum([getattr(one, name) for one in chosen], axis=0) for name in ("nodes", "expected", "accepted")]

    def traces(task: str | None) -> list[dict[str, Any]]:
        nodes, expected, accepted = sums(task)
        kept = (nodes >= LEAST_NODES) & (accepted > 0)
        x, y = (np.round(of[kept] / nodes[kept], 5).tolist() for of in (expected, accepted))
        texts, ends = [f"{count:,} nodes" for count in nodes[kept].tolist()], [TICKS[0], TICKS[-1]]
        return [
            plots.curve("accepted", x, y, series="open", texts=texts),
            plots.curve("calibrated", ends, ends, series="oracle", dash="dash", mode="lines"),
        ]

    plot = Plot(
        title="Accepted share of nodes against their q",
        alt="Points of the accepted share of nodes over their q, and the diagonal; the table below has the figures.",
        views=plots.views([one.task for one in found], traces, whole="all tasks"),
        layout=plots.axes("q of the prefix", "share accepted", **plots.powers(TICKS), **plots.powers(TICKS, "y")),
    )
    by_q = [
        (f"{low:g}–{high:g}", n, *((mass / n, hits / n) if n else (None, None)), hits)
        for low, high, n, mass, hits in zip(EDGES, EDGES[1:], *(of.tolist() for of in sums(None)))
    ]
    by_task = []
    for one in found:
        expected, accepted = (float(of.sum()) / max(one.passes, 1) for of in (one.expected, one.accepted))
        by_task.append((one.task, one.passes, expected, accepted, expected / accepted if accepted else None))
    return (
        plot,
        Table.of("Nodes by q, all tasks together", ("q", "nodes", "mean q", "accepted", "nodes accepted"), by_q, ".1%"),
        Table.of(
            "Accepted tokens per pass, expected and observed",
            ("task", "passes", "expected", "accepted", "expected / accepted"),
            by_task,
        ),
    )
