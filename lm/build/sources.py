"""The sources of a build, in pieces: text and token files, text of numbered words, windows counted elsewhere."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rescore.lattice.atomic import atomic_file
from rescore.lm.build.counting import Content, Source, SourcePiece
from rescore.lm.build.counts import CountOptions, Windows
from rescore.lm.build.documents import Faults, documents
from rescore.lm.build.inputs import Piece, size_and_mtime
from rescore.lm.build.tokens import numbered_tokens
from rescore.lm.build.vocabulary import END_OF_TEXT, BadText, GrowingVocabulary, Skipped, Tokenizer, Vocabulary
from rescore.lm.build.windows import FILE_NAME
from rescore.lm.build.work import PIPED, WorkFolder

if TYPE_CHECKING:  # needs pyarrow, which only folders of counts require
    from rescore.lm.build.counts_files import CountsFiles

STAGE = "words"
BATCH = 1 << 20  # ids written at once


def token_source(
    pieces: Sequence[Piece],
    *,
    vocab_size: int,
    end_of_text: int,
    tokenizer: Tokenizer | None = None,
    strict: bool = False,
) -> Source:
    """Pieces of text and token files. strict: the first bad document is an error; else bad documents are skipped.

    The key has the tokenizer and the chat template. Pipes get a random key, since they cannot be identified.
    """
    once = {PIPED: secrets.token_hex(4)} if any(piece.size is None for piece in pieces) else {}
    chats = getattr(tokenizer, "chats", None)
    template = {"chats": chats.sha256} if chats else {}

    def read(piece: Piece, found: Skipped) -> Iterator[Content]:
        skipped = None if strict else found
        tokens = numbered_tokens(
            piece, vocab_size=vocab_size, end_of_text=end_of_text, tokenizer=tokenizer, skipped=skipped
        )
        return (documents.tokens for documents in tokens)

    return Source(
        key={"tokenizer": tokenizer.sha256 if tokenizer else None, **template, **once},
        pieces=[SourcePiece(piece.to_json(), piece.length, partial(read, piece)) for piece in pieces],
    )


def counts_source(folders: Sequence[CountsFiles], options: CountOptions, tokenizer: str | None = None) -> Source:
    """Windows of folders of counts; each file is a piece.

    ValueError unless the counts have this vocabulary, end-of-text and tokenizer (hash, if known), and at least this
    order.
    """
    for folder in folders:
        _check_header(folder, options, tokenizer)
    files = [replace(folder, paths=(path,), whole=False) for folder in folders for path in folder.paths]
    known = all(folder.whole for folder in folders)
    return Source(
        key="counts",
        pieces=[_counts_piece(file, options.order) for file in files],
        tokens=sum(folder.header.tokens for folder in folders) if known else None,
    )


def _counts_piece(file: CountsFiles, order: int) -> SourcePiece:
    """A file of windows, cut to their last `order` tokens. Skipped documents were reported when they were counted."""
    (path,) = file.paths
    size, mtime_ns = size_and_mtime(path)
    key = {"path": str(path), "size": size, "mtime_ns": mtime_ns}
    return SourcePiece(key, size or 0, lambda _: (_shortened(batch, order) for batch in file.batches()))


def is_counts(path: str | Path) -> bool:
    """Whether an input is a folder of counts, or a file in one."""
    path = Path(path)
    return (path / FILE_NAME).is_file() or (path.suffix == ".parquet" and path.with_name(FILE_NAME).is_file())


def _check_header(folder: CountsFiles, options: CountOptions, tokenizer: str | None) -> None:
    header, where = folder.header, folder.paths[0].parent
    if header.order < options.order:
        raise ValueError(
            f"{where}: expected counts of n-grams up to order {options.order} or more, got order {header.order}"
        )
    if (header.vocab_size, header.end_of_text) != (options.vocab_size, options.end_of_text):
        raise ValueError(
            f"{where}: expected counts of {options.vocab_size} ids with end of text {options.end_of_text}, "
            f"got {header.vocab_size} with {header.end_of_text}"
        )
    if tokenizer and header.tokenizer and tokenizer != header.tokenizer:
        raise ValueError(f"{where}: expected counts of tokenizer {tokenizer}, got {header.tokenizer}")


def _shortened(batch: Windows, order: int) -> Windows:
    """The windows cut to their last `order` tokens."""
    ends = batch.offsets[1:]
    lengths = np.minimum(np.diff(batch.offsets), order)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    at = np.arange(offsets[-1]) + np.repeat(ends - lengths - offsets[:-1], lengths)
    return Windows(offsets, batch.tokens[at], batch.counts)


@dataclass(frozen=True, slots=True)
class NumberedText:
    """A text as uint32 ids, each document followed by the end of text, and its vocabulary."""

    piece: Piece
    vocabulary: Vocabulary


def number_words(
    work: WorkFolder,
    pieces: Sequence[Piece],
    *,
    strict: bool = False,
    progress: Callable[[int, int], None] = lambda words, pieces: None,
) -> NumberedText:
    """Numbers the words of all pieces, or reads the result from the work folder if it exists.

    strict    the first bad document is an error; else bad documents are skipped
    progress  called with the number of words and finished pieces so far
    """
    once = {PIPED: secrets.token_hex(4)} if any(piece.size is None for piece in pieces) else {}
    state = work.begin(STAGE, {"pieces": [piece.to_json() for piece in pieces], **once})
    folder = work.path / STAGE
    ids, words = folder / "ids.bin", folder / "words.txt"
    if not state["done"]:
        folder.mkdir(exist_ok=True)
        skipped, vocabulary = Skipped(), GrowingVocabulary()
        with work.timed(state):
            with atomic_file(ids) as file:
                for batch in _batches(pieces, vocabulary, None if strict else skipped, progress):
                    work.check_room(4 * len(batch))
                    file.write(batch)
            if not ids.stat().st_size:
                raise ValueError(skipped.why_nothing())
            with atomic_file(words) as file:
                file.writelines(word + b"\n" for word in vocabulary.words())
            state["skipped"] = skipped.to_json()
    size, mtime_ns = size_and_mtime(ids)
    piece = Piece(path=str(ids), form="bin", dtype="uint32", end=(size or 0) // 4, size=size, mtime_ns=mtime_ns)
    spelled = tuple(words.read_text(encoding="utf-8").split("\n")[:-1])
    return NumberedText(piece, Vocabulary(spelled=spelled, end_of_text=END_OF_TEXT))


def _batches(
    pieces: Sequence[Piece],
    vocabulary: GrowingVocabulary,
    skipped: Skipped | None,
    progress: Callable[[int, int], None],
) -> Iterator[array[Any]]:
    """Yields the ids of all pieces in batches."""
    batch, words = array("I"), 0
    for number, piece in enumerate(pieces):
        piece.check_unchanged()
        faults = Faults(piece, skipped)
        for line, text in documents(piece, faults):
            before = len(batch)
            try:
                batch.extend(vocabulary.encode(text))
            except BadText as fault:
                faults.add(line, fault)
            if len(batch) > before:
                batch.append(END_OF_TEXT)
            if len(batch) >= BATCH:
                words += len(batch)
                vocabulary.check()
                progress(words, number)
                yield batch
                batch = array("I")
    vocabulary.check()
    yield batch
