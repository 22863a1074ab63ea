"""Predicted speed on a machine: the cost model with this dump's block efficiencies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rescore.decode.cost.cost_model import (
    PLAIN,
    CostOptions,
    Forecast,
    Roofline,
    Stopwatch,
    Way,
    fastest,
    forecast,
    per_token,
)
from rescore.decode.draft.names import split
from rescore.decode.replay.figures import EQUAL
from rescore.decode.replay.replay import DrafterReplay
from rescore.decode.report import plots
from rescore.decode.report.content import Plot, PlotView, Section, Table
from rescore.decode.report.measured import Measured

PARALLEL = ("parallel-base", "parallel-rescored", "parallel-rescored tuned")  # several drafts as a batch
HEADLESS = ("lm-alone", "blend-without-heads", "blend-without-heads tuned")
SHOWN = (1, 8, 64)  # batches of the table
BATCHES = tuple(2**i for i in range(11))  # of the plot
LENGTHS = (128, 2048)  # of the cache in the table of bytes
ROWS = 1024  # lattices searched together, when a search is timed


def section(measured: Measured) -> Section | None:
    options = measured.options.cost
    if not options:
        return None
    drafters = ways(measured, options)
    by_batch = {batch: _forecast(options, drafters, batch) for batch in _batches(options, SHOWN)}
    best = "; ".join(
        f"{batch} text{'s' if batch > 1 else ''} at once: {fastest(found).way.name}, "
        f"{fastest(found).times_plain:.2f} times plain decoding"
        for batch, found in by_batch.items()
    )
    modelled = (
        ", except for the neural rescorer's passes, which are predicted too"
        if any(way.small for way in drafters)
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
        parts=(_plot(options, drafters), _times(by_batch), _bytes(options, drafters)),
    )


def ways(measured: Measured, options: CostOptions) -> list[Way]:
    """The drafters with a predicted cost: one and p paths, trees, the language model alone, greedy neural rescoring.

    The neural beam is left out: the cost model has no passes of several rows.
    """
    found, drafting, slots = [], drafting_seconds(measured), measured.dump.slots
    small = measured.neural.costed(options) if measured.neural else None
    for name in measured.figures.names:
        stem, _ = split(name)
        if name in ("oracle", "neural beam") or not is_costed(name) or (name == "neural" and small is None):
            continue
        found.append(
            Way(
                name=name,
                tokens_per_pass=measured.figures.overall["block_efficiency"][name],
                verified=measured.figures.overall["verified_per_pass"][name],
                rows=measured.options.budgets.p if stem in PARALLEL else 1,
                shared_cache=stem not in PARALLEL,
                slots=0 if stem in HEADLESS else slots,
                drafting=0.0 if name == "base" else drafting.get(name, 0.0),
                small=small if name == "neural" else None,
                small_passes=slots if name == "neural" else 1,
            )
        )
    return found


def is_costed(name: str) -> bool:
    """Whether a drafter's cost is predicted; of p paths, only for one p."""
    stem, budget = split(name)
    return budget is None or stem not in PARALLEL


def drafting_seconds(measured: Measured) -> Mapping[str, float]:
    """Wall-clock seconds per lattice, by drafter, on the first lattices of the part.

    Each budget is timed separately, since a search for 128 nodes says nothing about one for 8, and warmed up on the
    first sequence. Drafters without `budgets` or a measured search time are left out.
    """
    part = measured.options.split.part(measured.options.part)
    block = next(block for task in measured.figures.task_names for block in part.blocks(measured.dump, task))
    block = block.part(0, max(1, int((block.offsets <= ROWS).sum()) - 1))
    found = {}
    for drafter in (one for one in measured.drafters if isinstance(one, DrafterReplay)):
        for name, budget in drafter.budgets.items():
            if is_costed(name):
                alone = replace(drafter, budgets={name: budget})
                alone.outcomes(block.part(0, 1))
                outcome = alone.outcomes(block)[name]
                if outcome.seconds is not None and len(outcome.evaluated):
                    found[name] = float(outcome.seconds[outcome.evaluated].mean())
    return found


