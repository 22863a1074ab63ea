"""Predicted speed on a machine: the cost model with this dump's block efficiencies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rescore.decode.cost.cost_model import (
    PLAIN,
    Clock,
    Forecast,
    Precision,
    Roofline,
    Stopwatch,
    Way,
    fastest,
    forecast,
    per_token,
)
from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.draft.names import (
    BASE,
    LM_ALONE,
    NEURAL,
    NEURAL_BEAM,
    ORACLE,
    PARALLEL,
    TUNED,
    WITHOUT_HEADS,
    split,
)
from rescore.decode.replay.figures import EQUAL, Figures
from rescore.decode.report import families, numbers, plots
from rescore.decode.report.content import Cell, Plot, PlotView, Section, Table
from rescore.decode.report.timing import is_costed

HEADLESS = (LM_ALONE, WITHOUT_HEADS, WITHOUT_HEADS + TUNED)
SHOWN = (1, 8, 64)  # batches of the table
BATCHES = tuple(2**i for i in range(11))  # of the plot
LENGTHS = (128, 2048)  # of the cache in the table of bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostOptions:
    """A model's shape and its name, a clock and the name of its machine, and the tokens in the cache."""

    name: str
    shape: ModelShape
    machine: str
    clock: Clock
    length: int = 1024
    precision: Precision = Precision()


def ways(
    figures: Figures, drafting: Mapping[str, float], slots: int, paths: int, small: ModelShape | None = None
) -> list[tuple[str, Way]]:
    """The drafters with a predicted cost, by family: one and p paths, trees, the language model alone, greedy neural
    rescoring.

    drafting  seconds per lattice
    small     the neural rescorer's shape; without it the rescorer is left out

    The neural beam is left out: the cost model has no passes of several rows.
    """
    found = []
    for name, efficiency in figures.overall["block_efficiency"].items():
        stem, _ = split(name)
        if name == ORACLE or not is_costed(name):
            continue
        if name == NEURAL_BEAM or (name == NEURAL and small is None):
            continue
        family = families.family_of(name)
        way = Way(
            name=name,
            tokens_per_pass=efficiency,
            verified=figures.overall["verified_per_pass"][name],
            rows=paths if stem in PARALLEL else 1,
            shared_cache=stem not in PARALLEL,
            slots=0 if stem in HEADLESS else slots,
            drafting=0.0 if name == BASE else drafting.get(name, 0.0),
            small=small if name == NEURAL else None,
            small_passes=slots if name == NEURAL else 1,
        )
        found.append((family.key, way))
    return found


def section(options: CostOptions, drafters: Sequence[tuple[str, Way]]) -> Section:
    all_ways = [way for _, way in drafters]
    batches = _batches(options, SHOWN)
    by_batch = {
        batch: forecast(options.shape, all_ways, options.clock, batch=batch, length=options.length) for batch in batches
    }
    best = "; ".join(
        f"{batch} text{'s' if batch > 1 else ''} at once: {fastest(found).way.name}, "
        f"{fastest(found).times_plain:.2f} times plain decoding"
        for batch, found in by_batch.items()
    )
    modelled = (
        ", except for the neural rescorer's passes, which are predicted too"
        if any(way.small for way in all_ways)
        else ""
    )
    source = (
        "Times are predicted, not measured: the longer of memory time and compute time, at assumed shares of the data "
        f"sheet's figures. Drafting is measured on this machine{modelled}."
        if isinstance(options.clock, Roofline)
        else "Passes are measured, without heads."
    )
    return Section(
        lead=True,
        key="cost",
        title=f"Cost: {options.name} on {options.machine}",
        cites="table 11",
        prose=(
            f"The speed of a model of shape {options.name} on {options.machine} with these block efficiencies, after "
            f"{options.length:,} tokens of text. {source}",
            f"Fastest: {best}. Drafts pay while passes are bound by memory. With many texts at once they are bound by "
            "arithmetic, and every verified token costs time.",
        ),
        parts=(_plot(options, drafters), _times(by_batch), _bytes(options, all_ways)),
    )


