"""What `rescore lm score` does."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.columns import Column, column_tables
from rescore.decode.cli.actions.model_files import read_model
from rescore.decode.cli.arguments import Misuse
from rescore.lm.ngram import NGram
from rescore.lm.text import sequences

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
        eot = end_of_text(model, args)
        files = []
        for path in args.inputs:
            try:
                files.append({"file": str(path), **score(model, sequences(path, tokenizer), eot, partial(tell, stage, path))})
            except ValueError as error:
                raise ValueError(f"{path}: {error}" if str(path) not in str(error) else str(error)) from None
    overall = totals(sum(file["tokens"] for file in files), sum(file["nats"] for file in files))
    rows = [*files, {"file": "overall", **overall}] if len(files) > 1 else files
    columns = [Column("tokens", [f"{row['tokens']:,}" for row in rows])]
    columns += [Column(name, ["" if row[key] is None else f"{row[key]:{form}}" for row in rows])
                for name, key, form in (("nats per token", "nats_per_token", ".4f"), ("perplexity", "perplexity", ",.2f"))]
    report = {"model": str(args.model), "end_of_text": eot, "files": files, "overall": overall}
    output.report(args, report, *column_tables("file", [row["file"] for row in rows], columns, width=output.width()))


def tell(stage: Callable[[str], None], path: Path, tokens: int) -> None:
    stage(f"scoring {path}: {tokens:,} tokens")


def end_of_text(model: NGram, args: argparse.Namespace) -> int | None:
    """The id that separates documents: --eot, else the model's, else none (sequences are scored from no context)."""
    eot = model.metadata.get("eot") if args.eot is None else args.eot
    if eot is not None and not (type(eot) is int and 0 <= eot < model.vocab_size):
        raise Misuse(f"end of text {eot!r}: expected an id in 0..{model.vocab_size - 1}; give --eot")
    return eot


def score(model: NGram, found: Iterable[NDArray[Any]], eot: int | None, advance: Callable[[int], None]) -> dict[str, Any]:
    """Tokens and nats of sequences, each made of whole documents that follow the end of another and end themselves."""
    tokens, nats = 0, 0.0
    for sequence in found:
        state = np.array([model.start([] if eot is None else [eot])], np.uint32)
        begin = int(eot is not None and len(sequence) > 0 and sequence[0] == eot)
        for part in parts(sequence, begin, eot):
            (costs,), state = model.score_batch([part], state)
            nats += float(costs.sum(dtype=np.float64))
            tokens += len(costs)
            advance(tokens)
    return totals(tokens, nats)


def parts(sequence: NDArray[Any], begin: int, eot: int | None) -> Iterable[NDArray[Any]]:
    """The sequence from `begin`, at most CHUNK tokens at once, and the end of text if it lacks it."""
    for at in range(begin, len(sequence), CHUNK):
        yield np.asarray(sequence[at : at + CHUNK])
    if eot is not None and (len(sequence) <= begin or sequence[-1] != eot):
        yield np.array([eot])


def totals(tokens: int, nats: float) -> dict[str, Any]:
    """Means, None where there is no token or the perplexity exceeds any number."""
    mean = nats / tokens if tokens else None
    return {"tokens": tokens, "nats": nats, "nats_per_token": mean, "perplexity": math.exp(mean) if mean is not None and mean < 700 else None}
