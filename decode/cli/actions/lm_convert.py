"""Runs `rescore lm convert`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.lm_info import tables
from rescore.decode.cli.actions.model_files import arpa_words, check_out, read_model, write_model
from rescore.decode.cli.actions.output import check_stdin
from rescore.decode.cli.arguments import Misuse
from rescore.lm.formats import save
from rescore.lm.fst_symbols import save_symbols
from rescore.lm.ngram import NGram
from rescore.lm.tokenizer import TextTokenizer


def call(args: argparse.Namespace) -> None:
    check_out(args)
    if (args.symbols or args.failure_label) and args.out.suffix != ".fst":
        raise Misuse(f"--symbols, --failure-label: only for .fst output, not {args.out}")
    if args.quantise and args.out.suffix != ".ngram":
        raise Misuse(f"--quantise: only for .ngram output, not {args.out}")
    tokenizer = models.open_tokenizer(args)
    check_stdin(args.model)
    with output.stages() as stage:
        stage(f"reading {args.model}")
        if tokenizer:
            model = named(
                read_model(args, vocab_size=tokenizer.vocab_size, end_of_text=tokenizer.end_of_text), tokenizer, args
            )
        else:
            model = read_model(args)
        if args.quantise:
            stage("quantising")
            model = model.quantised()
        stage(f"writing {args.out}")
        info = write_fst(model, args) if args.out.suffix == ".fst" else write_model(model, args)
    output.report(args, info, *tables(info, output.width()))


def write_fst(model: NGram, args: argparse.Namespace) -> dict[str, Any]:
    """Saves the model as OpenFst, and --symbols. Returns the report."""
    save(model, args.out, failure_label=args.failure_label)
    label = f"{args.failure_label} (failure)" if args.failure_label else "0 (epsilon)"
    info = {"model": str(args.out), **model.info(), "labels": "token id + 1", "backoff_label": label}
    if not args.symbols:
        return info
    words, why = arpa_words(model, args.words)
    save_symbols(model, args.symbols, words=words, failure_label=args.failure_label)
    return {**info, "symbols": str(args.symbols), "symbols_of": f"decimal ids, as {why}" if why else words}


def named(model: NGram, tokenizer: TextTokenizer, args: argparse.Namespace) -> NGram:
    """The model with the tokenizer's words, end of text and hash."""
    try:
        model.require_tokenizer(tokenizer.sha256, args.vocab_size or tokenizer.vocab_size)
    except ValueError as error:
        raise ValueError(f"{args.model}: {error}") from None
    words = tokenizer.words(model.vocab_size)
    if model.words is not None and "tokenizer" in model.metadata:
        return model
    for token, (mine, its) in enumerate(zip(model.words or (), words)):
        if mine != its and token != tokenizer.end_of_text:
            raise ValueError(
                f"{args.model}: expected the tokenizer's words in the order of their ids, got word {token} = {mine!r}, "
                f"in the tokenizer {its!r}"
            )
    metadata = {"end_of_text": tokenizer.end_of_text, **model.metadata, "tokenizer": tokenizer.sha256}
    return replace(model, words=words, metadata=metadata)
