"""Times our searches and C++ OpenFst's in one run, on the same lattices of a dump and one thread. Answers must agree.

    python tools/bench/search.py data/demo/sampled data/demo/demo.ngram
    python tools/bench/search.py DUMP LM --slots 8 --candidates 16 --paths 1 2 4 8 16 --cold 0 --repeat 3

Microseconds per lattice: median and 99th percentile over the lattices, of which each counts with its fastest search.

    p paths       ours: the public call, from arrays to arrays; core: its search alone, arrays already checked, the
                  history's state known; PhiMatcher: composition and n-shortest paths by C++ OpenFst alone
    tree, open    trees of n nodes under the default alpha, and open trees under the default calibration
    x             ratio to the median of ours in the same row
    cold          --cold MB are written before every search, as a forward pass does; 0 leaves these rows out

Then batches of --batch lattices, of all where there are fewer, in one call, on each number of --threads: microseconds
per lattice of wall-clock time, mean. A batch must have the answers of its lattices one by one. Costs of PhiMatcher must
equal ours to 1e-4 nats and strings but for ties; a tree must begin every larger tree; or the script fails and prints no
times of the row. Without g++ and libfst-dev, ours are timed alone.
"""

from __future__ import annotations

import argparse
import mmap
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from lm_process import least_times
from msgspec import structs
from numpy.typing import NDArray
from openfst import (
    OPTIMISED,
    OpenFstUnavailable,
    compile_search,
    disagreement,
    run_search,
    strings_of,
    word_lattices,
    write_model,
)

from rescore import _core
from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.calibration import DEFAULT
from rescore.decode.draft.rescorer import Rescorer, alpha_of_slots
from rescore.decode.lab.bench.machine import machine
from rescore.lattice.dump import Dump
from rescore.lattice.sausage import Sausage
from rescore.lm.model.formats import load
from rescore.lm.model.ngram import NGram

NODES = (16, 64)
TURNS = 2  # engines run in turns, so that other load affects all alike
LINE = 64  # bytes of a cache line

Times = dict[str, NDArray[np.float64]]  # microseconds of every lattice, float64 [B], by engine
Call = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """Lattices [B, T, K] with their histories int32 [B, N - 1], and who searches them; program: of OpenFst, and the
    model's file for it.
    """

    lattices: Sausage
    histories: NDArray[np.int32]
    rescorer: Rescorer
    program: tuple[Path, Path] | None
    rounds: int

    def each(self, call: Callable[[Sausage, NDArray[np.int32]], object]) -> list[Call]:
        """The call on every lattice by itself."""
        return [
            partial(call, self.lattices[i : i + 1], self.histories[i : i + 1]) for i in range(self.lattices.batch_size)
        ]

    def paths(self, p: int, cold: int) -> Times:
        """Times the p best paths. ValueError unless OpenFst's agree with ours on every lattice."""
        rescorer, least = self.rescorer, Times()
        drafts = rescorer.paths(self.lattices, self.histories, p)
        alpha = alpha_of_slots(rescorer.alpha, self.lattices.slots)
        cores = [model.core for model in rescorer.models]
        ways = {
            "ours": self.each(lambda lattice, history: rescorer.paths(lattice, history, p)),
            "core": self.each(
                lambda lattice, history: _core.best_paths(cores, history, lattice.ids, lattice.cost, alpha, paths=p)
            ),
        }
        for _ in range(TURNS):
            found = {name: least_times(calls, self.rounds, sweep(cold)) for name, calls in ways.items()}
            if self.program:
                theirs = run_search(
                    *self.program,
                    word_lattices(self.lattices),
                    rescorer.states(self.histories)[0],
                    paths=p,
                    rounds=1 + self.rounds,
                    sweep_mb=cold,
                )
                for i, strings in enumerate(theirs.strings):
                    if differs := disagreement(strings_of(drafts, i), strings):
                        raise ValueError(f"p = {p}, lattice {i}: ours and PhiMatcher disagree: {differs}")
                found["PhiMatcher"] = theirs.microseconds
            least = {name: np.minimum(own, least.get(name, own)) for name, own in found.items()}
        return least

    def trees(self, rescorer: Rescorer, nodes: int, cold: int) -> Times:
        """Times trees of n nodes. ValueError unless they begin those of 2 n."""
        tree, larger = (rescorer.trees(self.lattices, self.histories, n) for n in (nodes, 2 * nodes))
        for one, whole in ((tree.tokens, larger.tokens), (tree.parents, larger.parents)):
            if not np.array_equal(one, whole[:, :nodes]):
                raise ValueError(f"trees of {nodes} nodes: expected the beginning of those of {2 * nodes}, got others")
        calls = self.each(lambda lattice, history: rescorer.trees(lattice, history, nodes))
        return {"ours": least_times(calls, self.rounds, sweep(cold))}

    def batches(self, p: int, size: int, threads: int) -> Iterator[tuple[str, float]]:
        """Yields the kind of search, and its wall-clock microseconds per lattice in batches of `size`. ValueError
        unless the answers are those of single lattices.
        """
        rescorer = Rescorer(self.rescorer.models, alpha=self.rescorer.alpha, threads=threads)
        whole = range(0, self.lattices.batch_size - size + 1, size)
        for kind, call in {
            f"{p} paths": lambda *batch: rescorer.paths(*batch, p).tokens,
            **{f"tree {n}": partial(lambda n, *batch: rescorer.trees(*batch, n).tokens, n) for n in NODES},
        }.items():
            calls = [partial(call, self.lattices[at : at + size], self.histories[at : at + size]) for at in whole]
            alone = np.concatenate([one() for one in self.each(call)[: size * len(calls)]])
            if not np.array_equal(np.concatenate([one() for one in calls]), alone):
                raise ValueError(f"{kind}, batches of {size}: expected the answers of single lattices, got others")
            yield kind, float(least_times(calls, self.rounds, now=time.perf_counter_ns).mean()) / size


