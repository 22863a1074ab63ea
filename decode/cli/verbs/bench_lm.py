"""`rescore bench lm`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rescore.decode.cli.groups import MarkdownArgs
from rescore.decode.cli.options import option
from rescore.decode.cli.output import Result, TextTable, column
from rescore.decode.cli.values import int_between

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rescore.decode.bench.results import BenchReport, BenchRow
    from rescore.lm.model.ngram import NGram


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


@dataclass(frozen=True, kw_only=True)
class BenchLmArgs(MarkdownArgs):
    """Compare ours, KenLM and OpenFst on one model: time to open it, memory to hold
    it, and time to score text, each engine in a separate process, all built from
    the same n-grams. Costs of the text's first 10,000 tokens must agree to 1e-4
    nats, or the exit status is 1.

    columns  file MiB    size of the file
             B/n-gram    bytes per n-gram: of the file if it is mapped, else of the
                         memory that opening took
             open ms     wall-clock time to open it; ours and KenLM's binary files
                         are mapped, the others are read whole
             opened MiB  growth of the process after opening the model
             read MiB    and after scoring the text
             token us    microseconds per scored token of the text; p99 over calls
             x           ratio to ours
             n-gram us   microseconds per n-gram at a random position, without
                         context
             start us    microseconds per state of a history, in a batch
    KenLM's Python package loads ARPA into its probing form. If KenLM's build_binary
    is on the path, its binary files are measured too. OpenFst's models are opened
    but not scored.

    examples:
      rescore bench lm --lm data/demo/demo.ngram --text data/demo/greedy
      rescore bench lm --lm LM --text TOKENS.npy --json lm.json --markdown lm.md
    """

    lm: Path = option("LM", "n-gram model: an .ngram, .arpa or .fst file", Path, required=True)
    text: Path = option("FILE|DUMP", "text to score: token ids (.npy, .bin), or a dump", Path, required=True)
    most: int = option("N", "tokens of it to score (default: a million)", int_between(1, 2**40), default=1000000)
    rounds: int = option("N", "rounds, of which the fastest counts", int_between(1, 1000), default=3)
    without: Sequence[str] = option(None, "leave out this peer; repeatable", several=True, choices=("kenlm", "openfst"))


def run(args: BenchLmArgs) -> Result:
    from rescore.decode.bench import lm as bench_lm
    from rescore.decode.bench.results import BenchReport, machine
    from rescore.decode.cli import bench_tables, screen
    from rescore.lm.model.formats import load

    model = load(args.lm)
    tokens = text_of(args.text, model, args.most)
    if len(tokens) < bench_lm.LEAST:
        raise ValueError(f"{args.text}: expected at least {bench_lm.LEAST} tokens to score, got {len(tokens)}")
    left_out: list[str] = []
    with tempfile.TemporaryDirectory() as name, screen.stages() as stage:
        found = bench_lm.peers(model, args.lm, Path(name), set(args.without), left_out)
        row = bench_lm.bench_lm(model, found, tokens, Path(name), rounds=args.rounds, advance=stage)
    report = BenchReport(
        bench="lm",
        machine=machine("rescore", "numpy", "kenlm", "pynini"),
        settings={
            "lm": str(args.lm),
            "ngrams": model.info()["ngrams"],
            "text": str(args.text),
            "tokens": len(tokens),
            "rounds": args.rounds,
            "left_out": "; ".join(left_out) or None,
        },
        checked=(f"costs of the text's first tokens, to {bench_lm.TOLERANCE:g} nats, in all engines that score",),
        results=(row,),
    )
    return bench_tables.finish(args.markdown, report, notes(report, row), [table(row)])


def text_of(path: Path, model: NGram, most: int) -> NDArray[np.int32]:
    """The first tokens of token files or of a dump, int32 [n]."""
    import numpy as np

    from rescore.lm.build.inputs import plan
    from rescore.lm.build.tokens import numbered_tokens

    found, count = [np.zeros(0, np.int32)], 0
    for piece in plan([path], vocab_size=model.vocab_size):
        for documents in numbered_tokens(
            piece,
            vocab_size=model.vocab_size,
            end_of_text=None if piece.form != "dump" else model.metadata.get("end_of_text", 0),
        ):
            found.append(documents.tokens.astype(np.int32))
            count += len(documents.tokens)
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


def table(row: BenchRow) -> TextTable:
    """One line per engine; - for what an engine does not have."""
    engines = row.engines.values()
    columns = [
        column(header, (own.get(name) for own in engines), form, "-")
        for name, (header, form) in FIGURES.items()
        if any(name in own for own in engines)
    ]
    return TextTable("engine", list(row.engines), columns, title=row.group)
