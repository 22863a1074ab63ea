"""What `rescore lm score` does."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from itertools import chain, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.cli.actions import inputs, models, output
from rescore.decode.cli.actions.columns import Column, column_tables
from rescore.decode.cli.actions.model_files import read_model
from rescore.decode.cli.arguments import Misuse
from rescore.lm.ngram import NGram
from rescore.lm.skipped import Skipped
from rescore.lm.tokenizer import TextTokenizer

CHUNK = 1 << 20  # tokens scored at once


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
        eot, skipped = end_of_text(model, args, tokenizer), Skipped()
        files = []
        for path, pieces in groupby(inputs.pieces_of(args, tokenizer, model.vocab_size), lambda piece: piece.path):
            found = chain.from_iterable(inputs.read(piece, args, tokenizer, model.vocab_size, eot, skipped) for piece in pieces)
            files.append({"file": path, **score(model, inputs.telling(stage, "scoring", found, path), eot)})
    overall = totals(sum(file["tokens"] for file in files), sum(file["nats"] for file in files))
    rows = [*files, {"file": "overall", **overall}] if len(files) > 1 else files
    columns = [Column("tokens", [f"{row['tokens']:,}" for row in rows])]
    columns += [Column(name, ["" if row[key] is None else f"{row[key]:{form}}" for row in rows])
                for name, key, form in (("nats per token", "nats_per_token", ".4f"), ("perplexity", "perplexity", ",.2f"))]
    report = {"model": str(args.model), "end_of_text": eot, "files": files, "overall": overall, "skipped": skipped.to_json()}
    tables = column_tables("file", [row["file"] for row in rows], columns, width=output.width())
    output.report(args, report, *tables, *inputs.remarks(skipped))


def end_of_text(model: NGram, args: argparse.Namespace, tokenizer: TextTokenizer | None) -> int | None:
    """The id that separates documents: --eot, else the model's, else the tokenizer's, else none (files are scored from no context)."""
    eot = model.metadata.get("eot") if args.eot is None else args.eot
    if eot is None and tokenizer:
        eot = tokenizer.eot
    if eot is not None and not (type(eot) is int and 0 <= eot < model.vocab_size):
        raise Misuse(f"end of text {eot!r}: expected an id in 0..{model.vocab_size - 1}; give --eot")
    return eot


def score(model: NGram, arrays: Iterable[NDArray[Any]], eot: int | None) -> dict[str, Any]:
    """Tokens and nats of the documents of a file, of which the first follows an end of text."""
    tokens, nats = 0, 0.0
    state = np.array([model.start([] if eot is None else [eot])], np.uint32)
    for array in arrays:
        for at in range(0, len(array), CHUNK):
            (costs,), state = model.score_batch([array[at : at + CHUNK]], state)
            nats += float(costs.sum(dtype=np.float64))
            tokens += len(costs)
    return totals(tokens, nats)


def totals(tokens: int, nats: float) -> dict[str, Any]:
    """Means, None where there is no token or the perplexity exceeds any number."""
    mean = nats / tokens if tokens else None
    return {"tokens": tokens, "nats": nats, "nats_per_token": mean, "perplexity": math.exp(mean) if mean is not None and mean < 700 else None}