def sweep(megabytes: int) -> Call:
    """Writes so many megabytes, as a forward pass does."""
    # Small pages, like most models' weights, so that TLB entries are evicted as well.
    swept = np.frombuffer(mmap.mmap(-1, max(megabytes << 20, LINE)), np.uint64)[:: LINE // 8]
    return lambda: np.add(swept, 1, out=swept)


def lattices(dump: Dump, model: NGram, *, count: int, slots: int, width: int) -> tuple[Sausage, NDArray[np.int32]]:
    """About `count` lattices [B, slots, width], evenly spaced over the dump, and their histories. The slots of a row
    are followed by those of the row after its last slot, so that the lattice continues along the text.
    """
    own, blocks = dump.slots, list(dump.blocks())
    parts = range(0, slots, own)
    rows = [np.flatnonzero(np.arange(block.rows) + parts[-1] < block.sequence_ends) for block in blocks]
    if width > dump.header.top_k or not any(map(len, rows)):
        raise ValueError(
            f"{dump.path}: expected {width} candidates and a sequence of more than {parts[-1]} tokens, for lattices of "
            f"{slots} x {width}, got {dump.header.top_k} candidates; choose smaller --slots, --candidates"
        )
    step = -(-sum(map(len, rows)) // count)
    found = [[block.sausages(own[::step] + part, width) for part in parts] for block, own in zip(blocks, rows)]
    ids, cost = (
        np.concatenate([np.concatenate([getattr(part, name) for part in row], axis=1) for row in found])
        for name in ("ids", "cost")
    )
    histories = [block.histories(own[::step], model.order - 1) for block, own in zip(blocks, rows)]
    return Sausage(ids=ids, cost=cost).head(slots), np.concatenate(histories)


def show(title: str, times: Times) -> None:
    ours = np.median(times["ours"])
    cells = [
        f"{name} {np.median(own):9.1f} ({np.percentile(own, 99):9.1f})"
        + (f"  x {np.median(own) / ours:.1f}" if name == "PhiMatcher" else "")
        for name, own in times.items()
    ]
    print(f"{title:20}", *cells, sep="  ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path)
    parser.add_argument("lm", type=Path)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--paths", type=int, nargs="+", default=[16])
    parser.add_argument("--lattices", type=int, default=100, help="about, spread over the dump (default: 100)")
    parser.add_argument("--alpha", type=float, default=DEFAULT_ALPHA)
    parser.add_argument("--resident", action="store_true", help="hold the model in memory, on huge pages (Linux)")
    parser.add_argument("--cold", type=int, default=128, help="megabytes to write; several times the last-level cache")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=1, help="of the whole, ratios of each run (default: 1)")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    dump, model = Dump.open(args.dump, allow_inexact=True), load(args.lm, resident=args.resident)
    if model.vocab_size != dump.header.vocab_size:
        parser.error(f"{args.lm}: expected a model of {dump.header.vocab_size} tokens, got {model.vocab_size}")
    batch, histories = lattices(dump, model, count=args.lattices, slots=args.slots, width=args.candidates)
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = compile_search(Path(folder) / "openfst_search", OPTIMISED), Path(folder) / "model.fst"
            write_model(program[1], model, alpha=args.alpha)
        except OpenFstUnavailable as reason:
            program = None
            print(f"without OpenFst: {reason}")
        bench = Bench(
            lattices=batch,
            histories=histories,
            rescorer=Rescorer(model, alpha=args.alpha),
            program=program,
            rounds=args.rounds,
        )
        open_trees = Rescorer(model, calibration=structs.replace(DEFAULT, text=None))
        print(", ".join(f"{name} {value}" for name, value in machine("rescore", "numpy").items()))
        print(f"{sum(model.info()['ngrams']):,} n-grams, {batch.batch_size} lattices of {batch.slots} x {batch.width}")
        for _ in range(args.repeat):
            for cold, kind in ((0, ""), (args.cold, "cold, "))[: 2 if args.cold else 1]:
                for p in args.paths:
                    show(f"{kind}{p} paths", bench.paths(p, cold))
                for n in NODES:
                    show(f"{kind}tree {n}", bench.trees(bench.rescorer, n, cold))
                    show(f"{kind}open tree {n}", bench.trees(open_trees, n, cold))
        for size in sorted({min(size, batch.batch_size) for size in args.batch}):
            for threads in args.threads:
                found = bench.batches(max(args.paths), size, threads)
                cells = [f"{kind} {each:.1f}" for kind, each in found]
                print(f"batch {size}, {threads} threads  ", *cells, sep="  ")


if __name__ == "__main__":
    main()
