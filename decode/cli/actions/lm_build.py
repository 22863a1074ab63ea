"""What `rescore lm build` does."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.lm_info import tables
from rescore.decode.cli.actions.model_files import check_out, write_model
from rescore.decode.cli.arguments import Misuse
from rescore.lm.build import build
from rescore.lm.katz import KatzOptions
from rescore.lm.prune import PruneOptions
from rescore.lm.text import TextTokenizer, sequences


def call(args: argparse.Namespace) -> None:
    check_out(args)
    if len(args.min_count) > args.order:
        raise Misuse(f"--min-count: expected at most one for each of the {args.order} orders, got {len(args.min_count)}")
    tokenizer = models.open_tokenizer(args)
    vocab_size = args.vocab_size or (tokenizer.vocab_size if tokenizer else None)
    eot = tokenizer.eot if tokenizer and args.eot is None else args.eot
    if vocab_size is None or eot is None:
        raise Misuse("expected --tokenizer, or --vocab-size and --eot with .npy files")
    if eot >= vocab_size:
        raise Misuse(f"--eot {eot}: expected an id in 0..{vocab_size - 1}")
    with output.stages() as stage:
        model = build(
            read(args, tokenizer, vocab_size, stage), order=args.order, vocab_size=vocab_size, eot=eot, min_counts=args.min_count,
            estimate=KatzOptions(textbook=args.textbook, unseen_cost=args.unseen_cost),
            shorten=pruning(args), words=tokenizer.words(vocab_size) if tokenizer else None,
            metadata={"tokenizer": tokenizer.sha256} if tokenizer else {})
        stage(f"writing {args.out}")
        info = write_model(model, args)
    output.report(args, info, *tables(info, output.width()))


def read(args: argparse.Namespace, tokenizer: TextTokenizer | None, vocab_size: int, stage: Callable[[str], None]) -> Iterator[Any]:
    """The sequences of all inputs; says what goes on."""
    tokens, told = 0, 0
    for path in args.inputs:
        for sequence in sequences(path, tokenizer):
            check_ids(path, sequence, vocab_size)
            yield sequence
            tokens += len(sequence)
            if tokens - told >= 10_000 or not told:
                told = tokens
                stage(f"reading {path}: {tokens:,} tokens")
    stage(f"counting and estimating: {tokens:,} tokens")


def check_ids(path: Path, sequence: NDArray[Any], vocab_size: int) -> None:
    """ValueError naming the file of an id that is none."""
    low, high = (int(sequence.min()), int(sequence.max())) if len(sequence) else (0, 0)
    if low < 0 or high >= vocab_size:
        raise ValueError(f"{path}: expected ids in 0..{vocab_size - 1}, got {low if low < 0 else high}")


def pruning(args: argparse.Namespace) -> PruneOptions | None:
    if args.theta is None and args.max_ngrams is None:
        return None
    return PruneOptions(theta=args.theta, max_ngrams=args.max_ngrams)