def _forecast(options: CostOptions, drafters: Sequence[Way], batch: int) -> list[Forecast]:
    """Of plain decoding, then of the drafters."""
    return forecast(options.shape, drafters, options.clock, batch=batch, length=options.length)


def _batches(options: CostOptions, wanted: Sequence[int]) -> Sequence[int]:
    """The measured batches if passes were measured, else `wanted`."""
    return sorted(options.clock.passes) if isinstance(options.clock, Stopwatch) else wanted


def _plot(options: CostOptions, drafters: Sequence[Way]) -> Plot:
    batches = _batches(options, BATCHES)
    of_batches = [_forecast(options, drafters, batch)[1:] for batch in batches]
    even = plots.curve(PLAIN.name, batches, [1.0] * len(batches), series="oracle", dash="dash", mode="lines")
    traces: dict[int, list[dict[str, Any]]] = {}
    for place, way in enumerate(drafters):
        y, series = [found[place].times_plain for found in of_batches], plots.style(way.name)["series"]
        traces.setdefault(round(way.verified), []).append(plots.curve(way.name, batches, y, series=series))
    views = [PlotView(name=f"{n} verified tokens", traces=[*found, even]) for n, found in traces.items()]
    return Plot(
        title="Speed relative to plain decoding",
        alt=(
            "Curves of tokens per second, as a multiple of plain decoding, over the number of texts decoded at once. "
            "Below 1, drafts do not pay."
        ),
        views=sorted(views, key=lambda view: view.name != "16 verified tokens"),
        layout=plots.axes("texts at once", "times plain decoding", **plots.powers(batches)),
    )


def _times(by_batch: dict[int, list[Forecast]]) -> Table:
    best = {batch: fastest(found) for batch, found in by_batch.items()}
    shown = [
        found for found in zip(*by_batch.values()) if _tabled(found[0].way, {one.way.name for one in best.values()})
    ]
    columns = {
        f"{batch} text{'s' if batch > 1 else ''}: {name}": form
        for batch in by_batch
        for name, form in (("ms", ".2f"), ("tokens/s", ",.0f"), ("× plain", ".2f"))
    }
    rows = [
        (
            found[0].way.name,
            *(value for one in found for value in (1e3 * one.step_s, one.tokens_per_s, one.times_plain)),
        )
        for found in shown
    ]
    title = ", with 1, 8 and 64 texts at once" if tuple(by_batch) == SHOWN else ", by texts at once"
    strong = frozenset(
        place for place, found in enumerate(shown) if any(one is wins for one, wins in zip(found, best.values()))
    )
    return Table.of(f"Time of a step{title}", ("way", *columns), rows, columns, strong=strong)


def _tabled(way: Way, best: Collection[str] = ()) -> bool:
    """Whether tables show it: all paths, trees at a few budgets, and the fastest at any batch."""
    return way.name in best or way.rows > 1 or way.verified < min(EQUAL) or round(way.verified) in EQUAL


def _bytes(options: CostOptions, drafters: Sequence[Way]) -> Table:
    """The paper's table 11 for this dump."""
    caches = {f"GB cache, {length}": length for length in LENGTHS}
    rows = []
    for way in (PLAIN, *(way for way in drafters if _tabled(way))):
        own, *cached = (
            per_token(options.shape, way, length=length, precision=options.precision)
            for length in (options.length, *caches.values())
        )
        gigabytes = [1e-9 * value for value in (own.parameter_bytes, *(one.cache_bytes for one in cached))]
        rows.append((way.name, way.tokens_per_pass, way.verified, *gigabytes, own.flops / 1e9))
    return Table.of(
        "Bytes moved and operations per decoded token, one text at a time",
        ("way", "tokens/pass", "verified", "GB parameters", *caches, "GFLOP"),
        rows,
        dict.fromkeys(("tokens/pass", "GB parameters", *caches), ".3f") | {"verified": ".0f", "GFLOP": ".1f"},
    )
