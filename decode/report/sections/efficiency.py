"""Block efficiency against verified tokens per pass: of all drafters, of parallel paths, and of the paper's table 4."""

from __future__ import annotations

from typing import Any

from rescore.decode.draft.names import bounded, sized, split
from rescore.decode.replay.figures import EQUAL, Figures
from rescore.decode.report import plots
from rescore.decode.report.content import Plot, Section, Table, Tile
from rescore.decode.report.measured import PATHS, Measured

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
STRONG = tuple(sized(name, n) for name in ("tree", "blend", "blend tuned") for n in EQUAL)
TILES = (
    ("base",),
    ("parallel-rescored", "parallel-base"),
    *((sized("tree tuned", n), sized("tree", n), sized("heads-tree", n)) for n in EQUAL),
    *((sized("blend tuned", n), sized("blend", n)) for n in EQUAL),
    ("prompt-lookup",),
    ("token-recycling",),
    *((sized("suffix-decoding", n),) for n in EQUAL),
    ("oracle",),
)  # of each group the first that was replayed
TABLED: dict[str, tuple[int | None, ...]] = dict.fromkeys(
    ("blend tuned", "blend", "tree tuned", "tree", "heads-tree"), (16, 32, 64, 128)
) | dict.fromkeys(("parallel-base", "parallel-rescored", "parallel-rescored tuned"), (None,))
CURVES = 4
# Curves shown first: of each group the first that was replayed.
HEADLINE = (
    ("blend tuned", "blend"),
    ("tree tuned", "tree"),
    ("heads-tree",),
    ("parallel-rescored", "parallel-base"),
    ("medusa-tree",),
    ("eagle-2-tree",),
    ("suffix-decoding",),
    ("token-recycling",),
    ("prompt-lookup",),
)


def section(measured: Measured) -> Section:
    figures = measured.figures
    prose = [
        "Block efficiency is generated tokens per pass of the target model; plain decoding has 1. Further left is "
        "cheaper, further up is better: compare drafters at the same number of verified tokens per pass. Ranges are "
        f"{figures.level:.0%} bootstrap intervals over sequences ({figures.resamples:,} resamples, seed "
        f"{figures.seed})."
    ]
    if "oracle" not in figures.names:
        prose.append("A replay lacks the predictions after rejected nodes, which decoding also counts.")
        parts: list[Plot | Table] = [_plot(figures), _by_task(figures)]
    else:
        prose.append(
            "The oracle (chosen in the legend) bounds any choice among the heads' candidates. Headroom is the distance "
            "from the base draft to it; in the paper, 16 rescored paths recover 17–55% of it, 33% on average, with 128 "
            "verified tokens. Blends and the LM alone also draft other tokens and may exceed the oracle. Parallel "
            "paths are the paper's method: each adds T tokens to verify, although most share a prefix."
        )
        parts = [
            _plot(figures),
            _by_task(figures),
            _headroom(figures),
            paper_table(),
            *_of_paths(figures, measured.options.budgets.p),
        ]
    return Section(
        lead=True,
        key="efficiency",
        title="Tokens per pass",
        cites="table 4, figure 7" if "oracle" in figures.names else "",
        prose=prose,
        parts=parts,
    )


def tiles(figures: Figures) -> tuple[Tile, ...]:
    """The headline figures."""
    overall = figures.overall

    def tile(name: str) -> Tile:
        share = overall["headroom_recovered"].get(name) if bounded(name) else None
        beside = f"{overall['verified_per_pass'][name]:.0f} verified"
        beside += "" if share is None else f", headroom {share:.0%}"
        return Tile(name=name, figure=f"{overall['block_efficiency'][name]:.2f}", beside=beside)

    shown = (next((name for name in names if name in figures.names), None) for names in TILES)
    return tuple(tile(name) for name in shown if name)


def headline(figures: Figures) -> list[str]:
    """The titles of the curves that are shown first."""
    stems = {split(name)[0] for name in figures.names}
    found = (next((name for name in group if name in stems), None) for group in HEADLINE)
    return [plots.curve_of(name) for name in found if name][:CURVES]


def _plot(figures: Figures) -> Plot:
    budgets = [value for name, value in figures.overall["verified_per_pass"].items() if name != "oracle"]
    ticks = [2.0**i for i in range(11) if min(budgets) / 1.5 <= 2**i <= max(budgets) * 1.5]
    return Plot(
        title="Tokens per pass against verified tokens per pass",
        alt=(
            "Curves of tokens per pass over verified tokens per pass, one per kind of drafter; "
            "the tables below have the same figures."
        ),
        views=plots.views(figures.task_names, lambda task: _curves(figures, task)),
        layout=plots.axes("verified tokens per pass", "tokens per target pass", **plots.powers(ticks)),
    )


