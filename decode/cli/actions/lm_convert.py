"""What `rescore lm convert` does."""

from __future__ import annotations

import argparse
from dataclasses import replace

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.lm_info import tables
from rescore.decode.cli.actions.model_files import check_out, read_model, write_model
from rescore.decode.cli.arguments import Misuse
from rescore.lm.ngram import NGram
from rescore.lm.tokenizer import TextTokenizer


def call(args: argparse.Namespace) -> None:
    check_out(args)
    if args.quantise and args.out.suffix != ".ngram":
        raise Misuse(f"--quantise: only .ngram files have room for rounded costs, not {args.out}")
    tokenizer = models.open_tokenizer(args)
    with output.stages() as stage:
        stage(f"reading {args.model}")
        if tokenizer:
            model = named(read_model(args, vocab_size=tokenizer.vocab_size, eot=tokenizer.eot), tokenizer, args)
        else:
            model = read_model(args)
        if args.quantise:
            stage("rounding costs")
            model = model.quantised()
        stage(f"writing {args.out}")
        info = write_model(model, args)
    output.report(args, info, *tables(info, output.width()))


def named(model: NGram, tokenizer: TextTokenizer, args: argparse.Namespace) -> NGram:
    """The model with what the tokenizer tells: words, end of text, hash."""
    try:
        model.require_tokenizer(tokenizer.sha256, args.vocab_size or tokenizer.vocab_size)
    except ValueError as error:
        raise ValueError(f"{args.model}: {error}") from None
    metadata = {"eot": tokenizer.eot, **model.metadata, "tokenizer": tokenizer.sha256}
    return replace(model, words=model.words or tokenizer.words(model.vocab_size), metadata=metadata)
