"""The text and tokens that the command line names as INPUT."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from rescore.decode.cli.arguments import printable
from rescore.lm.inputs import ReadOptions
from rescore.lm.piece import Piece
from rescore.lm.pieces import plan
from rescore.lm.skipped import Skipped
from rescore.lm.tokenize import tokens_of
from rescore.lm.tokenizer import TextTokenizer

TOLD = 100_000  # tokens between two words about the progress


def pieces_of(
    args: argparse.Namespace, tokenizer: TextTokenizer | None, vocab_size: int, names: Sequence[str] | None = None
) -> list[Piece]:
    """The pieces of all inputs, or of those named."""
    options = ReadOptions(text_field=args.text_field, lines=args.lines, dtype=args.dtype, stdin=args.stdin_format)
    return plan(args.inputs if names is None else names, vocab_size=vocab_size, tokenizer=tokenizer, options=options)


def read(
    piece: Piece,
    args: argparse.Namespace,
    tokenizer: TextTokenizer | None,
    vocab_size: int,
    eot: int | None,
    skipped: Skipped,
) -> Iterator[NDArray[Any]]:
    """The tokens of a piece (see `tokens_of`); with --strict nothing is skipped."""
    return tokens_of(
        piece, vocab_size=vocab_size, eot=eot, tokenizer=tokenizer, skipped=None if args.strict else skipped
    )


def telling(
    stage: Callable[[str], None], verb: str, arrays: Iterator[NDArray[Any]], path: str, before: int = 0
) -> Iterator[NDArray[Any]]:
    """The arrays; says how many tokens have come, `before` those of other files."""
    tokens, told = before, before
    for array in arrays:
        yield array
        tokens += len(array)
        if tokens - told >= TOLD or told == before:
            told = tokens
            stage(f"{verb} {path}: {tokens:,} tokens")


def remarks(skipped: Skipped) -> list[str]:
    """Lines for the report about what was skipped."""
    if not skipped:
        return []
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(skipped.reasons.items()))
    return [
        f"skipped {len(skipped):,} documents ({reasons}), the first:",
        *(f"  {printable(example)}" for example in skipped.examples),
    ]
