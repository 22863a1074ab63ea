"""Estimates the cost of building models of C4, from figures with their sources."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
CARD = "dataset card of huggingface.co/datasets/allenai/c4, en, train"
RESULTS, NOTES = "docs/results.md", "docs/notebooks/ngram-models.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Distinct n-grams of `order` with a count of at least `least` in `tokens` tokens, and how they grow: exponent of
    the last doubling of the text (Heaps' law: distinct ~ tokens^exponent), its standard deviation over random orders of
    the documents, and its change from one doubling to the next.
    """

    order: int
    least: int
    tokens: int
    distinct: int
    exponent: float
    deviation: float
    change: float

    def at(self, tokens: float, falling: bool) -> float:
        """Extrapolated distinct n-grams of `tokens` tokens, with a falling or a constant exponent."""
        doublings = math.log2(tokens / self.tokens)
        grown = min(0.0, doublings) * self.exponent  # a shorter text
        for number in range(1, math.ceil(doublings) + 1):
            part = min(1.0, doublings - number + 1)
            grown += part * max(0.0, self.exponent + (self.change * number if falling else 0.0))
        return self.distinct * 2**grown


# Distinct windows of up to n tokens, all and with min-counts 1,1,2,4 (docs/notebooks/ngram-models.md).
TEXT = 34_431_427
ALL = {
    2: Growth(order=2, least=1, tokens=TEXT, distinct=4_135_065, exponent=0.645, deviation=0.007, change=-0.0252),
    3: Growth(order=3, least=1, tokens=TEXT, distinct=14_374_933, exponent=0.821, deviation=0.006, change=-0.0203),
    4: Growth(order=4, least=1, tokens=TEXT, distinct=22_954_581, exponent=0.912, deviation=0.008, change=-0.0121),
}
KEPT = {
    2: ALL[2],
    3: Growth(order=3, least=2, tokens=TEXT, distinct=3_196_861, exponent=0.950, deviation=0.005, change=-0.0272),
    4: Growth(order=4, least=4, tokens=TEXT, distinct=700_631, exponent=1.143, deviation=0.010, change=-0.0051),
}
COMBINED = 1 << 22  # windows that a Spark worker pre-aggregates
PER_PARTITION = 4e6  # windows that one core adds up in about 500 MB of heap


def amount(text: str) -> int | float:
    """A number above 0. Suffixes k, M, G and T are allowed."""
    factor = UNITS.get(text[-1:], 1)
    try:
        value = float(text[:-1] if factor > 1 else text) * factor
    except ValueError:
        value = math.nan
    if not 0 < value < 1e18:
        raise argparse.ArgumentTypeError(f"expected a number above 0 such as 4.3, 700k or 100G, got {text!r:.80}")
    return round(value) if value == round(value) else value


