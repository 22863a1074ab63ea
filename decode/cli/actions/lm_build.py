"""What `rescore lm build` does."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from rescore.decode.cli.actions import inputs, models, output
from rescore.decode.cli.actions.lm_info import tables
from rescore.decode.cli.actions.model_files import check_out, write_model
from rescore.decode.cli.arguments import Misuse
from rescore.lm.build import build
from rescore.lm.katz import KatzOptions
from rescore.lm.pieces import Piece
from rescore.lm.prune import PruneOptions
from rescore.lm.skipped import Skipped
from rescore.lm.tokenizer import TextTokenizer


def call(args: argparse.Namespace) -> None:
    check_out(args)
    if len(args.min_count) > args.order:
        raise Misuse(f"--min-count: expected at most one for each of the {args.order} orders, got {len(args.min_count)}")
    tokenizer = models.open_tokenizer(args)
    vocab_size = args.vocab_size or (tokenizer.vocab_size if tokenizer else None)
    eot = tokenizer.eot if tokenizer and args.eot is None else args.eot
    if vocab_size is None or eot is None:
        raise Misuse("expected --tokenizer, or --vocab-size and --eot for token files")
    if eot >= vocab_size:
        raise Misuse(f"--eot {eot}: expected an id in 0..{vocab_size - 1}")
    pieces, skipped = inputs.pieces_of(args, tokenizer, vocab_size), Skipped()
    with output.stages() as stage:
        model = build(
            read(pieces, args, tokenizer, vocab_size, eot, skipped, stage), order=args.order, vocab_size=vocab_size, eot=eot,
            estimate=KatzOptions(textbook=args.textbook, min_counts=args.min_count, unseen_cost=args.unseen_cost),
            shorten=pruning(args), words=tokenizer.words(vocab_size) if tokenizer else None,
            metadata={"tokenizer": tokenizer.sha256} if tokenizer else {})
        stage(f"writing {args.out}")
        info = write_model(model, args)
    parts = [*tables(info, output.width()), *inputs.remarks(skipped)]
    output.report(args, {**info, "skipped": skipped.to_json()}, *parts)


def read(pieces: Sequence[Piece], args: argparse.Namespace, tokenizer: TextTokenizer | None, vocab_size: int, eot: int,
         skipped: Skipped, stage: Callable[[str], None]) -> Iterator[NDArray[Any]]:  # fmt: skip
    """The tokens of all pieces; says what goes on."""
    tokens = 0
    for piece in pieces:
        for array in inputs.telling(stage, "reading", inputs.read(piece, args, tokenizer, vocab_size, eot, skipped), piece.path, tokens):
            tokens += len(array)
            yield array
    if skipped and not tokens:
        raise ValueError(f"no document could be read; {len(skipped):,} were skipped, the first: {skipped.examples[0]}")
    stage(f"counting and estimating: {tokens:,} tokens")


def pruning(args: argparse.Namespace) -> PruneOptions | None:
    if args.theta is None and args.max_ngrams is None:
        return None
    return PruneOptions(theta=args.theta, max_ngrams=args.max_ngrams)
