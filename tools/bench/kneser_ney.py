"""Compares Kneser-Ney models of `rescore lm build` and KenLM's lmplz: probabilities, time, memory. Linux only.

    python tools/bench/kneser_ney.py LMPLZ TRAIN.npy HELDOUT.npy --vocab-size 86801 --end-of-text 0 --orders 2,3,4,5

Token ids are lmplz's words, and ends of text its ends of sentences. One id must not occur; it is lmplz's <unk>. The two
run one after the other; ours writes an .ngram file, lmplz a larger ARPA file.

columns  n-grams     of all orders
         p, bow      largest difference of a log10 probability, and of a log10 backoff weight
         s, CPU s    wall-clock time, and CPU time of all cores: Kneser-Ney (ours, lmplz), Katz
         MB          peak of resident memory, mapped files included
         perplexity  of HELDOUT: Kneser-Ney (ours, lmplz), Katz
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from process_watch import watch
from rich.table import Table

from rescore.decode.cli.actions.output import console as terminal
from rescore.lm.arpa import ArpaOptions, read_arpa
from rescore.lm.diff import difference
from rescore.lm.ngram import NGram
from rescore.lm.perplexity import perplexity

LN10 = math.log(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lmplz", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("heldout", type=Path)
    parser.add_argument("--vocab-size", type=int, required=True)
    parser.add_argument("--end-of-text", type=int, required=True)
    parser.add_argument("--orders", default="2,3,4,5")
    parser.add_argument("--ram", default="1500M", help="memory limit of both (default: 1500M)")
    parser.add_argument("--sort-memory", default="1G", help="lmplz -S")
    parser.add_argument(
        "--min-count", default="1", help="smallest count kept for each order (lmplz --prune takes one less)"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_text(args.train, args.end_of_text, args.vocab_size, Path(folder) / "text")
        for order in map(int, args.orders.split(",")):
            rows.append(measure(args, order, Path(folder)))
            print(json.dumps(rows[-1]), file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    terminal().print(shown(rows))


def write_text(tokens: Path, end_of_text: int, vocab_size: int, path: Path) -> None:
    """Writes one line per document, with ids as words."""
    ids = np.load(tokens, mmap_mode="r")
    if (
        unseen := vocab_size - len(np.unique(ids))
    ) != 1:  # several would share its probability when the ARPA file is read
        raise SystemExit(f"{tokens}: expected exactly one unused id of {vocab_size}, for lmplz's <unk>, got {unseen}")
    begin = 0
    with open(path, "w") as file:
        for end in [*np.flatnonzero(ids == end_of_text).tolist(), len(ids)]:
            if end > begin:
                file.write(" ".join(map(str, ids[begin:end].tolist())) + "\n")
            begin = end + 1


def measure(args: argparse.Namespace, order: int, folder: Path) -> dict[str, Any]:
    """Builds and compares both models of an order."""
    ids = ["--vocab-size", str(args.vocab_size), "--end-of-text", str(args.end_of_text)]
    build = [sys.executable, "-m", "rescore.decode.cli", "lm", "build", str(args.train), *ids, "--order", str(order)]
    least = args.min_count.split(",")[:order]
    build += ["--ram", args.ram, "--min-count", ",".join(least), "-o", str(folder / "lm.ngram")]
    prune = [str(int(own) - 1) for own in least]
    lmplz = [str(args.lmplz), "-o", str(order), "-S", args.sort_memory, "-T", str(folder), "--prune", *prune]
    lmplz += ["--text", str(folder / "text"), "--arpa", str(folder / "lmplz.arpa")]
    took = {"lmplz": run(lmplz, folder), "katz": run([*build, "--method", "katz"], folder)}
    katz = nats(NGram.open(folder / "lm.ngram"), args)
    took["ours"] = run([*build, "--method", "kneser-ney"], folder)
    ours = NGram.open(folder / "lm.ngram")
    theirs = read_arpa(
        folder / "lmplz.arpa", ArpaOptions(words="ids", vocab_size=args.vocab_size, end_of_text=args.end_of_text)
    )
    found = difference(ours, theirs)
    return {
        "order": order,
        "ngrams": ours.info()["ngrams"],
        "others": sum(own.only_a + own.only_b for own in found.ngrams),
        "p": max(own.largest for own in found.ngrams) / LN10,
        "bow": max(own.largest for own in found.contexts) / LN10,
        **took,
        "perplexity": {"ours": nats(ours, args), "lmplz": nats(theirs, args), "katz": katz},
    }


def run(command: list[str], folder: Path) -> dict[str, float]:
    """Seconds and bytes of a command. SystemExit if it fails."""
    with open(folder / "log", "wb") as log:
        use = watch(command, folder, log)
    if use.status:
        raise SystemExit(f"{' '.join(command)}: {(folder / 'log').read_text()[-2000:]}")
    return {"seconds": use.seconds, "cpu_seconds": use.cpu_seconds, "bytes": use.highest_bytes}


def nats(model: NGram, args: argparse.Namespace) -> float:
    return perplexity(model, [np.load(args.heldout)], end_of_text=args.end_of_text).overall()["perplexity"]


def shown(rows: list[dict[str, Any]]) -> Table:
    table = Table("order", "n-grams", "p", "bow", "s", "CPU s", "MB", "perplexity")
    for row in rows:
        took = [row[name] for name in ("ours", "lmplz", "katz")]
        table.add_row(
            str(row["order"]),
            f"{sum(row['ngrams']):,}",
            f"{row['p']:.1e}",
            f"{row['bow']:.1e}",
            ", ".join(f"{own['seconds']:.1f}" for own in took),
            ", ".join(f"{own['cpu_seconds']:.1f}" for own in took),
            ", ".join(f"{own['bytes'] / 1e6:,.0f}" for own in took),
            ", ".join(f"{row['perplexity'][name]:.1f}" for name in ("ours", "lmplz", "katz")),
        )
    return table


if __name__ == "__main__":
    main()
