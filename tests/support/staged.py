"""Small staged builds for tests: text in pieces, and its model with and without stages."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from support.models import assert_same_model, assert_same_tables
from support.oracle_lm import random_text

from rescore.lm.build.counting import Content, SourcePiece
from rescore.lm.build.counts import CountOptions, count
from rescore.lm.build.estimate import EstimateOptions, KatzOptions, estimate_model, needs_adjusted
from rescore.lm.build.prune import PruneOptions, prune
from rescore.lm.build.staged import Resources, StagedBuild
from rescore.lm.build.vocabulary import BadText, Skipped
from rescore.lm.build.work import WorkFolder
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables

EOT = 0


class ListSource:
    """Pieces, each a list of contents, that count how often they are read. bad: documents skipped in each piece."""

    tokens = None

    def __init__(self, pieces: Sequence[Sequence[Content]], key: str = "text", bad: Sequence[int] = ()) -> None:
        self.key, self.reads, self.bad = key, 0, [*bad, *[0] * len(pieces)]
        self.pieces = [SourcePiece(i, len(own), partial(self._read, i, own)) for i, own in enumerate(pieces)]

    def _read(self, number: int, contents: Sequence[Content], skipped: Skipped) -> Iterator[Content]:
        for content in contents:
            self.reads += 1
            yield content
        for _ in range(self.bad[number]):
            skipped.add(f"piece {number}", BadText("not JSON"))


@dataclass(frozen=True, kw_only=True)
class Tight(Resources):
    """Resources so small that runs have a few tokens."""

    tokens: int

    def run_tokens(self, options: CountOptions) -> int:
        return self.tokens


def tight(run_tokens: int, threads: int = 1) -> Resources:
    return Tight(memory_bytes=64 << 30, threads=threads, tokens=run_tokens)


def text_pieces(seed: int, vocab_size: int, tokens: int, pieces: int = 3, spread: int = 1) -> list[list[np.ndarray]]:
    """Random text cut at ends of text into contents, and those into pieces. spread: what ids are multiplied by, so that
    they are large.
    """
    text = np.array([*random_text(seed, vocab_size, tokens)[1:], EOT], np.uint32) * spread
    ends = np.flatnonzero(text == EOT) + 1
    contents = [part for part in np.split(text, ends) if len(part) > 1]  # empty documents are none
    dtype = np.uint16 if vocab_size * spread <= 1 << 16 else np.uint32
    return [[part.astype(dtype) for part in contents[first::pieces]] for first in range(pieces)]


def in_memory(
    pieces: Sequence[Sequence[np.ndarray]],
    options: CountOptions,
    shorten: PruneOptions | None = None,
    method: EstimateOptions | None = None,
) -> tuple[Tables, NGram]:
    """The model, built without stages."""
    contents = [content for piece in pieces for content in piece]
    counts = count(contents, **asdict(options), adjusted=needs_adjusted(method))
    tables = estimate_model(counts, method)
    tables = prune(tables, shorten) if shorten else tables
    return tables, NGram.from_tables(tables, metadata={"end_of_text": options.end_of_text})


def build(
    path: Path,
    source: ListSource,
    options: CountOptions,
    shorten: PruneOptions | None = None,
    resources: Resources | None = None,
    disk_bytes: int | None = None,
    out: Path | None = None,
    method: EstimateOptions | None = None,
) -> tuple[Tables, NGram]:
    """The model, built in stages; the folder is kept."""
    with closing(WorkFolder(path, disk_bytes)) as work:
        stages = StagedBuild(work, options, resources or tight(50))
        counts = stages.count(source, adjusted=needs_adjusted(method))
        tables = stages.prune(stages.estimate(counts, method or KatzOptions()), shorten)
        model = stages.compile(tables, words=None, metadata={})
        if out is not None:
            model.save(out)
        return tables, model


def assert_equal(mine: tuple[Tables, NGram], other: tuple[Tables, NGram]) -> None:
    """Bit for bit."""
    assert_same_tables(mine[0], other[0], np.float64)
    assert_same_model(mine[1], other[1])
    assert mine[1].metadata == other[1].metadata
