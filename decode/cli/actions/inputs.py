"""Reads the text and tokens of INPUT arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from rescore.decode.cli.arguments import printable
from rescore.lm.inputs import TEXT, ReadOptions, files_of, form_of
from rescore.lm.piece import Piece
from rescore.lm.pieces import plan
from rescore.lm.sources import is_counts
from rescore.lm.tokenize import Numbered, numbered_tokens
from rescore.lm.tokenizer import Tokenizer
from rescore.lm.vocabulary import Skipped

TOLD = 100_000  # tokens between two progress messages


def pieces_of(
    args: argparse.Namespace, tokenizer: Tokenizer | None, vocab_size: int, names: Sequence[str] | None = None
) -> list[Piece]:
    """The pieces of the inputs, or of `names`."""
    return plan(
        args.inputs if names is None else names,
        vocab_size=vocab_size,
        tokenizer=tokenizer,
        options=read_options(args),
    )


def read_options(args: argparse.Namespace) -> ReadOptions:
    """How inputs are read. Standard input is plain text if no option defines token ids."""
    stdin = args.stdin_format or ("jsonl" if args.tokenizer or args.vocab_size else "txt")
    return ReadOptions(text_field=args.text_field, documents=args.documents, dtype=args.dtype, stdin=stdin)


def are_words(args: argparse.Namespace) -> bool:
    """Whether the tokens are words: all inputs are text and no option defines token ids."""
    told = args.tokenizer or args.vocab_size is not None or args.end_of_text is not None
    if told or any(is_counts(name) for name in args.inputs):
        return False
    return all(form_of(path, read_options(args)) in TEXT for path in files_of(args.inputs))


def read(
    piece: Piece,
    args: argparse.Namespace,
    tokenizer: Tokenizer | None,
    vocab_size: int,
    end_of_text: int | None,
    skipped: Skipped,
) -> Iterator[Numbered]:
    """The documents of a piece, see `numbered_tokens`; --strict skips nothing."""
    return numbered_tokens(
        piece,
        vocab_size=vocab_size,
        end_of_text=end_of_text,
        tokenizer=tokenizer,
        skipped=None if args.strict else skipped,
    )


def telling(
    stage: Callable[[str], None], verb: str, arrays: Iterable[NDArray[Any]], path: str, before: int = 0
) -> Iterator[NDArray[Any]]:
    """Yields the arrays and shows the number of tokens so far; `before`: tokens of earlier files."""
    tokens, told = before, before
    for array in arrays:
        yield array
        tokens += len(array)
        if tokens - told >= TOLD or told == before:
            told = tokens
            stage(f"{verb} {path}: {tokens:,} tokens")


def remarks(skipped: Skipped) -> list[str]:
    """Lines about skipped documents and what else was noticed."""
    notes = [f"note: {printable(note)}" for note in skipped.notes]
    if not skipped:
        return notes
    return [
        *notes,
        f"skipped {len(skipped):,} documents ({skipped.told()}), the first:",
        *(f"  {printable(example)}" for example in skipped.examples),
    ]
