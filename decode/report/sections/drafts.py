"""The drafts: acceptance by position, tokens per pass along the text, causes of lost tokens, calibration of q."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.analyses.lost_tokens import LostTokens
from rescore.decode.replay.analyses.reliability import Reliability
from rescore.decode.replay.run import DumpResult
from rescore.decode.report import plots
from rescore.decode.report.content import Curve, Plot, Section
from rescore.decode.report.measured import BUDGET, LARGER, Measured

SLOTS = 16  # in the plot of acceptance by position, without heads
LEAST_PASSES, LEAST_NODES = 30, 30  # bins of fewer are not plotted
# Title and series of each cause of lost tokens.
LOST = {
    "absent": ("not in the lattice", "other"),
    "lm": ("misranked by the LM", "paths-base"),
    "budget": ("lost to the budget", "lm-alone"),
    "heads": ("ranked too low", "tree-base"),
}
TICKS = (0.001, 0.01, 0.1, 1.0)
DASHES = ("solid", "dot", "dashdot", "dash")  # drafters of one colour


def section(measured: Measured) -> Section:
    prose = [
        "Acceptance by position: if a curve falls steeply at first, the first slots matter most, and nodes at later "
        "ones are rarely reached. Along the text: a longer running text offers more to copy from. Bins of fewer than "
        f"{LEAST_PASSES} passes are left out."
    ]
    found = [_acceptance(measured), _along_text(measured.result)]
    if measured.lost:
        prose.append(
            f"Lost tokens, by why a tree of {BUDGET} nodes was rejected there: the true token is not among the "
            "candidates; else the tree of the heads alone has it, so the language model misranked it; else a tree of "
            f"{LARGER} nodes has it, so it is lost to the budget; else heads and language model rank it too low."
        )
        found.append(_lost(measured.lost))
    if measured.q:
        prose.append(
            f"Calibration: the nodes drafted by {measured.q_of}, binned by the probability q of their prefix, and the "
            "share of them that was accepted. Below the dashed line q is overconfident, above it underconfident."
        )
        found.append(_reliability(measured.q))
    return Section(key="drafts", title="The drafts", prose=prose, plots=found)


def _counted(result: DumpResult, counts: str, task: str | None) -> Iterator[tuple[dict[str, Any], NDArray[np.int64]]]:
    """Name, series and dash of the main drafters' curves, and their `Tally.by_slot` or `by_length`, of a task or of all
    tasks together.
    """
    tallies = [one.tallies for one in result.tasks if task in (None, one.task)]
    seen = Counter[str]()
    for name in plots.main_drafters(result.names):
        series, _ = plots.style(name)
        style = {"name": name, "series": series, "dash": DASHES[seen[series] % len(DASHES)]}
        yield style, np.sum([getattr(of[name], counts) for of in tallies], axis=0)
        seen[series] += 1


def _acceptance(measured: Measured) -> Plot:
    slots = measured.dump.slots or SLOTS

    def curves(task: str | None) -> list[Curve]:
        found = []
        for style, (drafts, accepted, _) in _counted(measured.result, "by_slot", task):
            shares = [a / n if n else None for n, a in zip(drafts[:slots].tolist(), accepted.tolist())]
            found.append(Curve(x=[*range(1, slots + 1)], y=shares, **style))
        return found

    return Plot(
        title="Drafts accepted up to a position",
        x="position in the draft",
        y="share of drafts",
        views=plots.views(measured.figures.task_names, curves, whole="all tasks"),
        percent=True,
        xaxis={"dtick": 1},
        yaxis={"rangemode": "tozero"},
    )


def _along_text(result: DumpResult) -> Plot:
    def curves(task: str | None) -> list[Curve]:
        found = []
        for style, (passes, tokens) in _counted(result, "by_length", task):
            bins = np.flatnonzero(passes >= LEAST_PASSES)
            texts = [f"{style['name']}, {count:,} passes" for count in passes[bins].tolist()]
            y = (tokens[bins] / passes[bins]).tolist()
            found.append(Curve(x=[2**place for place in bins.tolist()], y=y, texts=texts, **style))
        return found

    return Plot(
        title="Tokens per pass by tokens generated before the pass",
        x="tokens generated before the pass, from",
        y="tokens per target pass",
        views=plots.views([task.task for task in result.tasks], curves, whole="all tasks"),
        xaxis=plots.logarithmic(),
    )


def _lost(found: Sequence[LostTokens]) -> Plot:
    shares = [one.to_json()["tokens_share"] or {} for one in found]
    tasks = [one.task for one in found]
    curves = [
        Curve(name=title, x=tasks, y=[of.get(cause) for of in shares], series=series, mode="bars")
        for cause, (title, series) in LOST.items()
    ]
    return Plot(
        title="Lost tokens by cause",
        x="task",
        y="share of lost tokens",
        views={"all tasks": curves},
        percent=True,
        stacked=True,
    )


def _reliability(found: Sequence[Reliability]) -> Plot:
    def curves(task: str | None) -> list[Curve]:
        chosen = [one for one in found if task in (None, one.task)]
        nodes, expected, accepted = (
            np.sum([getattr(one, name) for one in chosen], axis=0) for name in ("nodes", "expected", "accepted")
        )
        kept = (nodes >= LEAST_NODES) & (accepted > 0)
        x, y = ((of[kept] / nodes[kept]).tolist() for of in (expected, accepted))
        return [
            Curve(name="accepted", x=x, y=y, series="open", texts=[f"{n:,} nodes" for n in nodes[kept].tolist()]),
            Curve(name="calibrated", x=x, y=x, series="oracle", dash="dash", mode="lines"),
        ]

    return Plot(
        title="Accepted share of nodes against their q",
        x="q of the prefix",
        y="share accepted",
        views=plots.views([one.task for one in found], curves, whole="all tasks"),
        xaxis=plots.logarithmic(TICKS),
        yaxis=plots.logarithmic(TICKS),
    )
