"""Arguments that several verbs share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rescore.decode.draft import SEMANTICS, Rescorer
from rescore.lm.ngram import NGram

# Chosen on the valid splits of the demo's tasks, docs/benchmarks.md; not on what the demo reports.
DEFAULT_ALPHA = 0.5


def weighted_path(text: str) -> tuple[Path, float]:
    """PATH or PATH=WEIGHT."""
    path, sign, weight = text.rpartition("=")
    if not sign:
        return Path(text), 1.0
    try:
        value = float(weight)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected PATH or PATH=WEIGHT, the weight a number, got {weight!r}") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a finite weight of at least 0, got {weight}")
    return Path(path), value


def whole(low: int, high: int):
    """A parser of whole numbers in low..high."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected {low} to {high}, got {value}")
        return value

    return parse


def alpha(text: str) -> list[float]:
    """One weight, or one per slot separated by commas."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, or one per slot as in 0.5,0.4,0.3, got {text!r}") from None
    if not all(0 <= value < float("inf") for value in values):
        raise argparse.ArgumentTypeError(f"expected finite weights of at least 0, got {text!r}")
    return values


def add_rescoring(parser: argparse.ArgumentParser) -> None:
    """--lm, --alpha, --paths, --top-k, --semantics, --threads."""
    parser.add_argument("--lm", action="append", default=[], type=weighted_path, metavar="LM[=WEIGHT]",
                        help="an .ngram file; several may be given, each with a weight (default weight: 1)")
    parser.add_argument("--alpha", type=alpha, default=[DEFAULT_ALPHA], metavar="A[,A..]",
                        help=f"weight of the language models' costs, one for all slots or one per slot (default: {DEFAULT_ALPHA})")
    parser.add_argument("--paths", type=whole(1, 1024), default=16, metavar="P", help="drafts verified in parallel (default: 16)")
    parser.add_argument("--top-k", type=whole(1, 64), metavar="K", help="candidates per slot (default: all in the dump)")
    parser.add_argument("--semantics", choices=SEMANTICS, default="failure",
                        help="failure: exact; epsilon: backoff whenever it is cheaper, for comparison (default: failure)")
    parser.add_argument("--threads", type=whole(1, 1024), default=os.cpu_count() or 1, metavar="N", help="default: all processors")


def rescorer(args: argparse.Namespace) -> Rescorer:
    """The models named on the command line with their weights."""
    models = [NGram.open(path) for path, _ in args.lm]
    weights = [[weight * value for value in args.alpha] for _, weight in args.lm]
    return Rescorer(models, alpha=weights if weights else 1.0, threads=args.threads)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON; - for standard output instead of the table")
