"""Block efficiency against verified tokens per pass of all drafters."""

from __future__ import annotations

from rescore.decode.draft.registry import bounded, split
from rescore.decode.replay.figures import EQUAL, Figures
from rescore.decode.report import plots
from rescore.decode.report.content import Curve, Plot, Section, Table, Tile
from rescore.decode.report.measured import Measured


def section(measured: Measured) -> Section:
    figures = measured.figures
    prose = [
        "Block efficiency is generated tokens per pass of the target model; plain decoding has 1. Further left is "
        "cheaper, further up is better: compare drafters at the same number of verified tokens per pass. Ranges are "
        f"{figures.level:.0%} bootstrap intervals over sequences ({figures.resamples:,} resamples, seed "
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
        plots=[_plot(figures)],
        tables=[_by_task(figures)],
    )


def tiles(figures: Figures) -> tuple[Tile, ...]:
    """The headline figures."""
    overall = figures.overall

    def tile(name: str) -> Tile:
        share = overall["headroom_recovered"].get(name) if bounded(name) else None
        beside = f"{overall['verified_per_pass'][name]:.0f} verified"
        beside += "" if share is None else f", headroom {share:.0%}"
        return Tile(name=name, figure=f"{overall['block_efficiency'][name]:.2f}", beside=beside)

    return tuple(map(tile, plots.main_drafters(figures.names)))


def _plot(figures: Figures) -> Plot:
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
    shown = {plots.curve_of(name) for name in plots.main_drafters(figures.names) if name != "oracle"}
    known = [name for name in figures.names if name in verified]
    ends = [pick(verified[name] for name in known if name != "oracle") for pick in (min, max)]
    found = []
    for title, names in plots.curves(known).items():
        names, mode = sorted(names, key=verified.__getitem__), "lines+markers"
        x = [verified[name] for name in names]
        if title == "oracle":
            names, x, mode = ["oracle"] * 2, ends, "lines"
        y, (series, dash) = [figures.value(name, task) for name in names], plots.style(title)
        hidden = title not in shown
        found.append(Curve(name=title, x=x, y=y, series=series, dash=dash, mode=mode, texts=names, hidden=hidden))
    return found


def _by_task(figures: Figures) -> Table:
    """Of the drafters without a budget and at those compared first; the plot has all."""
    names = [name for name in figures.names if split(name)[1] in (None, *EQUAL)]
    main, heads, overall = plots.main_drafters(names), "oracle" in figures.names, figures.overall
    efficiency = overall["block_efficiency"]
    best = max((name for name in names if name != "oracle"), key=efficiency.__getitem__)
    rows = [
        (
            name,
            overall["verified_per_pass"][name],
            *(figures.value(name, task) for task in (*figures.task_names, None)),
            *([figures.value(name, measure="headroom_recovered") if bounded(name) else None] if heads else []),
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
