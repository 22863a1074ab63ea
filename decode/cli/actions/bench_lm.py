"""Runs `rescore bench lm`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rescore.decode.bench import lm as bench_lm
from rescore.decode.bench.results import BenchReport, BenchRow, bench_machine
from rescore.decode.cli.actions import bench_tables, output
from rescore.decode.cli.actions.bench_tables import TablePart
from rescore.decode.cli.actions.output import Column
from rescore.lm.formats import load
from rescore.lm.ngram import NGram
from rescore.lm.pieces import plan
from rescore.lm.tokenize import tokens_of

# Header and format of each figure.
FIGURES = {
    "file_mib": ("file MiB", ".1f"),
    "bytes_per_ngram": ("B/n-gram", ".2f"),
    "open_ms": ("open ms", ".1f"),
    "opened_mib": ("opened MiB", ".1f"),
    "read_mib": ("read MiB", ".1f"),
    "walk_us": ("token us", ".3f"),
    "walk_p99_us": ("p99", ".3f"),
    "times_ours": ("x", ".1f"),
    "random_us": ("n-gram us", ".3f"),
    "random_p99_us": ("p99", ".3f"),
    "start_us": ("start us", ".3f"),
}


def call(args: argparse.Namespace) -> None:
    model = load(args.lm)
    tokens = text_of(args.text, model, args.most)
    if len(tokens) < bench_lm.LEAST:
        raise ValueError(f"{args.text}: expected at least {bench_lm.LEAST} tokens to score, got {len(tokens)}")
    left_out: list[str] = []
    with tempfile.TemporaryDirectory() as name, output.stages() as stage:
        found = bench_lm.peers(model, args.lm, Path(name), set(args.without), left_out)
        row = bench_lm.bench_lm(model, found, tokens, Path(name), rounds=args.rounds, advance=stage)
    report = BenchReport(
        bench="lm",
        machine=bench_machine("rescore", "numpy", "kenlm", "pynini"),
        settings={
            "lm": str(args.lm),
            "ngrams": model.info()["ngrams"],
            "text": str(args.text),
            "tokens": len(tokens),
            "rounds": args.rounds,
            "left_out": "; ".join(left_out) or None,
        },
        checked=(f"costs of the text's first tokens, to {bench_lm.TOLERANCE:g} nats, in all engines that score",),
        rows=(row,),
    )
    bench_tables.finish(args, report, notes(report, row), [table(row)])


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


def notes(report: BenchReport, row: BenchRow) -> list[str]:
    settings = report.settings
    found = [
        f"{settings['lm']}: {row.case['ngrams']:,} n-grams; {settings['tokens']:,} tokens of {settings['text']}",
        f"microseconds of thread CPU time, fastest of {settings['rounds']} rounds, median over calls of 1,000 tokens; "
        "KenLM is called from Python, with words as text",
    ]
    return found + [f"left out: {settings['left_out']}"] * bool(settings["left_out"])


def table(row: BenchRow) -> TablePart:
    """One line per engine; - for what an engine does not have."""
    engines = row.engines.values()
    columns = [
        Column(header, [f"{own[name]:{form}}" if name in own else "-" for own in engines])
        for name, (header, form) in FIGURES.items()
        if any(name in own for own in engines)
    ]
    return TablePart(title=row.group, header="engine", labels=list(row.engines), columns=columns)
