"""Arguments that several verbs share. Nothing here or in the verbs' modules imports more than argparse, so that
`--help` comes at once.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any, NoReturn

# Chosen on the valid splits of the demo's tasks, docs/results.md; not on what the demo reports.
DEFAULT_ALPHA = 0.3
SEMANTICS = ("failure", "epsilon")


class Misuse(ValueError):
    """Arguments that contradict each other, or the data that they are for."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line, and whose texts keep their line breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, **options})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")


def printable(text: str) -> str:
    """The text with control characters and what is no character spelled out, safe for a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless(text: str) -> str:
    """The same of text in several lines, whose ends and tabs stay."""
    return "".join(c if c in "\n\t" else printable(c) for c in text)


def weighted_path(text: str) -> tuple[Path, float]:
    """PATH or PATH=WEIGHT."""
    path, sign, weight = text.rpartition("=")
    if not sign or os.path.exists(text):
        return Path(text), 1.0
    try:
        value = float(weight)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected PATH or PATH=WEIGHT, the weight a number, got {weight!r}"
        ) from None
    if not path or not 0 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r}: expected PATH=WEIGHT, the weight from 0 to 1000, got {weight}")
    return Path(path), value


def whole(low: int, high: int):
    """A parser of whole numbers in low..high."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r:.80}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected {low} to {high}, got {text:.80}")
        return value

    return parse


def real(low: float, high: float = math.inf, *, above: bool = False):
    """A parser of finite numbers from low, or `above` it, to high."""
    expected = f"a finite number {'above' if above else 'of at least'} {low:g}" + (
        f" and at most {high:g}" if high < math.inf else ""
    )

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (low < value if above else low <= value) or not math.isfinite(value) or value > high:
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r:.80}")
        return value

    return parse


def something(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected text, got none")
    return text


seed = whole(0, 2**64 - 1)


def alpha(text: str) -> list[float]:
    """One weight, or one per slot separated by commas."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a number, or one per slot as in 0.5,0.4,0.3, got {text!r:.80}"
        ) from None
    if not all(0 <= value <= 1000 for value in values):
        raise argparse.ArgumentTypeError(f"expected weights from 0 to 1000, got {text!r:.80}")
    return values


def add_rescoring(parser: argparse.ArgumentParser) -> None:
    """--lm, --alpha, --paths, --top-k, --semantics, --threads."""
    parser.add_argument(
        "--lm",
        action="append",
        default=[],
        type=weighted_path,
        metavar="LM[=WEIGHT]",
        help="an .ngram (or .arpa, .fst) file; several may be given, each with a weight (default weight: 1)",
    )
    parser.add_argument(
        "--alpha",
        type=alpha,
        metavar="A[,A..]",
        help=f"weight of the language models' costs, one for all slots or one per slot (default: {DEFAULT_ALPHA})",
    )
    parser.add_argument(
        "--paths", type=whole(1, 1024), default=16, metavar="P", help="drafts verified in parallel (default: 16)"
    )
    parser.add_argument(
        "--top-k", type=whole(1, 64), metavar="K", help="candidates per slot (default: all in the dump)"
    )
    parser.add_argument(
        "--semantics",
        choices=SEMANTICS,
        default="failure",
        help="failure: exact; epsilon: backoff whenever it is cheaper, for comparison (default: failure)",
    )
    add_threads(parser)


def add_dump(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """DUMP, --allow-inexact."""
    name, number = ("dumps", "+") if several else ("dump", None)
    parser.add_argument(name, nargs=number, type=Path, metavar="DUMP", help="folder of a dump (docs/dump-format.md)")
    parser.add_argument(
        "--allow-inexact",
        action="store_true",
        help="accept a greedy dump whose tokens are not head 1's first candidates",
    )


def add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", action="append", metavar="NAME", help="only this task; may be given several times")


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=whole(1, 1024), default=os.cpu_count() or 1, metavar="N", help="default: all processors"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the figures as JSON; - for standard output instead of the table",
    )
