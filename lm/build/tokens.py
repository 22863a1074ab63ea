"""Reads the tokens of pieces: tokenizes text on all processors, reads flat arrays of ids and dumps."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.dump import Dump
from rescore.lattice.in_batches import in_batches
from rescore.lattice.mapped import map_npy
from rescore.lm.build.documents import Faults, documents, refuse_end_of_text
from rescore.lm.build.inputs import TEXT, Piece, bin_length, id_dtype
from rescore.lm.build.vocabulary import BadText, Skipped, Tokenizer
from rescore.lm.build.word_ids import encoder_of
from rescore.lm.model.columns import Columns, in_order
from rescore.lm.model.compressed import open_bytes
from rescore.lm.model.grams import token_dtype
from rescore.lm.model.tokenizer import Chat

CHUNK = 1 << 20  # tokens handled at once
MAX_TOKENS = 1 << 28  # of a document in a file of tokens
BATCH = 1 << 20  # characters tokenized at once
AT_ONCE = 2  # batches encoded


class TokenPart(NamedTuple):
    """Ids from a file, and their place: "token" and the number of the first, or "sequence" and its number."""

    ids: NDArray[Any]
    unit: str
    number: int


def token_documents(
    piece: Piece, *, vocab_size: int, end_of_text: int | None, notes: list[str] | None = None
) -> Iterator[NDArray[Any]]:
    """Yields the tokens of a piece of a token file: flat arrays of whole documents, each followed by one end of text.

    Empty documents are skipped. If `end_of_text` is None, the arrays are unchanged stretches of the file. ValueError
    names file and position of an id outside 0..V-1, and a file that is damaged or of another kind. A file without any
    end of text, which is read as one document, is added to `notes`.
    """
    checked = _checked(_parts(piece, vocab_size, end_of_text), piece.name, vocab_size)
    if end_of_text is None:
        yield from checked
    else:
        ended = yield from _whole_documents(checked, piece.name, end_of_text)
        if notes is not None and not ended and not piece.begin:
            notes.append(
                f"{piece.name}: the end of text, {end_of_text}, does not occur; all tokens are one document, unless "
                "--end-of-text is another id"
            )


def _parts(piece: Piece, vocab_size: int, end_of_text: int | None) -> Iterator[TokenPart]:
    if piece.form == "npy":
        return _stretch(map_npy(piece.path), piece, end_of_text)
    if piece.form == "bin":
        if piece.end is None:
            return _read(piece, vocab_size)
        dtype = np.dtype(piece.dtype).newbyteorder("<")
        return _stretch(np.memmap(piece.path, dtype, "r") if piece.size else np.empty(0, dtype), piece, end_of_text)
    if end_of_text is None:
        raise ValueError(
            f"{piece.path}: a dump needs an end-of-text id, which separates its sequences: give --end-of-text"
        )
    return _sequences(piece.path, end_of_text)


def _stretch(array: NDArray[Any], piece: Piece, end_of_text: int | None) -> Iterator[TokenPart]:
    """Yields the documents that begin in tokens begin..end of the piece, in parts."""
    end = len(array) if piece.end is None else piece.end
    begin, end = (_first_document(array, at, end_of_text) for at in (piece.begin, end))
    for at in range(begin, end, CHUNK):
        yield TokenPart(array[at : min(at + CHUNK, end)], "token", at)


def _first_document(array: NDArray[Any], begin: int, end_of_text: int | None) -> int:
    """The first position >= `begin` at which a document begins."""
    if not begin or end_of_text is None:
        return begin
    for at in range(begin - 1, len(array), CHUNK):
        ends = array[at : at + CHUNK] == end_of_text
        if ends.any():
            return at + int(ends.argmax()) + 1
    return len(array)


def _read(piece: Piece, vocab_size: int) -> Iterator[TokenPart]:
    """Yields the ids of a pipe."""
    number = 0
    with open_bytes(piece.path) as stream:
        dtype = np.dtype(piece.dtype or id_dtype(stream.peek(), vocab_size, piece.name)).newbyteorder("<")
        while block := stream.read(CHUNK * dtype.itemsize):
            yield TokenPart(np.frombuffer(block, dtype, bin_length(piece.name, dtype, len(block))), "token", number)
            number += CHUNK


def _sequences(path: str, end_of_text: int) -> Iterator[TokenPart]:
    """Yields the sequences of a shard of a dump, prompt and continuation."""
    dump = Dump.open(Path(path).parent)
    for number, text in enumerate(dump.texts(Path(path).name)):
        yield TokenPart(np.append(text, end_of_text), "sequence", number)


def _checked(parts: Iterable[TokenPart], name: str, vocab_size: int) -> Iterator[NDArray[Any]]:
    """Checks that ids are in 0..V-1; yields them in the dtype of the vocabulary."""
    dtype = token_dtype(vocab_size)
    for ids, unit, number in parts:
        low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, 0)
        if low < 0 or high >= vocab_size:
            at = int(((ids < 0) | (ids >= vocab_size)).argmax())
            place = f"token {number + at}" if unit == "token" else f"{unit} {number}, token {at}"
            raise ValueError(f"{name}, {place}: expected ids in 0..{vocab_size - 1}, got {ids[at]}")
        yield ids.astype(dtype, copy=False)


def _whole_documents(parts: Iterable[NDArray[Any]], name: str, end_of_text: int) -> Generator[NDArray[Any], None, bool]:
    """Yields the documents of consecutive parts, about CHUNK tokens at a time, or one longer document. Returns whether
    there was an end of text, or no token.
    """
    held: list[NDArray[Any]] = []
    size, wanted, ended = 0, CHUNK, False
    for part in parts:
        held.append(part)
        size += len(part)
        if size < wanted:
            continue
        tokens = np.concatenate(held)
        ends = np.flatnonzero(tokens == end_of_text)
        cut = int(ends[-1]) + 1 if len(ends) else 0
        ended |= cut > 0
        yield from _without_empty(tokens[:cut], end_of_text)
        held, size = [tokens[cut:]], len(tokens) - cut
        if size > MAX_TOKENS:
            raise ValueError(
                f"{name}: expected documents of at most {MAX_TOKENS} tokens, got a longer one; if {end_of_text} is not "
                "the end of text, give --end-of-text, else split the document"
            )
        wanted = CHUNK + 2 * size  # grows, so that a long document is not concatenated at every part
    if not size:
        return True
    tokens = np.concatenate([*held, np.array([end_of_text], held[0].dtype)])
    yield from _without_empty(tokens, end_of_text)
    return ended or bool((tokens[:-1] == end_of_text).any())


def _without_empty(tokens: NDArray[Any], end_of_text: int) -> Iterator[NDArray[Any]]:
    """Removes each end of text that comes first or follows another; yields the tokens unless none is left."""
    ends = tokens == end_of_text
    empty = ends.copy()
    empty[1:] &= ends[:-1]
    left = tokens[~empty] if empty.any() else tokens
    if len(left):
        yield left


class Numbered(NamedTuple):
    """Concatenated documents, each followed by an end of text, and their origin.

    numbers  of the documents' lines or rows in the piece; None for token files
    """

    tokens: NDArray[Any]
    faults: Faults
    numbers: list[int] | None

    def lines(self) -> list[int] | None:
        """The lines or rows in the whole file."""
        return None if self.numbers is None else [self.faults.in_file(number) for number in self.numbers]


class Encoded(NamedTuple):
    number: int
    chat: bool
    ids: NDArray[np.uint32]


def numbered_tokens(
    piece: Piece,
    *,
    vocab_size: int,
    end_of_text: int | None,
    tokenizer: Tokenizer | None = None,
    skipped: Skipped | None = None,
) -> Iterator[Numbered]:
    """Yields the tokens of a piece with their origin.

    Tokens are flat arrays, uint16 (V <= 65536) or uint32, of whole documents, each followed by one `end_of_text`; empty
    documents are dropped. An array holds a few hundred thousand tokens, or one longer document, so memory does not
    depend on the size of the file. For token files `end_of_text` may be None: the arrays are then stretches of it.

    skipped  counts bad documents: not JSON, without text, not UTF-8, longer than 16 MiB, or with the end of text among
             their tokens (it may end each turn of a chat); None makes the first of them a ValueError

    ValueError names the file and the place of ids outside 0..V-1 and of damaged data.
    """
    piece.check_unchanged()
    faults = Faults(piece, skipped)
    if piece.form not in TEXT:
        notes = None if skipped is None else skipped.notes
        for tokens in token_documents(piece, vocab_size=vocab_size, end_of_text=end_of_text, notes=notes):
            yield Numbered(tokens, faults, None)
        return
    if tokenizer is None or end_of_text is None:
        raise ValueError(f"{piece.name}: text needs a tokenizer and an end-of-text id: give --tokenizer")
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"{piece.name}: expected a vocabulary of at least the tokenizer's {tokenizer.vocab_size} tokens, "
            f"got {vocab_size}"
        )
    end = np.array([end_of_text], np.uint32)
    chats = getattr(tokenizer, "chats", None)
    batches = in_batches(documents(piece, faults, chats), lambda document: len(document[1]), BATCH)
    for encoded in _encoded(batches, tokenizer, faults):
        if kept := list(_kept(encoded, end_of_text, faults)):
            tokens = np.concatenate([part for _, ids in kept for part in (ids, end)])
            yield Numbered(tokens.astype(token_dtype(vocab_size), copy=False), faults, [number for number, _ in kept])


def _encoded(batches: Iterable[list[tuple[int, str]]], tokenizer: Tokenizer, faults: Faults) -> Iterator[list[Encoded]]:
    """Yields batches of documents while the next batches are read and encoded.

    The package encodes a batch on all processors without the GIL. Encoding two batches at a time keeps them busy when
    documents are long and while ids are converted to arrays. A pool of processes took a quarter more CPU time.
    """

    encode = encoder_of(tokenizer)

    def encoded(*batch: tuple[int, str]) -> list[Encoded]:
        try:
            found = encode([text for _, text in batch])
        except ValueError as error:
            raise ValueError(
                f"{faults.where(batch[0][0])} or one of the {len(batch)} documents from there: {error}"
            ) from None
        return [Encoded(number, isinstance(text, Chat), ids) for (number, text), ids in zip(batch, found)]

    return in_order(Columns(AT_ONCE), encoded, batches)


def _kept(documents: Iterable[Encoded], end_of_text: int, faults: Faults) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    """Yields the documents that are not empty and do not contain the end of text, and chats without their last one."""
    for number, chat, ids in documents:
        try:
            if chat:
                ids = ids[: len(ids) - (ids[-1:] == end_of_text).sum()]
            else:
                refuse_end_of_text(ids, end_of_text)
        except BadText as fault:
            faults.add(number, fault)
        else:
            if len(ids):
                yield number, ids
