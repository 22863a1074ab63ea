"""Counts text into runs on disk, a stretch at a time that fits in memory.

The tokens of all pieces form one stream. Each run counts a stretch of it, and the manifest records where the stretch
ends. A restart resumes at the end of the last recorded run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.atomic import atomic_file
from rescore.lm.build.counts import CountOptions, Run, Windows, merge_slice, slice_starts
from rescore.lm.build.vocabulary import Skipped
from rescore.lm.build.work import WorkFolder, expect_bytes
from rescore.lm.model.columns import Columns, closing_generator, in_order

SLICES = 128
SAMPLE = 1 << 20  # tokens that determine the slices
MOST_RUNS = 200  # merged at once; each is an open file
WINDOW_TOKENS = 4  # memory of a window, in tokens: it arrives token by token and is sorted with its count
MOST_TOKENS = 1 << 53  # estimation uses counts in double precision
Progress = Callable[[int, int], None]  # tokens and pieces so far


Content = NDArray[Any] | Windows  # whole documents, each followed by the end of text; or windows


class SourcePiece(NamedTuple):
    """A piece of an input.

    identity  a JSON value that identifies the content: equal for equal content
    size      in any unit, for the progress bar; 0 if unknown
    read      yields the contents, the same at every call, and adds the documents that it skips to its argument
    """

    identity: Any
    size: int
    read: Callable[[Skipped], Iterable[Content]]


class Source(NamedTuple):
    """An input of counting, in pieces.

    key     a JSON value that identifies what all pieces share, such as the tokenizer
    tokens  number in all pieces, if known
    """

    key: Any
    pieces: Sequence[SourcePiece]
    tokens: int | None = None

    @classmethod
    def joined(cls, sources: Iterable[Source]) -> Source:
        """Several sources, one after the other; those without pieces are left out."""
        used = [source for source in sources if source.pieces]
        tokens = [source.tokens for source in used if source.tokens is not None]
        return cls(
            key=[source.key for source in used],
            pieces=[piece for source in used for piece in source.pieces],
            tokens=sum(tokens) if len(tokens) == len(used) else None,
        )


@dataclass(slots=True)
class Stretch:
    """The input of one run.

    items  memory in tokens
    end    the piece in which the stretch ends, and the number of that piece's contents read so far
    """

    contents: list[Content] = field(default_factory=list)
    items: int = 0
    end: tuple[int, int] = (0, 0)
    skipped: list[dict[str, Any]] = field(default_factory=list)

    def add(self, content: Content) -> None:
        self.contents.append(content)
        self.items += WINDOW_TOKENS * len(content.counts) if isinstance(content, Windows) else len(content)


def bytes_per_token(options: CountOptions) -> int:
    """Memory that counting needs per token of a run: its key twice, for sorting, the token, and the output."""
    words = -(-options.order * options.vocab_size.bit_length() // 64)
    return 16 * words + 8


def count_pieces(
    work: WorkFolder,
    source: Source,
    options: CountOptions,
    *,
    run_tokens: int,
    threads: int,
    progress: Progress = lambda tokens, pieces: None,
) -> list[Run]:
    """Counts all pieces into runs.

    run_tokens  tokens per run, or a quarter as many windows
    progress    called with the number of tokens counted and pieces finished so far
    """
    state = work.begin("count", {"options": asdict(options), "source": source.key})
    folder = work.path / "runs"
    state = _keep_unchanged(work, state, json.loads(json.dumps([piece.identity for piece in source.pieces])))
    folder.mkdir(exist_ok=True)
    records = _usable(state, folder)
    state["runs"] = records
    if state["done"]:
        progress(sum(record["tokens"] for record in records), len(source.pieces))
        return [_run(folder, record) for record in records]
    with work.timed(state):
        done = sum(record["tokens"] for record in records)
        progress(done, _position(records)[0])
        stretches = _stretches(source, _position(records), run_tokens)
        made = in_order(
            Columns(threads), partial(_write, work, options), _numbered(stretches, state, options, len(records))
        )
        with closing_generator(made):
            for record in made:
                records.append(record)
                work.save()
                done += record["tokens"]
                progress(done, record["end"][0])
        if not done:
            skipped = (own for record in records for own in record["skipped"] if own["documents"])
            raise ValueError(Skipped.from_json(*skipped).why_nothing())
        if done > MOST_TOKENS:
            raise ValueError(f"counts: expected at most 2^53 tokens, got {done:,}")
        if source.tokens not in (None, done):
            raise ValueError(
                f"counts: expected {source.tokens:,} tokens in all from their headers, got {done:,}; "
                "a file is missing or should not be there"
            )
        _compact(work, state, options)
    return [_run(folder, record) for record in state["runs"]]


def _keep_unchanged(work: WorkFolder, state: dict[str, Any], pieces: list[Any]) -> dict[str, Any]:
    """The state of the stage for these pieces; ValueError if finished ones are others. Unread pieces may have changed.

    If the piece in progress has changed, such as a damaged file that was copied again, its runs are dropped.
    """
    known, records = state.get("pieces", []), state.get("runs", [])
    read, _ = _position(records)
    if state["done"]:
        read = max(len(known), len(pieces))
    if known[:read] != pieces[:read]:
        if work.needed():
            raise work.refusal({"source": known[:read]}, {"source": pieces[:read]})
        state = work.renew("count")
    elif known[read : read + 1] != pieces[read : read + 1]:
        state["runs"] = [record for record in records if tuple(record["end"]) <= (read, 0)]
    state["pieces"] = pieces
    return state


def _position(records: Sequence[dict[str, Any]]) -> tuple[int, int]:
    return tuple(records[-1]["end"]) if records else (0, 0)


def _stretches(source: Source, position: tuple[int, int], size: int) -> Iterator[Stretch]:
    """Yields the stream from a position on in stretches of about `size` items.

    If a piece cannot be read, the stretch before it is yielded before the error is raised.
    """
    now = Stretch(end=position)
    first, passed = position
    for at, piece in enumerate(source.pieces[first:], first):
        before, number, skipped = len(now.contents), 0, Skipped()
        try:
            for number, content in enumerate(piece.read(skipped), 1):
                if number <= passed:
                    continue
                if now.contents and (
                    now.items >= size or isinstance(content, Windows) != isinstance(now.contents[-1], Windows)
                ):
                    yield now
                    now, before = Stretch(), 0
                now.add(content)
                now.end = (at, number)
        except Exception:
            del now.contents[before:]
            now.end = (at, 0)
            if now.contents:
                yield now
            raise
        passed = 0
        now.end = (at + 1, 0)
        now.skipped.append(skipped.to_json())
    if now.contents or now.skipped:
        yield now


def _numbered(
    stretches: Iterator[Stretch], state: dict[str, Any], options: CountOptions, first: int
) -> Iterator[tuple[Stretch, Sequence[int], int]]:
    """Yields each stretch with the first tokens of the slices, which the first stretch of all determines, and its
    number.
    """
    for number, stretch in enumerate(stretches, first):
        if "starts" not in state:
            state["starts"] = slice_starts(_sample(stretch.contents), SLICES) if options.order > 1 else []
        yield stretch, state["starts"], number


def _sample(contents: Iterable[Content]) -> NDArray[Any]:
    found, size = [], 0
    for content in contents:
        found.append(np.asarray(content.tokens if isinstance(content, Windows) else content)[: SAMPLE - size])
        size += len(found[-1])
        if size == SAMPLE:
            break
    return np.concatenate(found) if found else np.zeros(1, np.uint16)


def _write(
    work: WorkFolder, options: CountOptions, stretch: Stretch, starts: Sequence[int], number: int
) -> dict[str, Any]:
    name = f"{number:05}.run"
    end, skipped = stretch.end, [own for own in stretch.skipped if own["documents"]]
    run = _count(stretch.contents, options, starts)
    stretch.contents.clear()
    assert isinstance(run.source, bytes)
    with work.room(len(run.source)), atomic_file(work.path / "runs" / name) as file:
        file.write(run.source)
    return {
        "file": name,
        "bytes": len(run.source),
        "slices": run.slices,
        "windows": run.windows,
        "tokens": run.tokens,
        "end": list(end),
        "skipped": skipped,
    }


def _count(contents: Sequence[Content], options: CountOptions, starts: Sequence[int]) -> Run:
    """The run of a stretch, which is all tokens or all windows."""
    windows = [content for content in contents if isinstance(content, Windows)]
    if windows:
        return Run.of_windows(Windows.joined(windows), options, starts)
    return Run.of_tokens([content for content in contents if not isinstance(content, Windows)], options, starts)


def _usable(state: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The runs of the manifest, whose files must be complete; deletes files that it does not name."""
    records = state.get("runs", [])
    for record in records:
        expect_bytes(folder / record["file"], record["bytes"])
    named = {record["file"] for record in records}
    for path in folder.iterdir():
        if path.name not in named:
            path.unlink()
    return records


