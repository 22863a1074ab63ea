"""Tokenizers, text and tokens of the verbs of `rescore lm`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rescore.decode.cli.groups import IdArgs, InputArgs, ReadingArgs
from rescore.decode.cli.options import Misuse
from rescore.decode.cli.values import printable
from rescore.lm.build.inputs import TEXT, Piece, ReadOptions, files_of, form_of, plan
from rescore.lm.build.sources import is_counts
from rescore.lm.build.tokens import Numbered, numbered_tokens
from rescore.lm.model.arpa import UNK
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tokenizer import TextTokenizer, Tokenizer
from rescore.lm.model.vocabulary import Skipped, Vocabulary

TOLD = 100_000  # tokens between two progress messages


def pieces_of(names: Sequence[str], args: ReadingArgs, tokenizer: Tokenizer | None, vocab_size: int) -> list[Piece]:
    """The pieces of the files of these names."""
    return plan(
        names,
        vocab_size=vocab_size,
        tokenizer=tokenizer,
        options=read_options(args),
    )


def read_options(args: ReadingArgs) -> ReadOptions:
    """How inputs are read. Standard input is plain text if no option defines token ids."""
    stdin = args.stdin_format or ("jsonl" if args.tokenizer or args.vocab_size else "txt")
    return ReadOptions(text_field=args.text_field, documents=args.documents, dtype=args.dtype, stdin=stdin)


def are_words(args: InputArgs) -> bool:
    """Whether the tokens are words: all inputs are text and no option defines token ids."""
    told = args.tokenizer or args.vocab_size is not None or args.end_of_text is not None
    if told or any(is_counts(name) for name in args.inputs):
        return False
    return all(form_of(path, read_options(args)) in TEXT for path in files_of(args.inputs))


def read(
    piece: Piece,
    strict: bool,
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
        skipped=None if strict else skipped,
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


def open_tokenizer(path: Path | None, args: IdArgs) -> TextTokenizer | None:
    """The tokenizer of --tokenizer, or None."""
    if not path:
        given_id(args)
        return None
    tokenizer = TextTokenizer.open(path, args.end_of_text)
    if args.vocab_size and args.vocab_size < tokenizer.vocab_size:
        raise Misuse(f"--vocab-size {args.vocab_size}: expected at least {tokenizer.vocab_size}, the tokens of {path}")
    return tokenizer


def given_id(args: IdArgs) -> int | None:
    """The id of --end-of-text where there is no tokenizer to look its name up; None if it is not given."""
    if args.end_of_text is None:
        return None
    if not args.end_of_text.isdecimal():
        raise Misuse(f"--end-of-text {args.end_of_text}: expected an id without --tokenizer, got a name")
    return int(args.end_of_text)


def vocabulary_of(model: NGram, end_of_text: int | None) -> Vocabulary | None:
    """The words of a word model as a tokenizer. None for models of tokens or ids, without <unk>, or without the id that
    ends sentences.
    """
    if model.words is None or UNK not in model.words or end_of_text is None or "tokenizer" in model.metadata:
        return None
    return Vocabulary(spelled=model.words, end_of_text=end_of_text)