def gigabytes(size: float) -> str:
    """A size as an option value: a whole number of G, at least 1."""
    return f"{max(1, math.ceil(size / 1e9))}G"


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure of the estimate. Rates are of one core."""

    value: float
    what: str
    source: str

    @property
    def text(self) -> str:
        return f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:,.2f}"


Facts = Mapping[str, Fact]
DOCUMENTS = 364_868_892
PUBLISHED: Facts = {
    "documents": Fact(DOCUMENTS, "documents of the text", CARD),
    "text_bytes": Fact(
        828_589_180_707 - DOCUMENTS * 100,
        "bytes of the text, unpacked",
        f"{CARD}: 828.6 GB, minus 100 bytes per document for its URL and time (assumed)",
    ),
    "bytes_per_token": Fact(4.32, "of the text", "GPT-2 tokens of 149 MB of five domains; 4.49 on Wikipedia"),
    "tokenize_rate": Fact(700e3, "tokenizing, tokens/s per core", NOTES),
    "count_rate": Fact(
        15e6,
        "counting on one machine, tokens/s per core",
        f"{RESULTS}: 1G tokens counted in 22 s on 2 cores, minus a third for reading disks",
    ),
    "ngram_rate": Fact(
        1.25e6,
        "merging, estimating and pruning, n-grams/s per core",
        f"{RESULTS}: 133M n-grams merged, estimated, pruned and compiled in 53 s on 2 cores; rounded up",
    ),
    "spark_rate": Fact(
        225e3, "text to counts on the cluster, tokens/s per core", f"{RESULTS}: local[2], gzipped JSON lines to Parquet"
    ),
    "window_bytes": Fact(
        5.1,
        "bytes on disk per counted window, sorted or in Parquet",
        f"{NOTES}: Parquet with zstd, 4-gram windows",
    ),
    "shuffle_bytes": Fact(
        9.1, "bytes per counted window between Spark's stages", f"{NOTES}: 4-gram windows, one 64-bit word each"
    ),
}


def replaced(facts: Facts, source: str, **values: float) -> Facts:
    """The figures, some of them from another source."""
    return {**facts, **{name: replace(facts[name], value=value, source=source) for name, value in values.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Pairs are (low, high): distinct n-grams grow with an exponent that keeps falling, or with that of 34M tokens."""

    tokens: float
    windows: tuple[float, float]
    kept: dict[int, tuple[float, float]]
    count_hours: float
    build_hours: tuple[float, float]
    spark_hours: float
    machine_bytes: tuple[float, float]
    counts_bytes: tuple[float, float]
    shuffle_bytes: float
    partitions: int
    memory: float

    @property
    def disk_bytes(self) -> float:
        return self.machine_bytes[1]

    def rows(self, spark: bool) -> Iterator[tuple[str, str, str]]:
        """Rows of the plan: name, low, high."""
        billions = "{:,.1f}G".format
        yield "tokens", billions(self.tokens / 1e9), billions(self.tokens / 1e9)
        yield "distinct windows", *(billions(value / 1e9) for value in self.windows)
        for order, pair in self.kept.items():
            yield f"n-grams of the {order}-gram model before pruning", *(billions(value / 1e9) for value in pair)
        if spark:
            yield "hours of counting on the cluster", *[f"{self.spark_hours:,.1f}"] * 2
            yield "shuffle, disks of all workers together", *[f"{self.shuffle_bytes / 1e12:,.2f} TB"] * 2
            yield "counts", *(f"{value / 1e12:,.2f} TB" for value in self.counts_bytes)
            yield "partitions of the shuffle", *[f"{self.partitions:,}"] * 2
        else:
            yield "hours of tokenizing and counting", *[f"{self.count_hours:,.1f}"] * 2
        yield "hours of merging, estimating and pruning, all models", *(f"{value:,.1f}" for value in self.build_hours)
        yield "disk of rescore lm build", *(f"{value / 1e12:,.2f} TB" for value in self.machine_bytes)
        yield "memory of rescore lm build", *[f"{self.memory / 1e9:,.1f} GB"] * 2


def estimate(facts: Facts, *, share: float, orders: Sequence[int], cores: int, memory: float) -> Costs:
    """The cost of this share of the text."""
    of = {name: fact.value for name, fact in facts.items()}
    tokens = share * of["text_bytes"] / of["bytes_per_token"]
    top = orders[-1]
    windows = both(ALL[top], tokens)
    kept = {order: add(*(both(KEPT[n], tokens) for n in range(2, order + 1))) for order in orders}
    # Runs that fit into memory (16 bytes per window while sorting) are written and merged; both exist at the same
    # time, and so do the counts.
    run = min(tokens, memory / 16)
    runs = tokens / run * ALL[top].at(run, falling=run > TEXT)
    machine = times(add(windows, windows, kept[top]), of["window_bytes"], plus=runs * of["window_bytes"])
    per_core = 1 / of["tokenize_rate"] + 1 / of["count_rate"]
    merged = add(*(add(both(ALL[order], tokens), kept[order]) for order in orders))
    combined = tokens / min(tokens, COMBINED) * ALL[top].at(min(tokens, COMBINED), falling=False)
    return Costs(
        tokens=tokens,
        windows=windows,
        kept=kept,
        memory=memory,
        count_hours=tokens * per_core / cores / 3600,
        build_hours=times(merged, 1 / of["ngram_rate"] / 3600),
        spark_hours=tokens / of["spark_rate"] / cores / 3600,
        machine_bytes=machine,
        counts_bytes=times(windows, of["window_bytes"]),
        shuffle_bytes=combined * of["shuffle_bytes"],
        partitions=max(16, 16 * math.ceil(windows[1] / PER_PARTITION / 16)),
    )


def both(growth: Growth, tokens: float) -> tuple[float, float]:
    return growth.at(tokens, falling=True), growth.at(tokens, falling=False)


def add(*pairs: tuple[float, float]) -> tuple[float, float]:
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def times(pair: tuple[float, float], factor: float, plus: float = 0.0) -> tuple[float, float]:
    return pair[0] * factor + plus, pair[1] * factor + plus
