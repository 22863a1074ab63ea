"""What decoding costs with each way of drafting: bytes moved and operations for each decoded token, and the time that
follows.

After the paper's appendix I (blockwise-parallel-drafts.txt), counted for a pass that keeps its keys and values
(docs/use/cost-model.md):

    tokens of a pass  m = rows + verified                rows: 1, or p where p drafts are rows of a batch
    parameters        read once for the whole batch; with heads, theirs and the output matrix once more
    cache             B (copies L + m) tokens            copies: 1, or the rows where each keeps the text's keys for
                      itself
    operations        B m (2 N + 4 layers width (L + m / rows))

N is what a pass multiplies by, L the text's length, B texts decoded at once. All of it divided by B times the block
efficiency is what one decoded token costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rescore.decode.cost.hardware import Accelerator
from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.cost.pass_costs import PassCosts


def _at_least(name: str, value: float, least: float, owner: str = "") -> None:
    if not (math.isfinite(value) and value >= least):
        raise ValueError(
            f"{owner + ': ' if owner else ''}{name}: expected a finite number of at least {least:g}, got {value!r}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to decode, and what was measured of it.

    tokens_per_pass  block efficiency, at least 1
    verified         draft tokens that a pass verifies, in all rows of a text
    rows             of the batch for each text: p where p drafts are verified as a batch, else 1
    shared_cache     whether the rows of a text read its keys and values once, as a tree's nodes do
    slots            T where heads propose, 0 where nothing of the target does
    drafting         seconds of the search for each text and step, on the processor
    small, small_passes  a small model that rescores or drafts, and its passes for each step
    """

    name: str
    tokens_per_pass: float
    verified: float = 0.0
    rows: int = 1
    shared_cache: bool = True
    slots: int = 0
    drafting: float = 0.0
    small: ModelShape | None = None
    small_passes: int = 1

    def __post_init__(self) -> None:
        _at_least("tokens_per_pass", self.tokens_per_pass, 1, self.name)
        _at_least("verified", self.verified, 0, self.name)
        _at_least("rows", self.rows, 1, self.name)
        _at_least("slots", self.slots, 0, self.name)
        _at_least("drafting", self.drafting, 0, self.name)
        _at_least("small_passes", self.small_passes, 1, self.name)
        if self.tokens_per_pass > 1 + self.verified:
            raise ValueError(
                f"{self.name}: expected at most 1 + verified = {1 + self.verified:g} tokens per pass, "
                f"got {self.tokens_per_pass:g}"
            )

    @property
    def tokens(self) -> float:
        """m, of a pass for each text."""
        return self.rows + self.verified


