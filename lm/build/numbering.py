"""The first stage of building a model of words: numbers a text's words and collects the vocabulary in one pass."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rescore.lattice.atomic import replacing
from rescore.lm.build.documents import Faults, documents
from rescore.lm.build.inputs import Piece, identity
from rescore.lm.build.work import PIPED, WorkFolder
from rescore.lm.model.vocabulary import END_OF_TEXT, BadText, GrowingVocabulary, Skipped, Vocabulary

STAGE = "words"
BATCH = 1 << 20  # ids written at once


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
            with replacing(ids) as file:
                for batch in _batches(pieces, vocabulary, None if strict else skipped, progress):
                    work.check_room(4 * len(batch))
                    file.write(batch)
            if not ids.stat().st_size:
                raise ValueError(skipped.why_nothing())
            with replacing(words) as file:
                file.writelines(word + b"\n" for word in vocabulary.words())
            state["skipped"] = skipped.to_json()
    size, mtime_ns = identity(ids)
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