def _curves(figures: Figures, task: str | None) -> list[dict[str, Any]]:
    verified, first = figures.at(task)["verified_per_pass"], headline(figures)
    known = [name for name in figures.names if name in verified]
    ends = [pick(verified[name] for name in known if name != "oracle") for pick in (min, max)]
    traces = []
    for title, names in plots.curves(known).items():
        names, mode = sorted(names, key=verified.__getitem__), "lines+markers"
        x = [verified[name] for name in names]
        if title == "oracle":
            names, x, mode = ["oracle"] * 2, ends, "lines"
        y = [figures.value(name, task) for name in names]
        trace = plots.curve(title, x, y, mode=mode, texts=names, **plots.style(title))
        traces.append(trace if title in first else plots.further(trace))
    return traces


def tabled(figures: Figures) -> list[str]:
    """The drafters of the tables: those of `rescore run`, and baselines at two budgets; the plot has all."""
    return [name for name in figures.names if split(name)[1] in TABLED.get(split(name)[0], (None, *EQUAL))]


def _by_task(figures: Figures) -> Table:
    names, heads, overall = tabled(figures), "oracle" in figures.names, figures.overall
    rows = [
        (
            name,
            overall["verified_per_pass"][name],
            *(figures.value(name, task) for task in figures.task_names),
            figures.value(name),
            *([figures.value(name, measure="headroom_recovered") if bounded(name) else None] if heads else []),
            overall["accepted_per_verified"][name] if name != "oracle" else None,
        )
        for name in names
    ]
    return Table.of(
        "Block efficiency per task",
        ("drafter", "verified", *figures.task_names, "mean", *(["headroom"] * heads), "accepted / verified"),
        rows,
        {"verified": ".0f", "mean": ".3f", "headroom": ".0%", "accepted / verified": ".3f"},
        strong=frozenset(place for place, name in enumerate(names) if name in STRONG),
        gist=_best(overall["block_efficiency"], ".2f"),
    )


def _best(values: dict[str, float], form: str) -> str:
    """The drafter with the largest value, the oracle excluded."""
    best = max((name for name in values if name != "oracle"), key=values.__getitem__, default=None)
    return "" if best is None else f"best: {best}, {values[best]:{form}}"


def _headroom(figures: Figures) -> Table:
    shares = {name: value for name, value in figures.overall["headroom_recovered"].items() if bounded(name)}
    rows = [
        (
            name,
            figures.overall["verified_per_pass"][name],
            *(figures.value(name, task, "headroom_recovered") for task in (*figures.task_names, None)),
        )
        for name in tabled(figures)
        if name in shares
    ]
    return Table.of(
        "Headroom recovered",
        ("drafter", "verified", *figures.task_names, "mean"),
        rows,
        dict.fromkeys((*figures.task_names, "mean"), ".0%") | {"verified": ".0f"},
        gist=_best(shares, ".0%"),
    )


def paper_table() -> Table:
    """Table 4 of the paper, with the headroom computed from its figures."""
    share = "headroom, parallel 4-gram"
    return Table.of(
        "Kim et al. 2024, table 4: a 1.5B-parameter model with 9 heads, greedy text",
        ("dataset", "base", "4-gram", "neural 61M", "parallel base", "parallel 4-gram", "oracle k = 16", share),
        [(*row, (row[5] - row[1]) / (row[6] - row[1])) for row in PAPER],
        {share: ".0%"},
        gist="16 rescored paths recover 17 to 55% of the headroom",
    )


def _of_paths(figures: Figures, p: int) -> tuple[Plot, Table]:
    """Figure 7 of the paper: block efficiency by the number of paths, with the language model and without."""
    budgets = sorted({1, p, *PATHS})
    found = {
        many: {
            budget: name
            for budget in budgets
            for name in [one if budget == 1 else many if budget == p else sized(many, budget)]
            if name in figures.names
        }
        for one, many in (("rescored", "parallel-rescored"), ("base", "parallel-base"))
    }
    tasks = figures.task_names
    plot = Plot(
        title="Block efficiency against paths",
        alt="Two curves over the number of paths: with the language model and without.",
        views=plots.views(
            tasks,
            lambda task: [
                plots.curve(many, [*names], [figures.value(name, task) for name in names.values()], **plots.style(many))
                for many, names in found.items()
                if names
            ],
        ),
        layout=plots.axes("paths, p", "tokens per target pass", **plots.powers(budgets)),
    )
    rows = [
        (many, budget, *(figures.value(name, task) for task in (*tasks, None)))
        for many, names in found.items()
        for budget, name in names.items()
    ]
    title = "Block efficiency of the p best paths"
    return plot, Table.of(title, ("draft", "p", *tasks, "mean"), rows, {"mean": ".3f"})
