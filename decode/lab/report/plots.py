"""What plots have in common: colours and curves of the drafters, views, axes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rescore.decode.draft.registry import split
from rescore.decode.lab.replay.figures import Interval
from rescore.decode.lab.report.content import Curve

# The colour, by name in the page's style, and the dash of a drafter's curve, in the legend's order.
STYLES = {
    "blend tuned": ("tuned", "solid"),
    "blend": ("open", "solid"),
    "blend-without-heads": ("lm-text", "dash"),
    "blend-without-heads tuned": ("lm-text", "dashdot"),
    "blend-without-lm": ("lm-text", "dot"),
    "blend-without-lm tuned": ("lm-text", "longdash"),
    "tree tuned": ("tree", "dash"),
    "tree": ("tree", "solid"),
    "heads-tree": ("tree-base", "solid"),
    "medusa-tree": ("medusa", "dash"),
    "eagle-2-tree": ("eagle", "dashdot"),
    "parallel-rescored": ("paths", "solid"),
    "parallel-rescored tuned": ("paths", "dash"),
    "parallel-base": ("paths-base", "solid"),
    "neural": ("neural", "dot"),
    "lm-alone": ("lm-alone", "solid"),
    "suffix-decoding": ("pushed", "solid"),
    "logit-spec": ("medusa", "solid"),
    "racer": ("paths", "solid"),
    "token-recycling": ("eagle", "solid"),
    "prompt-lookup": ("paths-base", "solid"),
    "oracle": ("oracle", "dash"),
}
# One path is a point on the curve of several.
SEVERAL = {
    "rescored": "parallel-rescored",
    "rescored tuned": "parallel-rescored tuned",
    "base": "parallel-base",
    "neural beam": "neural",
}
DOUBLED = tuple(2**i for i in range(20))


def curve_of(name: str) -> str:
    """The title of the curve that a drafter is a point of: "tree 16" and "tree 64" are on "tree"."""
    stem, _ = split(name)
    return SEVERAL.get(stem, stem)


def style(name: str) -> tuple[str, str]:
    """The series and dash of a drafter's curve."""
    return STYLES.get(curve_of(name), ("other", "solid"))


def curves(names: Collection[str]) -> dict[str, list[str]]:
    """The drafters of each curve, by title, in the legend's order; others come last."""
    titles = [curve_of(name) for name in names]
    order = [*(title for title in STYLES if title in titles), *(title for title in titles if title not in STYLES)]
    return {title: [name for name in names if curve_of(name) == title] for title in order}


def ordered(values: Mapping[str, Sequence[float | Interval | None]], x: Sequence[float | str]) -> list[Curve]:
    """Curves over the same x with colours from a scale, in order."""
    last = max(len(values) - 1, 1)
    return [Curve(name=name, x=x, y=y, series=place / last) for place, (name, y) in enumerate(values.items())]


def views(
    tasks: Sequence[str], curves: Callable[[str | None], Sequence[Curve]], whole: str = "mean over tasks"
) -> dict[str, Sequence[Curve]]:
    """A view of all tasks together and, if there are several, one of each. curves: of a task, or of all (None)."""
    return {whole: curves(None)} | ({task: curves(task) for task in tasks} if len(tasks) > 1 else {})


def logarithmic(ticks: Sequence[float] = DOUBLED) -> dict[str, Any]:
    """A logarithmic axis with these ticks."""
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
