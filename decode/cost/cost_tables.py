"""The rows of `rescore cost`, by the keys of its JSON, and their columns, as it and reports show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rescore.decode.cost.cost_model import (
    PLAIN,
    CostOptions,
    Method,
    Roofline,
    Stopwatch,
    forecast,
    held_bytes,
    per_token,
    stops_paying,
)

BATCHES = (1, 8, 64)
LENGTHS = (128, 512, 1024, 2048)  # of texts, as in Kim et al., table 11
EVERY_BATCH = range(1, 1025)

Rows = list[dict[str, Any]]
Columns = dict[str, tuple[str, list[Any]]]  # by header: the numbers' format, and a value of each row, None without one


def batches_of(options: CostOptions, wanted: Sequence[int]) -> Sequence[int]:
    """The measured batches if passes were measured, else `wanted`."""
    return sorted(options.clock.passes) if isinstance(options.clock, Stopwatch) else wanted


def token_rows(options: CostOptions, ways: Sequence[Method]) -> Rows:
    """A decoded token by plain decoding and by every way, one text at a time: what it moves and computes."""
    lengths = sorted({*LENGTHS, options.length})
    found = []
    for way in (PLAIN, *ways):
        work = {length: per_token(options.shape, way, length=length, precision=options.precision) for length in lengths}
        found.append(
            {
                "way": way.name,
                "tokens_per_pass": way.tokens_per_pass,
                "verified": way.verified,
                "parameter_bytes": work[options.length].parameter_bytes,
                "cache_bytes": {str(length): one.cache_bytes for length, one in work.items()},
                "flops": work[options.length].flops,
            }
        )
    return found


def token_columns(rows: Rows) -> Columns:
    return {
        "tokens/pass": (".3f", [row["tokens_per_pass"] for row in rows]),
        "verified": (".0f", [row["verified"] for row in rows]),
        "GB parameters": (".3f", [1e-9 * row["parameter_bytes"] for row in rows]),
        **{
            f"GB cache, {at}": (".3f", [1e-9 * row["cache_bytes"][at] for row in rows]) for at in rows[0]["cache_bytes"]
        },
        "GFLOP": (".2f", [1e-9 * row["flops"] for row in rows]),
    }


def step_rows(options: CostOptions, ways: Sequence[Method], batches: Sequence[int]) -> Rows:
    """A step by plain decoding and by every way, for each number of texts at once: its time and what it needs."""
    shape, clock, at = options.shape, options.clock, {"length": options.length}
    pays = stops_paying(shape, ways, clock, batches=batches_of(options, EVERY_BATCH), **at)
    roofline = clock if isinstance(clock, Roofline) else None
    found = []
    for batch in batches:
        forecasts = forecast(shape, ways, clock, batch=batch, **at)
        best = max(forecasts, key=lambda one: one.tokens_per_s)  # the first of equal ones: plain decoding
        for one in forecasts:
            resident = held_bytes(shape, one.way, batch=batch, precision=options.precision, **at)
            found.append(
                {
                    "batch": batch,
                    "way": one.way.name,
                    "tokens_per_pass": one.way.tokens_per_pass,
                    "verified": one.way.verified,
                    "step_ms": 1e3 * one.step_s,
                    "drafting_ms": 1e3 * one.drafting_s,
                    "tokens_per_s": one.tokens_per_s,
                    "times_plain": one.times_plain,
                    "fastest": one is best,
                    "bound": roofline.bound(shape, one.way, batch=batch, **at) if roofline else None,
                    "resident_bytes": resident,
                    "fits": resident <= roofline.accelerator.memory if roofline else None,
                    "stops_paying_at": pays.get(one.way.name),
                }
            )
    return found


def step_columns(rows: Rows) -> Columns:
    """An exclamation mark: more than the accelerator's memory."""
    gigabytes = [1e-9 * row["resident_bytes"] for row in rows]
    held = [f"{size:.1f}!" if row["fits"] is False else size for row, size in zip(rows, gigabytes)]
    found: Columns = {
        "ms/step": (".2f", [row["step_ms"] for row in rows]),
        "drafting": (".0%", [row["drafting_ms"] / row["step_ms"] for row in rows]),
        "tokens/s": (",.0f", [row["tokens_per_s"] for row in rows]),
        "x plain": (".2f", [row["times_plain"] for row in rows]),
        "bound": ("", [row["bound"] for row in rows]),
        "GB": (".1f", held),
        "pays below": ("", [row["stops_paying_at"] for row in rows]),
    }
    return {header: column for header, column in found.items() if any(value is not None for value in column[1])}


def step_title(rows: Rows, length: int) -> str:
    """Of the rows with one number of texts: "8 texts at once after 1,024 tokens; fastest: blend 16"."""
    batch, best = rows[0]["batch"], next(row["way"] for row in rows if row["fastest"])
    return f"{batch} text{'s' * (batch > 1)} at once after {length:,} tokens; fastest: {best}"
