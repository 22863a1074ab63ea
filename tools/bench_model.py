"""What the size of a model costs: bytes, the time to open it, and the time of a lattice, for models large and small.

    python tools/bench_model.py MODEL=TOKENS.npy.. [--lattices 500] [--rounds 5] [--json FILE]

MODEL   .ngram files, each with text in its own tokens, of which the lattices are made
        alike for all: 8 slots of 16 candidates, the true token at a random rank and 15 tokens drawn
        from the text by frequency, costs those of ranks of a head that is right 40% of the time.

columns  n-grams, B/n-gram  in the file, words left out
         open               milliseconds to open the file and look up one context, not verified, in a process of its own
         p = 1, 16          microseconds a lattice for the best paths, all lattices in one call, one thread
         tree 16, 64        the same for trees
         full context       share of lattices whose whole history is a context of the model: a sign that they are of its text

Times are of the thread's own clock, the least of the rounds; a first call over all lattices brings the pages that they need into memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from rescore.decode.cli.arguments import DEFAULT_ALPHA
from rescore.decode.draft import Rescorer
from rescore.decode.machine import machine
from rescore.lattice.sausage import Sausage
from rescore.lm.atomic import replacing
from rescore.lm.ngram import NGram

SLOTS, CANDIDATES = 8, 16
OPEN = "import sys, time; from rescore.lm.ngram import NGram; t = time.perf_counter(); NGram.open(sys.argv[1], verify=False).start([0]); print(time.perf_counter() - t)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL=TOKENS.npy")
    parser.add_argument("--lattices", type=int, default=500, metavar="N", help="default: 500")
    parser.add_argument("--rounds", type=int, default=5, metavar="R", help="default: 5")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    args = parser.parse_args()
    rows = [measure(*name.split("=", 1), args) for name in args.models]
    show(rows)
    if args.json:
        with replacing(args.json) as file:
            file.write((json.dumps({"machine": machine("rescore", "numpy"), "models": rows}, indent=2) + "\n").encode())


def measure(path: str, tokens: str, args: argparse.Namespace) -> dict[str, Any]:
    opened = [float(subprocess.run([sys.executable, "-c", OPEN, path], capture_output=True, text=True, check=True).stdout) for _ in range(args.rounds)]
    model = NGram.open(path, verify=False)
    history, sausage = lattices(np.load(tokens, mmap_mode="r"), args.lattices)
    rescorer = Rescorer(model, alpha=DEFAULT_ALPHA, threads=1)
    info = model.info()
    calls: dict[str, Callable[[], object]] = {
        "p1_us": lambda: rescorer.paths(sausage, history, 1), "p16_us": lambda: rescorer.paths(sausage, history, 16),
        "tree16_us": lambda: rescorer.trees(sausage, history, 16), "tree64_us": lambda: rescorer.trees(sausage, history, 64),
    }  # fmt: skip
    times = {name: best(call, args.rounds) / args.lattices * 1e6 for name, call in calls.items()}
    full = np.mean([deep(model, row) for row in history])
    return {"model": path, "ngrams": info["arcs"], "bytes_per_ngram": info["bytes_per_ngram"], "open_ms": min(opened) * 1e3, **times, "full_context": float(full)}


def deep(model: NGram, history: np.ndarray) -> bool:
    """Whether the context of all of the history's last N - 1 tokens is a state."""
    return model.start(history) != model.start(history[-model.order + 2 :])


def lattices(tokens: np.ndarray, count: int) -> tuple[np.ndarray, Sausage]:
    """Histories int32 [B, 3] and lattices of what follows them."""
    draw = np.random.default_rng(0)
    at = draw.integers(3, len(tokens) - SLOTS, count)
    history = np.stack([tokens[i - 3 : i] for i in at]).astype(np.int32)
    truth = np.stack([tokens[i : i + SLOTS] for i in at]).astype(np.int32)
    ids = np.asarray(tokens[draw.integers(0, len(tokens), (count, SLOTS, 4 * CANDIDATES))]).astype(np.int32)
    rank = np.minimum(draw.geometric(0.4, (count, SLOTS)) - 1, CANDIDATES - 1)
    chosen = np.empty((count, SLOTS, CANDIDATES), np.int32)
    for b in range(count):
        for t in range(SLOTS):
            _, first = np.unique(ids[b, t], return_index=True)
            others = [token for token in ids[b, t, np.sort(first)] if token != truth[b, t]][: CANDIDATES - 1]
            others += [token for token in range(CANDIDATES) if token not in others and token != truth[b, t]][: CANDIDATES - 1 - len(others)]
            others.insert(rank[b, t], truth[b, t])
            chosen[b, t] = others
    cost = np.broadcast_to(-np.log(0.4) - np.arange(CANDIDATES) * np.log(0.6), chosen.shape).astype(np.float32)
    return history, Sausage(ids=chosen, cost=np.ascontiguousarray(cost))


def best(call: Callable[[], object], rounds: int) -> float:
    """Seconds of the quickest call."""
    call()
    seconds = []
    for _ in range(rounds):
        began = time.thread_time()
        call()
        seconds.append(time.thread_time() - began)
    return min(seconds)


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"{SLOTS} slots of {CANDIDATES} candidates, microseconds a lattice")
    for name in ("model", "n-grams", "B/n-gram", "open, ms", "p = 1", "p = 16", "tree 16", "tree 64", "full context"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for row in rows:
        table.add_row(Path(row["model"]).name, f"{row['ngrams']:,}", f"{row['bytes_per_ngram']:.2f}", f"{row['open_ms']:.1f}", f"{row['p1_us']:.0f}", f"{row['p16_us']:.0f}",
                      f"{row['tree16_us']:.0f}", f"{row['tree64_us']:.0f}", f"{row['full_context']:.0%}")  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
