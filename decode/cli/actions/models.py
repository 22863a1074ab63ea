"""Dumps, models and tokenizers that the command line names, opened and checked against each other."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rescore.decode.cli.arguments import DEFAULT_ALPHA, Misuse, meant
from rescore.decode.replay.drafters.standard import check_models
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.tuning.settings import Settings
from rescore.lattice.dump import Dump
from rescore.lm.arpa import ArpaOptions
from rescore.lm.arpa_text import UNK
from rescore.lm.formats import load
from rescore.lm.ngram import NGram
from rescore.lm.tokenizer import TextTokenizer
from rescore.lm.vocabulary import Vocabulary


def open_dumps(paths: Sequence[Path], args: argparse.Namespace) -> list[Dump]:
    """The dumps, each of which has the wanted tasks and candidates."""
    if twice := next(
        (path for i, path in enumerate(paths) if path.resolve() in [other.resolve() for other in paths[:i]]), None
    ):
        raise Misuse(f"{twice}: expected each dump once")
    dumps = [Dump.open(path, allow_inexact=args.allow_inexact) for path in paths]
    for dump in dumps:
        check_tasks(dump, args.task or ())
        if getattr(args, "top_k", None) and args.top_k > dump.header.top_k:
            raise Misuse(f"--top-k {args.top_k}: the dump {dump.path} has {dump.header.top_k} candidates per slot")
    return dumps


def check_tasks(dump: Dump, wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in dump.tasks:
            has = ", ".join(dump.tasks) + meant(name, dump.tasks)
            raise Misuse(f"--task {name!r}: not in the dump {dump.path}, which has {has}")


def open_rescorer(args: argparse.Namespace, dumps: Sequence[Dump]) -> Rescorer:
    """The models of --lm with their weights, of the dumps' vocabulary and tokenizer."""
    if not args.lm:
        if args.alpha is not None or args.semantics != "failure":
            raise Misuse("--alpha and --semantics are for language models: give --lm as well")
        return Rescorer(threads=args.threads)
    if args.semantics == "epsilon" and len(args.lm) > 1:
        raise Misuse("--semantics epsilon is for one language model; several have no common backoff arcs")
    models = []
    for path, _ in args.lm:
        models.append(open_ngram(path, dumps[0]))
        for dump in dumps:
            try:
                check_models(dump, Rescorer(models[-1]))
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
    alpha = weights(args)
    for dump in dumps:
        if len(alpha) not in (1, dump.header.heads - 1):
            raise Misuse(
                f"--alpha: expected one weight, or one for each of the {dump.header.heads - 1} slots of {dump.path}, "
                f"got {len(alpha)}"
            )
    return Rescorer(models, alpha=[[weight * value for value in alpha] for _, weight in args.lm], threads=args.threads)


def open_settings(args: argparse.Namespace) -> Settings | None:
    """Those of --settings; their models are the command's unless --lm names others."""
    if not args.settings:
        return None
    settings = Settings.load(args.settings)
    if not args.lm:
        settings.open_models()  # each is there, and the one that it was
        args.lm = [(model.path, 1 / len(settings.models)) for model in settings.models]
    return settings


@contextmanager
def naming(dump: Dump) -> Iterator[None]:
    """Errors in the block say which dump they are of."""
    try:
        yield
    except ValueError as error:
        raise (
            error if str(dump.path) in str(error) or isinstance(error, Misuse) else ValueError(f"{dump.path}: {error}")
        ) from error


def weights(args: argparse.Namespace) -> list[float]:
    """Alpha, for all slots or one per slot."""
    return [DEFAULT_ALPHA] if args.alpha is None else args.alpha


def open_ngram(path: Path, dump: Dump, *, resident: bool = False) -> NGram:
    ids = ArpaOptions(vocab_size=dump.header.vocab_size, eot=dump.header.end_of_text)
    return load(path, arpa=ids, resident=resident)


def open_words(args: argparse.Namespace, dump: Dump, rescorer: Rescorer) -> Sequence[str] | None:
    """The tokens as text: from the tokenizer, else from the first model, else none."""
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
    """That of --tokenizer."""
    if not args.tokenizer:
        if args.end_of_text:
            raise Misuse("--end-of-text names a token of --tokenizer: give that as well")
        return None
    tokenizer = TextTokenizer.open(args.tokenizer, args.end_of_text)
    if args.vocab_size and args.vocab_size < tokenizer.vocab_size:
        raise Misuse(
            f"--vocab-size {args.vocab_size}: the tokenizer {args.tokenizer} has {tokenizer.vocab_size} tokens"
        )
    return tokenizer


def vocabulary_of(model: NGram, eot: int | None) -> Vocabulary | None:
    """The words of a model as a tokenizer, None for models of a tokenizer's tokens, of ids, and without <unk>.

    eot  the id that ends sentences, without which there is none either
    """
    if model.words is None or UNK not in model.words or eot is None or "tokenizer" in model.metadata:
        return None
    return Vocabulary(spelled=model.words, eot=eot)
