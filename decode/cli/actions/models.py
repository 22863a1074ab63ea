"""Opens dumps, models and tokenizers, and checks them against each other."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rescore.decode.cli.arguments import Misuse, meant
from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.replay.recorded import fitted_models
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.arpa import UNK, ArpaOptions
from rescore.lm.formats import load
from rescore.lm.ngram import NGram
from rescore.lm.tokenizer import TextTokenizer
from rescore.lm.vocabulary import Vocabulary


def open_dumps(paths: Sequence[Path], args: argparse.Namespace) -> list[Dump]:
    """The dumps; Misuse if one lacks a task or has fewer candidates than --top-k."""
    if twice := next(
        (path for i, path in enumerate(paths) if path.resolve() in [other.resolve() for other in paths[:i]]), None
    ):
        raise Misuse(f"{twice}: expected each dump once")
    dumps = [Dump.open(path, allow_inexact=args.allow_inexact) for path in paths]
    for dump in dumps:
        check_tasks(dump, args.task or ())
        if getattr(args, "top_k", None) and args.top_k > dump.header.top_k:
            raise Misuse(
                f"--top-k {args.top_k}: expected at most {dump.header.top_k}, the candidates per slot of {dump.path}"
            )
    return dumps


def check_tasks(dump: Dump, wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in dump.tasks:
            has = ", ".join(dump.tasks) + meant(name, dump.tasks)
            raise Misuse(f"--task {name!r}: not in the dump {dump.path}, which has {has}")


def open_rescorer(args: argparse.Namespace, dumps: Sequence[Dump]) -> Rescorer:
    """A rescorer with the models of --lm, checked against the dumps' vocabulary and tokenizer."""
    if not args.lm:
        if args.alpha is not None:
            raise Misuse("--alpha: needs --lm")
        return Rescorer(threads=args.threads)
    models = []
    for path, _ in args.lm:
        models.append(open_ngram(path, dumps[0]))
        for dump in dumps:
            try:
                fitted_models(dump, [models[-1]])
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
    alpha = weights(args)
    for dump in dumps:
        if not dump.slots and args.alpha is not None:
            raise Misuse(f"--alpha: weighs n-gram models against heads, and {dump.path} is of a model without")
        if not dump.slots and len(models) > 1:
            raise Misuse(
                f"--lm: expected at most one for {dump.path}, of a model without heads, got {len(models)}; "
                "merge them with `rescore lm merge`"
            )
        if len(alpha) > 1 and len(alpha) != dump.slots:
            raise Misuse(
                f"--alpha: expected one weight, or one for each of the {dump.slots} slots of {dump.path}, "
                f"got {len(alpha)}"
            )
    rescorer = Rescorer(
        models, alpha=[[weight * value for value in alpha] for _, weight in args.lm], threads=args.threads
    )
    return rescorer.widened(min(dump.header.vocab_size for dump in dumps))


def open_settings(args: argparse.Namespace) -> Settings | None:
    """The settings of --settings. Sets --lm to their models if it is not given."""
    if not args.settings:
        return None
    settings = Settings.load(args.settings)
    if not args.lm:
        settings.open_models()  # raises if one is missing or has changed
        args.lm = [(model.path, 1 / len(settings.models)) for model in settings.models]
    return settings


def split_of(args: argparse.Namespace, dump: Dump, found: Settings | None) -> tuple[bool, Split]:
    """Whether the settings were tuned on this dump, and the split: that of the settings if so, else of
    --tune-sequences.
    """
    own = found is not None and found.is_tuned_on(dump)
    if own and args.tune_sequences is not None:
        raise Misuse("--tune-sequences: --settings already has the split of this dump; leave it out")
    return own, found.split if found and own else Split.of_dump(dump, args.tune_sequences)


@contextmanager
def naming(dump: Dump) -> Iterator[None]:
    """Adds the dump's path to errors raised in the block."""
    try:
        yield
    except ValueError as error:
        raise (
            error if str(dump.path) in str(error) or isinstance(error, Misuse) else ValueError(f"{dump.path}: {error}")
        ) from error


def weights(args: argparse.Namespace) -> list[float]:
    """Alpha: one value, or one per slot."""
    return [DEFAULT_ALPHA] if args.alpha is None else args.alpha


def open_ngram(path: Path, dump: Dump) -> NGram:
    ids = ArpaOptions(vocab_size=dump.header.vocab_size, end_of_text=dump.header.end_of_text)
    return load(path, arpa=ids)


def open_words(args: argparse.Namespace, dump: Dump, rescorer: Rescorer) -> Sequence[str] | None:
    """The text of every token: from --tokenizer, else from the first model, else None."""
    if not args.tokenizer:
        return rescorer.models[0].words if rescorer.models else None
    tokenizer = TextTokenizer.open(args.tokenizer)
    known = dump.header.tokenizer_sha256
    if known and tokenizer.sha256 != known:
        raise ValueError(
            f"{args.tokenizer}: expected the tokenizer of the dump {dump.path}, sha256 {known}, got {tokenizer.sha256}"
        )
    return tokenizer.words(dump.header.vocab_size)


def open_tokenizer(args: argparse.Namespace) -> TextTokenizer | None:
    """The tokenizer of --tokenizer, or None."""
    if not args.tokenizer:
        given_id(args)
        return None
    tokenizer = TextTokenizer.open(args.tokenizer, args.end_of_text)
    if args.vocab_size and args.vocab_size < tokenizer.vocab_size:
        raise Misuse(
            f"--vocab-size {args.vocab_size}: expected at least {tokenizer.vocab_size}, the tokens of {args.tokenizer}"
        )
    return tokenizer


def given_id(args: argparse.Namespace) -> int | None:
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
