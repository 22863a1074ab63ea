"""Arguments shared by the actions of `rescore lm`."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from rescore.decode.cli import arguments

DOCUMENTS = ("line", "file")
DTYPES = ("uint16", "uint32", "int32")
STDIN_FORMATS = ("jsonl", "txt", "bin")
AMOUNT = arguments.whole(1, 10**15)
MODEL = (
    "an .ngram or .fst file, or ARPA: .arpa, .lm, also with .gz, .bz2, .xz or .zst; - reads ARPA from standard input"
)
WRITTEN = (".ngram", ".arpa", ".arpa.gz", ".fst", ".lookup.bin")
MODEL_FILE = arguments.Written(WRITTEN, stream=True)


def add_tokenizer(parser: argparse.ArgumentParser, help: str = f"{arguments.TOKENIZER}, for text") -> None:
    parser.add_argument("--tokenizer", type=Path, metavar="PATH", help=help)


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """INPUT.. and the options of `add_reading`."""
    parser.add_argument(
        "inputs",
        nargs="+",
        type=arguments.something,
        metavar="INPUT",
        help="text or token files, see `rescore lm build --help`; - is stdin",
    )
    add_reading(parser)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """How text and tokens are read; see `actions/inputs.py`."""
    add_tokenizer(parser)
    add_ids(parser)
    parser.add_argument(
        "--text-field",
        default="text",
        metavar="NAME",
        help="key or column of the text in JSON lines or Parquet (default: text)",
    )
    parser.add_argument(
        "--documents",
        choices=DOCUMENTS,
        default="line",
        help="documents of plain text: each non-blank line, or the whole file (default: line)",
    )
    parser.add_argument("--dtype", choices=DTYPES, help="dtype of .bin files (default: uint16 if V fits, else uint32)")
    parser.add_argument(
        "--stdin-format",
        choices=STDIN_FORMATS,
        help="format of standard input (default: jsonl with --tokenizer or --vocab-size, else txt)",
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first bad line instead of skipping it")


def add_ids(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vocab-size",
        type=arguments.whole(1, 1 << 24),
        metavar="V",
        help="vocabulary size of token files, or of an ARPA file whose words are ids",
    )
    parser.add_argument(
        "--end-of-text",
        type=arguments.something,
        metavar="TOKEN|ID",
        help=(
            "the end-of-text token: its name with --tokenizer (default: the usual ones, such as <|endoftext|>), or its "
            "id, as for token files"
        ),
    )
    # Its name until 2026-11-25, for scripts.
    parser.add_argument("--eot", dest="end_of_text", type=arguments.something, help=argparse.SUPPRESS)


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--out",
        type=MODEL_FILE,
        required=True,
        metavar="FILE",
        help=(
            "model to write: .ngram, .arpa, .arpa.gz, .fst or .lookup.bin; - for ARPA on standard output, with tables "
            "on standard error"
        ),
    )
    add_arpa(parser)


def add_arpa(parser: argparse.ArgumentParser) -> None:
    """How ARPA files are written."""
    parser.add_argument(
        "--sentence-ends",
        action="store_true",
        help=(
            "write the end of text as </s>, and as <s> at the start of a context, as KenLM expects for sentences "
            "(default: only if its word is </s>); without it <s> and </s> are placeholders"
        ),
    )
    parser.add_argument(
        "--words",
        choices=("auto", "text", "ids"),
        default="auto",
        help=(
            "words of the ARPA file that is written, else of the one that is read: text or decimal token ids (default: "
            "auto, text where possible)"
        ),
    )


def add_pruning(parser: argparse.ArgumentParser, required: bool) -> None:
    group = parser.add_mutually_exclusive_group(required=required)
    group.add_argument("--max-ngrams", type=AMOUNT, metavar="N", help="prune to N n-grams, e.g. 900k or 100M")
    group.add_argument(
        "--theta", type=number(1e6), metavar="X", help="prune n-grams whose relative-entropy loss is below ln(1 + X)"
    )


def size(text: str) -> int:
    """A number of bytes. Suffixes K, M, G and T are powers of 1024."""
    power = {"K": 1, "M": 2, "G": 3, "T": 4}.get(text[-1:], 0)
    try:
        value = round(float(text[:-1] if power else text) * 1024**power)
    except (ValueError, OverflowError):
        value = 0
    if not 1 <= value <= 1 << 60:
        raise argparse.ArgumentTypeError(f"expected a number of bytes such as 1200M or 4G, got {text!r:.80}")
    return value


def number(high: float):
    """A parser of numbers in 0..high."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= high:
            raise argparse.ArgumentTypeError(f"expected a number from 0 to {high:g}, got {text!r:.80}")
        return value

    return parse


def discounts(text: str) -> tuple[float, float, float]:
    """The discounts D1, D2 and D3+ of Kneser-Ney models."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != 3 or not all(0 < value <= most for value, most in zip(values, (1, 2, 3))):
        raise argparse.ArgumentTypeError(
            f"expected three numbers above 0 and at most 1, 2 and 3, such as 0.5,1,1.5, got {text!r:.80}"
        )
    return values


def counts(text: str) -> tuple[int, ...]:
    """Smallest counts of orders 1, 2, ..; all unigrams are kept."""
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if values[:1] != (1,) or list(values) != sorted(values) or len(values) > 7 or max(values) >= 2**31:
        raise argparse.ArgumentTypeError(
            f"expected non-decreasing whole numbers that start with 1, such as 1,1,2,4, got {text!r:.80}"
        )
    return values
