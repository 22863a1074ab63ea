"""Block efficiency against verified tokens per pass, and the paper's table 4 for this dump."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rescore.decode.draft.names import (
    BASE,
    BLEND,
    EAGLE_TREE,
    HEADS_TREE,
    MEDUSA_TREE,
    ORACLE,
    PARALLEL_BASE,
    PARALLEL_RESCORED,
    PROMPT_LOOKUP,
    RECYCLING,
    SUFFIX_DECODING,
    TREE,
    TUNED,
    TUNED_BLEND,
    TUNED_TREE,
    bounded,
    sized,
    split,
)
from rescore.decode.replay.figures import EQUAL, Figures
from rescore.decode.report import families, numbers, plots
from rescore.decode.report.content import Cell, Plot, PlotView, Section, Table, Tile

# Table 4 of Kim et al.: dataset, base, 4-gram, neural 61M, parallel base, parallel 4-gram, oracle (k = 16).
PAPER = (
    ("LAMBADA", 3.12, 3.05, 3.08, 3.23, 3.29, 3.67),
    ("SQuAD V1", 2.08, 2.07, 2.10, 2.18, 2.22, 2.45),
    ("CNN/Daily", 1.74, 1.73, 1.73, 1.82, 1.83, 2.26),
    ("SAMSUM", 1.27, 1.29, 1.39, 1.37, 1.45, 1.95),
    ("MultiNews", 1.10, 1.12, 1.25, 1.13, 1.22, 1.43),
    ("XSUM", 1.13, 1.16, 1.23, 1.18, 1.26, 1.55),
    ("NewsRoom", 1.08, 1.18, 1.29, 1.11, 1.31, 1.50),
)
MEAN = "mean over tasks"
STRONG = tuple(sized(name, n) for name in (TREE, BLEND, TUNED_BLEND) for n in EQUAL)
TILES = (
    (BASE,),
    (PARALLEL_RESCORED, PARALLEL_BASE),
    *((sized(TUNED_TREE, n), sized(TREE, n), sized(HEADS_TREE, n)) for n in EQUAL),
    *((sized(TUNED_BLEND, n), sized(BLEND, n)) for n in EQUAL),
    (PROMPT_LOOKUP,),
    (RECYCLING,),
    *((sized(SUFFIX_DECODING, n),) for n in EQUAL),
    (ORACLE,),
)  # of each group the first that was replayed
TABLED: dict[str, tuple[int | None, ...]] = dict.fromkeys(
    (TUNED_BLEND, BLEND, TUNED_TREE, TREE, HEADS_TREE), (16, 32, 64, 128)
) | dict.fromkeys((PARALLEL_BASE, PARALLEL_RESCORED, PARALLEL_RESCORED + TUNED), (None,))
CURVES = 4
# Curves shown first: of each group the first that was replayed.
HEADLINE = (
    (TUNED_BLEND, BLEND),
    (TUNED_TREE, TREE),
    (HEADS_TREE,),
    (PARALLEL_RESCORED, PARALLEL_BASE),
    (MEDUSA_TREE,),
    (EAGLE_TREE,),
    (SUFFIX_DECODING,),
    (RECYCLING,),
    (PROMPT_LOOKUP,),
)
Values = dict[str, Any]


def section(figures: Figures) -> Section:
    overall, tasks = figures.overall, figures.tasks
    heads, ranges = (
        bool(overall["headroom_recovered"]),
        f"Ranges are {figures.level:.0%} bootstrap intervals over sequences ({figures.resamples:,} resamples, "
        f"seed {figures.seed}).",
    )
    meant = (
        "Block efficiency is generated tokens per pass of the target model; plain decoding has 1. Further left is "
        "cheaper, further up is better: compare drafters at the same number of verified tokens per pass."
    )
    if heads:
        prose = (
            f"{meant} The oracle (shown with all curves) is the upper bound of any choice among the heads' candidates. "
            "Blends and the LM alone also draft other tokens and may exceed it.",
            "Headroom is the distance from the base draft to the oracle, in tokens per pass. In the paper, 16 rescored "
            f"paths recover 17–55% of it, 33% on average, with 128 verified tokens. {ranges}",
        )
    else:
        prose = (
            f"{meant} {ranges}",
            "A replay lacks the predictions after rejected nodes, which decoding also counts.",
        )
    return Section(
        lead=True,
        key="efficiency",
        title="Block efficiency" if heads else "Tokens per pass",
        cites="table 4" if heads else "",
        prose=prose,
        parts=(
            plot(overall, tasks),
            table(overall, tasks),
            *((_headroom(overall, tasks), paper_table()) if heads else ()),
        ),
    )


def tiles(overall: Values) -> tuple[Tile, ...]:
    """The headline figures."""
    efficiency, headroom, verified = (
        overall[name] for name in ("block_efficiency", "headroom_recovered", "verified_per_pass")
    )

    def tile(name: str) -> Tile:
        share = headroom.get(name) if bounded(name) else None
        beside = f"{verified[name]:.0f} verified" + ("" if share is None else f", headroom {share:.0%}")
        return Tile(name=name, figure=f"{efficiency[name]:.2f}", beside=beside)

    shown = (next((name for name in names if name in efficiency), None) for names in TILES)
    return tuple(tile(name) for name in shown if name)


def plot(overall: Values, tasks: Sequence[Values]) -> Plot:
    views = [
        PlotView(name=MEAN, traces=_curves(overall)),
        *(PlotView(name=task["task"], traces=_curves(task)) for task in tasks),
    ]
    budgets = [
        value for name, value in overall["verified_per_pass"].items() if families.family_of(name).key != "oracle"
    ]
    ticks = [2.0**i for i in range(11) if min(budgets) / 1.5 <= 2**i <= max(budgets) * 1.5]
    return Plot(
        title="Tokens per pass against verified tokens per pass",
        alt=(
            "Curves of tokens per pass over verified tokens per pass, one per kind of drafter; "
            "the tables below have the same figures."
        ),
        views=views,
        layout=plots.axes("verified tokens per pass", "tokens per target pass", **plots.powers(ticks)),
    )


def _curves(figures: Values) -> list[dict[str, Any]]:
    efficiency, verified = figures["block_efficiency"], figures["verified_per_pass"]
    first = headline([split(name)[0] for name in efficiency])
    traces, budgets = [], []
    for family, names in families.curves(list(efficiency)):
        if family.key != "oracle":
            names = sorted(names, key=verified.__getitem__)
            budgets += [verified[name] for name in names]
            intervals = [_interval(figures, name) for name in names]
            trace = plots.curve(
                family.title,
                [verified[name] for name in names],
                [efficiency[name] for name in names],
                series=family.key,
                dash=family.dash,
                texts=names,
                intervals=intervals,
            )
            traces.append(trace if family.title in first else plots.further(trace))
    if ORACLE in efficiency:
        ends, level = [min(budgets), max(budgets)], efficiency[ORACLE]
        line = plots.curve(ORACLE, ends, [level, level], series="oracle", dash="dash", mode="lines", texts=[ORACLE] * 2)
        traces.append(plots.further(line))
    return traces


def headline(names: Collection[str]) -> list[str]:
    """The drafters, without budget, whose curves are shown first; at most CURVES."""
    found = (next((name for name in others if name in names), None) for others in HEADLINE)
    return [name for name in found if name is not None][:CURVES]


def table(overall: Values, tasks: Sequence[Values]) -> Table:
    share = ("headroom",) if overall["headroom_recovered"] else ()
    rows = []
    for name in tabled(overall):
        per_task = [numbers.decimal(task["block_efficiency"].get(name), 2, _interval(task, name)) for task in tasks]
        mean = numbers.decimal(overall["block_efficiency"][name], 3, _interval(overall, name))
        headroom = numbers.percent(
            overall["headroom_recovered"].get(name), 0, _interval(overall, name, "headroom_recovered")
        )
        rows.append(
            (
                _drafter(name),
                numbers.decimal(overall["verified_per_pass"][name], 0),
                *per_task,
                mean,
                *(headroom for _ in share),
                numbers.decimal(overall["accepted_per_verified"][name] if name != ORACLE else None, 3),
            )
        )
    headers = ("drafter", "verified", *(task["task"] for task in tasks), "mean", *share, "accepted / verified")
    return Table(
        title="Block efficiency per task",
        headers=headers,
        rows=rows,
        strong=_strong(overall),
        gist=_most(overall["block_efficiency"], ".2f"),
    )


def _most(values: dict[str, float | None], form: str) -> str:
    """The drafter with the largest value, the oracle excluded."""
    known = {name: value for name, value in values.items() if value is not None and name != ORACLE}
    best = max(known, key=known.__getitem__, default=None)
    return "" if best is None else f"best: {best}, {known[best]:{form}}"


def _headroom(overall: Values, tasks: Sequence[Values]) -> Table:
    rows = [
        (
            _drafter(name),
            numbers.decimal(overall["verified_per_pass"][name], 0),
            *(
                numbers.percent(task["headroom_recovered"].get(name), 0, _interval(task, name, "headroom_recovered"))
                for task in tasks
            ),
            numbers.percent(mean, 0, _interval(overall, name, "headroom_recovered")),
        )
        for name in tabled(overall)
        if (mean := overall["headroom_recovered"].get(name)) is not None
    ]
    return Table(
        title="Headroom recovered",
        headers=("drafter", "verified", *(task["task"] for task in tasks), "mean"),
        rows=rows,
        gist=_most(overall["headroom_recovered"], ".0%"),
    )


def _interval(figures: Values, name: str, measure: str = "block_efficiency") -> tuple[float, float] | None:
    """The bootstrap interval, if there is one."""
    return numbers.interval(figures["interval"].get(measure, {}).get(name))


def _drafter(name: str) -> Cell:
    return numbers.text(name)


def tabled(overall: Values) -> list[str]:
    """The rows of the paper and of `rescore run`, and baselines at two budgets; the plot has all."""
    return [
        name for name in overall["block_efficiency"] if split(name)[1] in TABLED.get(split(name)[0], (None, *EQUAL))
    ]


def _strong(overall: Values) -> frozenset[int]:
    return frozenset(place for place, name in enumerate(tabled(overall)) if name in STRONG)


def paper_table() -> Table:
    """Table 4 of the paper, with the headroom computed from its figures."""
    rows = []
    for name, base, ngram, neural, parallel, rescored, oracle in PAPER:
        share = (rescored - base) / (oracle - base)
        rows.append(
            (
                numbers.text(name),
                *(numbers.decimal(value) for value in (base, ngram, neural, parallel, rescored, oracle)),
                numbers.percent(share),
            )
        )
    headers = (
        "dataset",
        "base",
        "4-gram",
        "neural 61M",
        "parallel base",
        "parallel 4-gram",
        "oracle k = 16",
        "headroom, parallel 4-gram",
    )
    return Table(
        title="The paper's table 4: a 1.5B-parameter model with 9 heads, greedy text",
        headers=headers,
        rows=rows,
        gist="16 rescored paths recover 17 to 55% of the headroom",
    )
