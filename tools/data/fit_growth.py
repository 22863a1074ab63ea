"""Measures how the number of distinct n-grams grows with the text, and extrapolates it to longer texts.

    python tools/data/fit_growth.py TOKENS.npy... --vocab-size V --end-of-text ID [--order 4] [--min-count 1,1,2,4]
    [--tokens-wanted 180G] [--json FILE]

The documents of all files are shuffled, so that every prefix is a random sample. For each order n, the distinct windows
of up to n tokens (`rescore.lm.windows`) with at least the order's count are counted in prefixes of 1/2^k of the text.

columns  n, count   of the n-grams
         distinct   in the whole text
         exponent   b, log2 of the growth over the last doubling (Heaps' law: distinct ~ tokens^b), +- its standard
                    deviation over random orders of the documents
         change     of b from one doubling to the next: the slope of a line through the last four doublings
         at ..      distinct at --tokens-wanted: if b keeps falling by `change` (not below 0), and if b stays constant.
                    The true value is expected in between, since b falls more and more slowly.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from rescore.lm.windows import Packing, group

DOUBLINGS = 4  # fitted by the line of exponents
UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Distinct n-grams of `order` with a count of at least `least` in `tokens` tokens, and their growth."""

    order: int
    least: int
    tokens: int
    distinct: int
    exponent: float
    deviation: float
    change: float

    def at(self, tokens: float, falling: bool) -> float:
        """Extrapolated distinct n-grams of `tokens` tokens, with a falling or a constant exponent."""
        doublings = math.log2(tokens / self.tokens)
        grown = min(0.0, doublings) * self.exponent  # a shorter text
        for number in range(1, math.ceil(doublings) + 1):
            part = min(1.0, doublings - number + 1)
            grown += part * max(0.0, self.exponent + (self.change * number if falling else 0.0))
        return self.distinct * 2**grown


def main() -> None:
    args = arguments()
    console = Console()
    stream = np.concatenate([np.load(path).astype(np.uint32) for path in args.tokens])
    ends = np.flatnonzero(stream == args.end_of_text) + 1
    if not len(ends) or ends[-1] != len(stream):
        raise SystemExit(f"{args.tokens[-1]}: expected an end-of-text {args.end_of_text} after every document")
    rows = []
    for order in range(2, args.order + 1):
        with console.status(f"{order}-grams"):
            rows.append(fit(stream, ends, order, args))
    show(rows, args, console)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "tokens",
        nargs="+",
        type=Path,
        metavar="TOKENS.npy",
        help="token files, each document followed by the end of text",
    )
    parser.add_argument("--vocab-size", type=int, required=True, metavar="V")
    parser.add_argument("--end-of-text", type=int, required=True, metavar="ID")
    parser.add_argument("--order", type=int, default=4, metavar="N", help="default: 4")
    parser.add_argument(
        "--min-count",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[1, 1, 2, 4],
        metavar="C1,C2,..",
        help="default: 1,1,2,4",
    )
    parser.add_argument(
        "--tokens-wanted",
        type=lambda text: float(text[:-1]) * UNITS[text[-1]],
        default=180e9,
        metavar="N",
        help="tokens to extrapolate to (default: 180G)",
    )
    parser.add_argument(
        "--orders-of-documents", type=int, default=3, metavar="R", help="random orders of the documents (default: 3)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    return parser.parse_args()


def fit(stream: NDArray[np.uint32], ends: NDArray[np.int64], order: int, args: argparse.Namespace) -> Growth:
    least = args.min_count[order - 1] if order <= len(args.min_count) else 1
    packing = Packing(order=order, vocab_size=args.vocab_size, end_of_text=args.end_of_text)
    curves = []
    for seed in range(args.orders_of_documents):
        text = shuffled(stream, ends, args.end_of_text, seed)
        sizes = [len(text) >> k for k in range(DOUBLINGS, -1, -1)]
        keys = packing.keys(text)
        curves.append([int((group(keys[:, :size])[1] >= least).sum()) for size in sizes])
    exponents = np.diff(np.log2(curves), axis=1)
    mean = exponents.mean(axis=0)
    return Growth(
        order=order,
        least=least,
        tokens=len(stream),
        distinct=curves[0][-1],
        exponent=float(mean[-1]),
        deviation=float(exponents[:, -1].std(ddof=1)) if len(curves) > 1 else 0.0,
        change=float(np.polyfit(range(DOUBLINGS), mean, 1)[0]),
    )


def shuffled(stream: NDArray[np.uint32], ends: NDArray[np.int64], end_of_text: int, seed: int) -> NDArray[np.uint32]:
    """The shuffled documents, with an end-of-text before the first."""
    begins = np.append(0, ends[:-1])
    order = np.random.default_rng(seed).permutation(len(ends))
    return np.concatenate([np.array([end_of_text], np.uint32), *(stream[begins[i] : ends[i]] for i in order)])


def show(rows: list[Growth], args: argparse.Namespace, console: Console) -> None:
    table = Table(title=f"{rows[0].tokens:,} tokens")
    for name in (
        "n",
        "count",
        "distinct",
        "exponent",
        "change",
        f"at {args.tokens_wanted / 1e9:g}G: b falling",
        "b as now",
    ):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row.order),
            f">= {row.least}",
            f"{row.distinct:,}",
            f"{row.exponent:.3f} +- {row.deviation:.3f}",
            f"{row.change:+.4f}",
            *(f"{row.at(args.tokens_wanted, falling) / 1e9:.2f}G" for falling in (True, False)),
        )
    console.print(table)


if __name__ == "__main__":
    main()