def _batches(options: CostOptions, wanted: Sequence[int]) -> Sequence[int]:
    """The measured batches if passes were measured, else `wanted`."""
    return sorted(options.clock.passes) if isinstance(options.clock, Stopwatch) else wanted


def _plot(options: CostOptions, drafters: Sequence[tuple[str, Way]]) -> Plot:
    batches = _batches(options, BATCHES)
    found = {
        batch: forecast(options.shape, [way for _, way in drafters], options.clock, batch=batch, length=options.length)[
            1:
        ]
        for batch in batches
    }
    views = []
    for wanted in dict.fromkeys(round(way.verified) for _, way in drafters):
        places = [place for place, (_, way) in enumerate(drafters) if round(way.verified) == wanted]
        traces = [
            plots.curve(
                drafters[place][1].name,
                [float(batch) for batch in batches],
                [found[batch][place].times_plain for batch in batches],
                series=drafters[place][0],
            )
            for place in places
        ]
        even = plots.curve(
            PLAIN.name,
            [float(batch) for batch in batches],
            [1.0] * len(batches),
            series="oracle",
            dash="dash",
            mode="lines",
        )
        views.append(PlotView(name=f"{wanted} verified tokens", traces=[*traces, even]))
    views.sort(key=lambda view: view.name != "16 verified tokens")
    return Plot(
        title="Speed relative to plain decoding",
        alt=(
            "Curves of tokens per second, as a multiple of plain decoding, over the number of texts decoded at once. "
            "Below 1, drafts do not pay."
        ),
        views=views,
        layout=plots.axes("texts at once", "times plain decoding", **plots.powers([float(batch) for batch in batches])),
    )


def _times(by_batch: dict[int, list[Forecast]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    strong: set[int] = set()
    best = {fastest(found).way.name for found in by_batch.values()}
    for place, one in enumerate(next(iter(by_batch.values()))):
        if not _tabled(one.way, best):
            continue
        cells: list[Cell] = []
        for found in by_batch.values():
            here = found[place]
            cells += [
                numbers.decimal(1e3 * here.step_s),
                numbers.count(here.tokens_per_s),
                numbers.decimal(here.times_plain),
            ]
            if here is fastest(found):
                strong.add(len(rows))
        rows.append((numbers.text(one.way.name), *cells))
    headers = [
        "way",
        *(
            f"{batch} text{'s' if batch > 1 else ''}: {name}"
            for batch in by_batch
            for name in ("ms", "tokens/s", "× plain")
        ),
    ]
    return Table(
        title="Time of a step, with 1, 8 and 64 texts at once"
        if tuple(by_batch) == SHOWN
        else "Time of a step, by texts at once",
        headers=headers,
        rows=rows,
        strong=frozenset(strong),
    )


def _tabled(way: Way, best: Collection[str] = ()) -> bool:
    """Whether tables show it: all paths, trees at a few budgets, and the fastest at any batch."""
    return way.name in best or way.rows > 1 or way.verified < min(EQUAL) or round(way.verified) in EQUAL


def _bytes(options: CostOptions, drafters: Sequence[Way]) -> Table:
    """The paper's table 11 for this dump."""
    rows = []
    for way in (PLAIN, *(way for way in drafters if _tabled(way))):
        own = per_token(options.shape, way, length=options.length, precision=options.precision)
        cache = [
            per_token(options.shape, way, length=length, precision=options.precision).cache_bytes for length in LENGTHS
        ]
        rows.append(
            (
                numbers.text(way.name),
                numbers.decimal(way.tokens_per_pass, 3),
                numbers.decimal(way.verified, 0),
                numbers.decimal(own.parameter_bytes / 1e9, 3),
                *(numbers.decimal(value / 1e9, 3) for value in cache),
                numbers.decimal(own.flops / 1e9, 1),
            )
        )
    headers = (
        "way",
        "tokens/pass",
        "verified",
        "GB parameters",
        *(f"GB cache, {length}" for length in LENGTHS),
        "GFLOP",
    )
    return Table(title="Bytes moved and operations per decoded token, one text at a time", headers=headers, rows=rows)