PLAIN = Way(name="autoregressive", tokens_per_pass=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes of a parameter and of a number in the cache."""

    parameter: float = 2.0
    cache: float = 2.0

    def __post_init__(self) -> None:
        for name in ("parameter", "cache"):
            if not 0 < getattr(self, name) <= 8:
                raise ValueError(f"{name}: expected more than 0 and at most 8 bytes, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassWork:
    """What one piece of a step moves (bytes) and computes (operations; a multiply-add is two)."""

    parameter_bytes: float
    cache_bytes: float
    flops: float

    @property
    def bytes(self) -> float:
        return self.parameter_bytes + self.cache_bytes


def step_work(shape: ModelShape, way: Way, *, batch: int, length: int, precision: Precision) -> tuple[PassWork, ...]:
    """The target's pass, then that of its heads and those of a small model where there are any; one waits for the
    other.
    """
    _at_least("batch", batch, 1)
    _at_least("length", length, 0)
    work = [_pass(shape, batch, way.tokens, way.rows, 1 if way.shared_cache else way.rows, length, precision)]
    if way.slots:
        output = shape.vocab_size * shape.width
        work.append(
            PassWork(
                parameter_bytes=precision.parameter * (shape.block_parameters + output),
                cache_bytes=0.0,
                flops=2.0 * batch * (shape.block_parameters + way.slots * output),
            )
        )
    if way.small is not None:
        work += [_pass(way.small, batch, 1, 1, 1, length, precision)] * way.small_passes
    return tuple(work)


def _pass(
    shape: ModelShape, batch: int, tokens: float, rows: int, copies: int, length: int, precision: Precision
) -> PassWork:
    attention = 4.0 * shape.layers * shape.attention_width * (length + tokens / rows)
    return PassWork(
        parameter_bytes=precision.parameter * shape.read_parameters,
        cache_bytes=precision.cache * shape.cache_numbers * batch * (copies * length + tokens),
        flops=batch * tokens * (2.0 * shape.read_parameters + attention),
    )


def per_token(
    shape: ModelShape, way: Way, *, batch: int = 1, length: int, precision: Precision | None = None
) -> PassWork:
    """What one decoded token costs, all pieces of a step together: a column of the paper's table 11."""
    work = step_work(shape, way, batch=batch, length=length, precision=precision or Precision())
    share = 1.0 / (batch * way.tokens_per_pass)
    return PassWork(
        parameter_bytes=share * sum(one.parameter_bytes for one in work),
        cache_bytes=share * sum(one.cache_bytes for one in work),
        flops=share * sum(one.flops for one in work),
    )


def held_bytes(shape: ModelShape, way: Way, *, batch: int, length: int, precision: Precision) -> float:
    """Bytes of parameters and cache that lie in memory at once, without activations."""
    copies = 1 if way.shared_cache else way.rows
    small = way.small
    cache = shape.cache_numbers * (copies * length + way.tokens) + (small.cache_numbers * length if small else 0)
    return (
        precision.parameter * (shape.stored_parameters + (small.stored_parameters if small else 0))
        + precision.cache * batch * cache
    )


class Clock(Protocol):
    """Where the time of a step without its drafting comes from."""

    def seconds(self, shape: ModelShape, way: Way, *, batch: int, length: int) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Of each piece of a step the longer of its memory time and its compute time (Williams et al. 2009).

    bandwidth_share, compute_share  of the data sheet's figures that kernels reach; assumptions, not measurements
    overhead                        seconds of each step besides: launches, sampling
    """

    accelerator: Accelerator
    precision: Precision = Precision()
    bandwidth_share: float = 0.8
    compute_share: float = 0.6
    overhead: float = 0.0

    def __post_init__(self) -> None:
        for name in ("bandwidth_share", "compute_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected more than 0 and at most 1, got {getattr(self, name)!r}")
        _at_least("overhead", self.overhead, 0)

    def seconds(self, shape: ModelShape, way: Way, *, batch: int, length: int) -> float:
        return self.overhead + sum(
            max(self.parts(one)) for one in step_work(shape, way, batch=batch, length=length, precision=self.precision)
        )

    def parts(self, work: PassWork) -> tuple[float, float]:
        """Memory time and compute time."""
        memory = work.bytes / (self.bandwidth_share * self.accelerator.bandwidth)
        return memory, work.flops / (self.compute_share * self.accelerator.flops)

    def bound(self, shape: ModelShape, way: Way, *, batch: int, length: int) -> str:
        """`memory` or `compute`: what the target's pass waits for."""
        memory, compute = self.parts(step_work(shape, way, batch=batch, length=length, precision=self.precision)[0])
        return "compute" if compute > memory else "memory"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stopwatch:
    """Passes as they were measured on some machine, {batch: costs}; what heads and small models take is not in them."""

    passes: Mapping[int, PassCosts]

    def seconds(self, shape: ModelShape, way: Way, *, batch: int, length: int) -> float:
        if batch not in self.passes:
            raise ValueError(
                f"batch: expected one that passes were measured with, {', '.join(map(str, self.passes))}, "
                f"got {batch}; measure it with `rescore bench passes --batch {batch}`"
            )
        return float(self.passes[batch].at(batch * way.tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a way comes to. step_s: seconds of a step, drafting_s of it on the processor; times_plain: against plain
    decoding.
    """

    way: Way
    batch: int
    step_s: float
    drafting_s: float
    tokens_per_s: float
    times_plain: float


def forecast(shape: ModelShape, ways: Sequence[Way], clock: Clock, *, batch: int, length: int) -> list[Forecast]:
    """Plain decoding and every way, in their order."""
    found: list[Forecast] = []
    for way in (PLAIN, *ways):
        drafting = batch * way.drafting
        step = clock.seconds(shape, way, batch=batch, length=length) + drafting
        rate = batch * way.tokens_per_pass / step
        plain = found[0].tokens_per_s if found else rate
        found.append(
            Forecast(
                way=way, batch=batch, step_s=step, drafting_s=drafting, tokens_per_s=rate, times_plain=rate / plain
            )
        )
    return found


def fastest(forecasts: Sequence[Forecast]) -> Forecast:
    """The one of the most tokens per second; the first of equals, so plain decoding where drafts bring nothing."""
    return max(forecasts, key=lambda one: one.tokens_per_s)


def stops_paying(
    shape: ModelShape, ways: Sequence[Way], clock: Clock, *, batches: Sequence[int], length: int
) -> dict[str, int | None]:
    """For every way the least of the batches (ascending) from which on it is nowhere faster than plain decoding; None
    where it is at the largest.
    """
    last = {way.name: -1 for way in ways}
    for place, batch in enumerate(batches):
        for one in forecast(shape, ways, clock, batch=batch, length=length)[1:]:
            if one.times_plain > 1:
                last[one.way.name] = place
    return {name: batches[place + 1] if place + 1 < len(batches) else None for name, place in last.items()}
