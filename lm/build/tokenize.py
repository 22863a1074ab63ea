"""Reads the tokens of pieces: tokenizes text on all processors, reads token files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lm.build.documents import Faults, documents, refuse_end_of_text
from rescore.lm.build.inputs import Piece
from rescore.lm.build.token_files import token_documents, token_dtype
from rescore.lm.model.tokenizer import Chat, Tokenizer
from rescore.lm.model.vocabulary import BadText, Skipped

BATCH = 1 << 20  # characters tokenized at once
AHEAD = 3  # batches in progress


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


def tokens_of(
    piece: Piece,
    *,
    vocab_size: int,
    end_of_text: int | None,
    tokenizer: Tokenizer | None = None,
    skipped: Skipped | None = None,
) -> Iterator[NDArray[Any]]:
    """Yields the tokens of a piece; see `numbered_tokens`."""
    found = numbered_tokens(piece, vocab_size=vocab_size, end_of_text=end_of_text, tokenizer=tokenizer, skipped=skipped)
    return (documents.tokens for documents in found)


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
    if not piece.is_text:
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
    for encoded in _encoded(_batches(documents(piece, faults, chats)), tokenizer, faults):
        if kept := list(_kept(encoded, end_of_text, faults)):
            tokens = np.concatenate([part for _, ids in kept for part in (ids, end)])
            yield Numbered(tokens.astype(token_dtype(vocab_size), copy=False), faults, [number for number, _ in kept])


def _batches(found: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    batch: list[tuple[int, str]] = []
    size = 0
    for document in found:
        batch.append(document)
        size += len(document[1])
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _encoded(batches: Iterable[list[tuple[int, str]]], tokenizer: Tokenizer, faults: Faults) -> Iterator[list[Encoded]]:
    """Yields batches of documents while the next batches are read and encoded.

    The package encodes a batch on all processors without the GIL. Encoding two batches at a time keeps them busy when
    documents are long and while ids are converted to arrays. A pool of processes took a quarter more CPU time.
    """
    waiting: deque[tuple[list[tuple[int, str]], Future[list[NDArray[np.uint32]]]]] = deque()
    pool = ThreadPoolExecutor(AHEAD - 1)
    try:
        for batch in batches:
            waiting.append((batch, pool.submit(tokenizer.encode, [text for _, text in batch])))
            if len(waiting) == AHEAD:
                yield _result(*waiting.popleft(), faults)
        while waiting:
            yield _result(*waiting.popleft(), faults)
    finally:
        pool.shutdown(cancel_futures=True)


def _result(batch: list[tuple[int, str]], encoding: Future[list[NDArray[np.uint32]]], faults: Faults) -> list[Encoded]:
    try:
        return [Encoded(number, isinstance(text, Chat), ids) for (number, text), ids in zip(batch, encoding.result())]
    except ValueError as error:
        raise ValueError(
            f"{faults.where(batch[0][0])} or one of the {len(batch)} documents from there: {error}"
        ) from None


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
