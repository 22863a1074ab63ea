"""The cost of decoding with each drafter: bytes moved and operations per decoded token, and the resulting time.

Follows appendix I of Kim et al. (blockwise-parallel-drafts.txt), for passes with a key-value cache
(docs/use/cost-model.md):

    tokens per pass  m = rows + verified             rows: 1, or p if p drafts are rows of a batch
    parameters       read once per batch; with heads, theirs and the output matrix once more
    cache            B (copies L + m) tokens         copies: 1, or `rows` if each row has its own cache of the text
    operations       B m (2 N + 4 layers width (L + m / rows))

N is the number of parameters that a pass multiplies by, L the length of the text, B the number of texts decoded at
once. Dividing by B times the block efficiency gives the cost per decoded token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.draft.pace import PassCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """An accelerator's data sheet figures.

    bandwidth  bytes per second
    flops      dense bfloat16 operations per second; a multiply-add is two
    memory     bytes
    """

    name: str
    bandwidth: float
    flops: float
    memory: float

    def __post_init__(self) -> None:
        for field in ("bandwidth", "flops", "memory"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{field}: expected a finite number above 0, got {value!r}")


def _sheet(name: str, gb_s: float, tflops: float, gb: float) -> Accelerator:
    return Accelerator(name=name, bandwidth=1e9 * gb_s, flops=1e12 * tflops, memory=1e9 * gb)


ACCELERATORS = {
    one.name: one
    for one in (
        # NVIDIA H200 Tensor Core GPU Datasheet: H200 SXM, 4.8 TB/s, 1,979 TFLOPS bfloat16 with sparsity, 141 GB.
        _sheet("h200", 4800, 989.5, 141),
        # NVIDIA H100 Tensor Core GPU Datasheet: H100 SXM, 3.35 TB/s, 1,979 TFLOPS bfloat16 with sparsity, 80 GB.
        _sheet("h100", 3350, 989.5, 80),
        # The same sheet: H100 PCIe, 2 TB/s, 1,513 TFLOPS bfloat16 with sparsity, 80 GB.
        _sheet("h100-pcie", 2000, 756.5, 80),
        # NVIDIA A100 Tensor Core GPU Datasheet: A100 80GB SXM, 2,039 GB/s, 312 TFLOPS bfloat16.
        _sheet("a100", 2039, 312, 80),
        # The same sheet's 40 GB SXM: 1,555 GB/s.
        _sheet("a100-40gb", 1555, 312, 40),
        # NVIDIA L40S Datasheet: 864 GB/s, 362.05 TFLOPS bfloat16 (733 with sparsity), 48 GB.
        _sheet("l40s", 864, 362.05, 48),
        # NVIDIA L4 Tensor Core GPU Datasheet: 300 GB/s, 242 TFLOPS bfloat16 with sparsity, 24 GB.
        _sheet("l4", 300, 121, 24),
        # NVIDIA A10 Tensor Core GPU Datasheet: 600 GB/s, 125 TFLOPS bfloat16, 24 GB.
        _sheet("a10", 600, 125, 24),
        # NVIDIA Ada GPU Architecture whitepaper, appendix A: RTX 4090, 1,008 GB/s, 165.2 TFLOPS bfloat16 with
        # float32 accumulation, 24 GB.
        _sheet("rtx-4090", 1008, 165.2, 24),
        # NVIDIA Ampere GA102 GPU Architecture whitepaper, appendix A: RTX 3090, 936 GB/s, 71 TFLOPS bfloat16
        # with float32 accumulation, 24 GB.
        _sheet("rtx-3090", 936, 71, 24),
        # AMD Instinct MI300X Data Sheet: 5.3 TB/s, 1,307.4 TFLOPS bfloat16, 192 GB.
        _sheet("mi300x", 5300, 1307.4, 192),
    )
}


def accelerator(text: str) -> Accelerator:
    """An accelerator by its name, in any case and with blanks for hyphens, or by three numbers: GB/s, TFLOPS, GB."""
    try:
        if text.count(",") == 2:
            return _sheet(text, *map(float, text.split(",")))
    except ValueError as error:
        raise ValueError(f"accelerator {text:.80}: {error}") from None
    found = ACCELERATORS.get(text.lower().replace(" ", "-"))
    if found is None:
        raise ValueError(
            f"accelerator {text:.80}: expected one of {', '.join(ACCELERATORS)}, or its GB/s, TFLOPS and GB of memory"
        )
    return found


def _at_least(name: str, value: float, least: float, owner: str = "") -> None:
    if not (math.isfinite(value) and value >= least):
        raise ValueError(
            f"{owner + ': ' if owner else ''}{name}: expected a finite number of at least {least:g}, got {value!r}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way to decode, with its measurements.

    tokens_per_pass  block efficiency, at least 1
    verified         draft tokens verified per pass, in all rows of a text
    rows             rows of the batch per text: p if p drafts are verified as a batch, else 1
    shared_cache     whether the rows of a text share its keys and values, as the nodes of a tree do
    slots            T if heads propose, 0 without heads
    drafting         CPU seconds of the search per text and step
    small, small_passes  a small model that rescores or drafts, and its passes per step
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
        for name in ("tokens_per_pass", "rows", "small_passes"):
            _at_least(name, getattr(self, name), 1, self.name)
        for name in ("verified", "slots", "drafting"):
            _at_least(name, getattr(self, name), 0, self.name)
        if self.tokens_per_pass > 1 + self.verified:
            raise ValueError(
                f"{self.name}: expected at most 1 + verified = {1 + self.verified:g} tokens per pass, "
                f"got {self.tokens_per_pass:g}"
            )

    @property
    def tokens(self) -> float:
        """m, the tokens of a pass per text."""
        return self.rows + self.verified


PLAIN = Method(name="autoregressive", tokens_per_pass=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes per parameter and per number in the cache."""

    parameter: float = 2.0
    cache: float = 2.0

    def __post_init__(self) -> None:
        for name in ("parameter", "cache"):
            if not 0 < getattr(self, name) <= 8:
                raise ValueError(f"{name}: expected more than 0 and at most 8 bytes, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassWork:
    """Bytes moved and operations computed by one part of a step; a multiply-add is two operations."""

    parameter_bytes: float
    cache_bytes: float
    flops: float


def step_work(shape: ModelShape, way: Method, *, batch: int, length: int, precision: Precision) -> tuple[PassWork, ...]:
    """Returns the parts of a step, which run one after another: the target's pass, the heads, if any, and the passes
    of a small model, if any.
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
    shape: ModelShape, way: Method, *, batch: int = 1, length: int, precision: Precision | None = None
) -> PassWork:
    """Returns the cost of one decoded token, all parts of a step together: a column of the paper's table 11."""
    work = step_work(shape, way, batch=batch, length=length, precision=precision or Precision())
    share = 1.0 / (batch * way.tokens_per_pass)
    return PassWork(
        parameter_bytes=share * sum(one.parameter_bytes for one in work),
        cache_bytes=share * sum(one.cache_bytes for one in work),
        flops=share * sum(one.flops for one in work),
    )


def held_bytes(shape: ModelShape, way: Method, *, batch: int, length: int, precision: Precision) -> float:
    """Returns the bytes of parameters and cache in memory, without activations."""
    copies = 1 if way.shared_cache else way.rows
    small = way.small
    cache = shape.cache_numbers * (copies * length + way.tokens) + (small.cache_numbers * length if small else 0)
    return (
        precision.parameter * (shape.stored_parameters + (small.stored_parameters if small else 0))
        + precision.cache * batch * cache
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Roofline times (Williams et al. 2009): each part of a step takes the longer of its memory and its compute time.

    bandwidth_share, compute_share  share of the data sheet's figures that kernels reach; assumptions, not measurements
    overhead                        further seconds per step: launches, sampling
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

    def seconds(self, shape: ModelShape, way: Method, *, batch: int, length: int) -> float:
        return self.overhead + sum(
            max(self.parts(one)) for one in step_work(shape, way, batch=batch, length=length, precision=self.precision)
        )

    def parts(self, work: PassWork) -> tuple[float, float]:
        """Returns the memory time and the compute time in seconds."""
        memory = (work.parameter_bytes + work.cache_bytes) / (self.bandwidth_share * self.accelerator.bandwidth)
        return memory, work.flops / (self.compute_share * self.accelerator.flops)

    def bound(self, shape: ModelShape, way: Method, *, batch: int, length: int) -> str:
        """Returns "memory" or "compute", which of them bounds the target's pass."""
        memory, compute = self.parts(step_work(shape, way, batch=batch, length=length, precision=self.precision)[0])
        return "compute" if compute > memory else "memory"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stopwatch:
    """Times of measured passes, {batch: costs}. Heads and small models are not included."""

    passes: Mapping[int, PassCosts]

    def seconds(self, shape: ModelShape, way: Method, *, batch: int, length: int) -> float:
        if batch not in self.passes:
            raise ValueError(
                f"batch: expected one with measured passes, {', '.join(map(str, self.passes))}, "
                f"got {batch}; measure it with `rescore bench passes --batch {batch}`"
            )
        return float(self.passes[batch].at(batch * way.tokens))


Clock = Roofline | Stopwatch
"""Has the time of a step, drafting excluded."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostOptions:
    """A model's shape and its name, a clock and the name of its machine, and the tokens in the cache."""

    name: str
    shape: ModelShape
    machine: str
    clock: Clock
    length: int = 1024
    precision: Precision = Precision()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The predicted speed of a way to decode.

    step_s       seconds per step; drafting_s: the part spent drafting, on the CPU
    times_plain  tokens per second relative to plain decoding
    """

    way: Method
    batch: int
    step_s: float
    drafting_s: float
    tokens_per_s: float
    times_plain: float


def forecast(shape: ModelShape, ways: Sequence[Method], clock: Clock, *, batch: int, length: int) -> list[Forecast]:
    """Returns the forecasts of plain decoding and of every way, in order."""
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


def stops_paying(
    shape: ModelShape, ways: Sequence[Method], clock: Clock, *, batches: Sequence[int], length: int
) -> dict[str, int | None]:
    """Returns for every way the smallest of the ascending batches from which on it is never faster than plain decoding;
    None if it is faster at the largest.
    """
    last = {way.name: -1 for way in ways}
    for place, batch in enumerate(batches):
        for one in forecast(shape, ways, clock, batch=batch, length=length)[1:]:
            if one.times_plain > 1:
                last[one.way.name] = place
    return {name: batches[place + 1] if place + 1 < len(batches) else None for name, place in last.items()}