def _run(folder: Path, record: dict[str, Any]) -> Run:
    return Run(
        source=folder / record["file"], slices=record["slices"], windows=record["windows"], tokens=record["tokens"]
    )


def _compact(work: WorkFolder, state: dict[str, Any], options: CountOptions) -> None:
    """Merges runs until there are few enough to read all at once."""
    folder, number = work.path / "runs", 0
    while len(state["runs"]) > MOST_RUNS:
        records = state["runs"][:MOST_RUNS]
        while (folder / f"merged-{number:05}.run").exists():
            number += 1
        record = _merge_runs(work, folder / f"merged-{number:05}.run", [_run(folder, own) for own in records], options)
        skipped = [own for merged_record in records for own in merged_record["skipped"]]
        state["runs"] = [*state["runs"][MOST_RUNS:], {**record, "end": state["runs"][-1]["end"], "skipped": skipped}]
        work.save()
        for own in records:
            (folder / own["file"]).unlink()


def _merge_runs(work: WorkFolder, path: Path, runs: Sequence[Run], options: CountOptions) -> dict[str, Any]:
    """Merges several runs into one."""
    slices, windows = [0], 0
    with atomic_file(path) as file:
        for number in range(len(runs[0].slices) - 1):
            source, more = merge_slice(runs, number, options), True
            while more:
                part, found, more = source.write(1 << 20)
                windows += found
                work.check_room(len(part))
                file.write(part)
            slices.append(file.tell())
    return {
        "file": path.name,
        "bytes": slices[-1],
        "slices": slices,
        "windows": windows,
        "tokens": sum(run.tokens for run in runs),
    }
