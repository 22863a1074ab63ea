"""Arguments that the actions of `rescore lm` share."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from rescore.decode.cli import arguments

DOCUMENTS = ("line", "file")
DTYPES = ("uint16", "uint32", "int32")
STDIN_FORMATS = ("jsonl", "txt", "bin")
AMOUNT = arguments.whole(1, 10**15)
WRITTEN = (".ngram", ".arpa", ".arpa.gz", ".fst", ".lookup.bin")


def add_tokenizer(parser: argparse.ArgumentParser, help: str = f"{arguments.TOKENIZER}, for text") -> None:
    parser.add_argument("--tokenizer", type=Path, metavar="PATH", help=help)
    parser.add_argument(
        "--end-of-text", metavar="TOKEN", help="its end-of-text token (default: <|endoftext|> and the like)"
    )


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """INPUT.. and how they are read."""
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    add_reading(parser)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """How text and tokens are read, by `actions/inputs.py`."""
    add_tokenizer(parser)
    add_ids(parser)
    parser.add_argument(
        "--text-field",
        default="text",
        metavar="NAME",
        help="key or column of the text in JSON lines and Parquet (default: text)",
    )
    parser.add_argument(
        "--documents",
        choices=DOCUMENTS,
        default="line",
        help="what a document of plain text is: a line, blank ones skipped, or the whole file (default: line)",
    )
    parser.add_argument("--dtype", choices=DTYPES, help="of .bin files (default: uint16 where V allows, else uint32)")
    parser.add_argument(
        "--stdin-format",
        choices=STDIN_FORMATS,
        help="what standard input holds (default: jsonl with --tokenizer or --vocab-size, else txt)",
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first bad line instead of skipping it")


def add_ids(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vocab-size",
        type=arguments.whole(1, 1 << 24),
        metavar="V",
        help="of token files, or of an ARPA file whose words are ids",
    )
    parser.add_argument("--eot", type=arguments.whole(0, (1 << 24) - 1), metavar="ID", help="their end-of-text id")


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--out",
        type=model_path,
        required=True,
        metavar="FILE",
        help=".ngram, .arpa, .arpa.gz or .fst; - for ARPA on standard output, tables then on standard error",
    )
    add_arpa(parser)


def add_arpa(parser: argparse.ArgumentParser) -> None:
    """How ARPA files are written."""
    parser.add_argument(
        "--sentence-ends",
        action="store_true",
        help=(
            "write the end of text as </s>, and as <s> where a context begins with it, as KenLM expects of sentences "
            "(default: only where </s> is its word); without, <s> and </s> are place holders"
        ),
    )
    parser.add_argument(
        "--words",
        choices=("auto", "text", "ids"),
        default="auto",
        help=(
            "the words of an ARPA file, of that written, else of that read: text or decimal token ids (default: auto, "
            "text where possible)"
        ),
    )


def add_pruning(parser: argparse.ArgumentParser, required: bool) -> None:
    group = parser.add_mutually_exclusive_group(required=required)
    group.add_argument("--max-ngrams", type=AMOUNT, metavar="N", help="keep this many n-grams, e.g. 900k or 100M")
    group.add_argument(
        "--theta", type=number(1e6), metavar="X", help="drop n-grams whose relative-entropy loss is below ln(1 + X)"
    )


def model_path(text: str) -> Path:
    """The name of a model to write, or -."""
    if text != "-" and not text.endswith(WRITTEN):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a name that ends in {', '.join(WRITTEN)}")
    return Path(text)


def arpa_path(text: str) -> Path:
    """The name of an ARPA file to write, or -."""
    if text != "-" and not text.endswith((".arpa", ".arpa.gz")):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a name that ends in .arpa or .arpa.gz")
    return Path(text)


def size(text: str) -> int:
    """A number of bytes, perhaps with K, M, G or T, powers of 1024."""
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
    """D1, D2 and D3+ of Kneser-Ney models."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != 3 or not all(0 < value <= most for value, most in zip(values, (1, 2, 3))):
        raise argparse.ArgumentTypeError(
            f"expected three numbers above 0, at most 1, 2 and 3, such as 0.5,1,1.5, got {text!r:.80}"
        )
    return values


def counts(text: str) -> tuple[int, ...]:
    """Smallest counts of orders 1, 2, ..; unigrams all stay."""
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if values[:1] != (1,) or list(values) != sorted(values) or len(values) > 7 or max(values) >= 2**31:
        raise argparse.ArgumentTypeError(
            f"expected whole numbers that never fall, such as 1,1,2,4, the first 1 as unigrams stay, got {text!r:.80}"
        )
    return values
