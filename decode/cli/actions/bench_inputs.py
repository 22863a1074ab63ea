"""Inputs of the search benchmarks: a model, and lattices from a dump or sampled around a text."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rescore.decode.bench.lattices import BenchLattices, lattices_of, lattices_of_text
from rescore.decode.cli.actions import models
from rescore.decode.replay.standard import fitted_models
from rescore.lattice.dump import Dump
from rescore.lm.formats import load
from rescore.lm.ngram import NGram
from rescore.lm.pieces import plan
from rescore.lm.tokenize import tokens_of

MOST_TOKENS = 10_000_000  # read from --text

# Makes lattices: called with count=, slots= and width=.
Source = Callable[..., BenchLattices]


def open_inputs(args: argparse.Namespace) -> tuple[NGram, Dump | None, Source]:
    """The model, the dump (None with --text), and the source of lattices."""
    if args.text:
        model = load(args.lm, resident=args.resident)
        return model, None, partial(lattices_of_text, text_of(args.text, model, MOST_TOKENS), model, seed=args.seed)
    dump = Dump.open(args.dump, allow_inexact=True)
    model = models.open_ngram(args.lm, dump, resident=args.resident)
    (model,) = fitted_models(dump, [model])
    return model, dump, partial(lattices_of, dump, model, seed=args.seed)


def text_of(path: Path, model: NGram, most: int) -> NDArray[np.int32]:
    """The first tokens of token files or of a dump, int32 [n]."""
    found, count = [np.zeros(0, np.int32)], 0
    for piece in plan([path], vocab_size=model.vocab_size):
        for tokens in tokens_of(
            piece,
            vocab_size=model.vocab_size,
            end_of_text=None if piece.form != "dump" else model.metadata.get("end_of_text", 0),
        ):
            found.append(tokens.astype(np.int32))
            count += len(tokens)
            if count >= most:
                return np.concatenate(found)[:most]
    return np.concatenate(found)


def made_of(lattices: BenchLattices) -> str:
    """A note on the parts of lattices that no head predicted; empty if there are none."""
    slots, width = lattices.sausage.slots, lattices.sausage.width
    if lattices.drawn >= width:
        return "sampled around positions of the text, as from heads that are right in 40% of all slots"
    parts = [f"lattices of {slots} slots are joined from {lattices.joined(slots)} rows of the dump"] * (
        lattices.joined(slots) > 1
    )
    parts += [
        f"the dump has {width - lattices.drawn} candidates per slot: the last {lattices.drawn} of {width} are sampled "
        "from the model"
    ] * (lattices.drawn > 0)
    return "; ".join(parts)
