"""What `rescore lm score` does."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any

from rich.table import Table

from rescore.decode.cli.actions import inputs, models, output
from rescore.decode.cli.actions.columns import Column, column_tables
from rescore.decode.cli.actions.model_files import read_model
from rescore.decode.cli.arguments import Misuse
from rescore.lm.ngram import NGram
from rescore.lm.perplexity import Perplexity, perplexity
from rescore.lm.skipped import Skipped
from rescore.lm.tokenizer import TextTokenizer


def call(args: argparse.Namespace) -> None:
    if args.json:
        output.check_place(args.json)
    tokenizer = models.open_tokenizer(args)
    with output.stages() as stage:
        stage(f"reading {args.model}")
        model = read_model(args)
        if tokenizer:
            try:
                model.require_tokenizer(tokenizer.sha256, max(model.vocab_size, tokenizer.vocab_size))
            except ValueError as error:
                raise ValueError(f"{args.model}: {error}") from None
        eot, skipped, total = end_of_text(model, args, tokenizer), Skipped(), Perplexity.nothing(model.order)
        files = []
        for path, pieces in groupby(inputs.pieces_of(args, tokenizer, model.vocab_size), lambda piece: piece.path):
            found = chain.from_iterable(
                inputs.read(piece, args, tokenizer, model.vocab_size, eot, skipped) for piece in pieces
            )
            own = perplexity(model, inputs.telling(stage, "scoring", found, path), eot=eot)
            files.append({"file": path, **own.to_json()})
            total += own
    overall = total.to_json()
    report = {
        "model": str(args.model),
        "end_of_text": eot,
        "files": files,
        "overall": overall,
        "skipped": skipped.to_json(),
    }
    output.report(args, report, *tables(files, overall, output.width()), *inputs.remarks(skipped))


def end_of_text(model: NGram, args: argparse.Namespace, tokenizer: TextTokenizer | None) -> int | None:
    """The id that separates documents: --eot, else the model's, else the tokenizer's, else none (files are scored from
    no context).
    """
    eot = model.metadata.get("eot") if args.eot is None else args.eot
    if eot is None and tokenizer:
        eot = tokenizer.eot
    if eot is not None and not (type(eot) is int and 0 <= eot < model.vocab_size):
        raise Misuse(f"end of text {eot!r}: expected an id in 0..{model.vocab_size - 1}; give --eot")
    return eot


def tables(files: Sequence[dict[str, Any]], overall: dict[str, Any], width: int) -> Iterator[Table | str]:
    """The files, and what all of them come to; then the orders."""
    rows = [*files, {"file": "overall", **overall}] if len(files) > 1 else files
    yield from column_tables("file", [row["file"] for row in rows], [tokens(rows), *nats(rows)], width=width)
    yield ""
    orders = overall["by_order"]
    share = Column("share", ["" if row["share"] is None else f"{row['share']:.2%}" for row in orders])
    yield from column_tables(
        "order hit", [str(row["order"]) for row in orders], [tokens(orders), share, *nats(orders)], width=width
    )


def tokens(rows: Sequence[dict[str, Any]]) -> Column:
    return Column("tokens", [f"{row['tokens']:,}" for row in rows])


def nats(rows: Sequence[dict[str, Any]]) -> list[Column]:
    names = (("nats per token", "nats_per_token", ".4f"), ("perplexity", "perplexity", ",.2f"))
    return [
        Column(name, ["" if row[key] is None else f"{row[key]:{form}}" for row in rows]) for name, key, form in names
    ]
