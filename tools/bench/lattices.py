"""Times the p best strings of word lattices, ours and C++ OpenFst's in one run and on one thread. Answers must agree.

    python tools/bench/lattices.py data/demo/sampled data/demo/demo.ngram
    python tools/bench/lattices.py DUMP LM --arcs 300 20000 --paths 1 16

The lattices are random: a stretch of the dump's text is one path, and every state has arcs of --degree tokens in all,
of the text around it or anywhere, that lead up to three states on. Microseconds of processor time per lattice, median;
ours: the public call, from a lattice to its strings' costs and arcs; PhiMatcher: composition and n-shortest paths by
C++ OpenFst alone. Costs must agree but for its rounding to float32, or the script fails. Last, the
greatest memory of the process before and after the searches of a size.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from lm_process import least_times
from numpy.typing import NDArray
from openfst import OPTIMISED, TOLERANCE, compile_search, disagreement, run_search, write_model

from rescore.decode.lab.bench.machine import machine
from rescore.decode.rescoring.rescorer import LatticeRescorer, Strings
from rescore.lattice.dump import Dump
from rescore.lattice.word_lattice import WordLattice
from rescore.lm.model.formats import load

TOTAL = 40_000  # arcs searched for each size
ROUNDS, TURNS = 5, 3  # engines run in turns, so that other load affects both


def random_lattice(text: NDArray[np.int64], arcs: int, degree: int, rng: np.random.Generator) -> WordLattice:
    """A lattice of about so many arcs around a stretch of the text."""
    states = arcs // degree
    at, rows = int(rng.integers(4, len(text) - states - 4)), []
    for state in range(states):
        words = {int(text[at + state]): (state + 1, rng.exponential())}
        near = text[at + state + rng.integers(-3, 4, degree)]
        for token in np.where(rng.random(degree) < 0.5, near, rng.choice(text, degree))[: degree - 1].tolist():
            words.setdefault(token, (min(states, state + int(rng.integers(1, 4))), 4 * rng.exponential()))
        rows += [(state, token, *rest) for token, rest in words.items()]
    source, tokens, targets, cost = zip(*rows)
    return WordLattice.from_arcs(source, tokens, targets, [(one, 0) for one in cost], final={states: (0, 0)})


def rounding(found: Strings, order: int) -> float:
    """How far sums in float32 may be off: half a unit in the last place, as if at random, for each arc of the model and
    each failure arc before it.
    """
    return max(TOLERANCE, float(found.cost[-1]) * 2**-24 * (order * max(map(len, found.arcs))) ** 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path)
    parser.add_argument("lm", type=Path)
    parser.add_argument("--arcs", type=int, nargs="+", default=[300, 1000, 3000, 10_000, 20_000])
    parser.add_argument("--degree", type=int, default=5)
    parser.add_argument("--paths", type=int, nargs="+", default=[16])
    parser.add_argument("--alpha", type=float, default=0.5)
    args = parser.parse_args()
    print(machine())
    model, rng = load(args.lm, resident=True), np.random.default_rng(1)
    text = np.concatenate([block.tokens for block in Dump.open(args.dump, allow_inexact=True).blocks()]).astype(
        np.int64
    )
    rescorer = LatticeRescorer(model, alpha=args.alpha, ends=False)
    with tempfile.TemporaryDirectory() as folder:
        program, file = compile_search(Path(folder) / "openfst_search", OPTIMISED), Path(folder) / "model.fst"
        write_model(file, model, alpha=args.alpha)
        for arcs in args.arcs:
            lattices = [random_lattice(text, arcs, args.degree, rng) for _ in range(max(2, TOTAL // arcs))]
            for paths in args.paths:
                starts = np.zeros(len(lattices), np.uint32)
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                times, peers = (np.full(len(lattices), np.inf) for _ in range(2))
                calls = [partial(rescorer.paths, one, paths) for one in lattices]
                for _ in range(TURNS):
                    theirs = run_search(program, file, lattices, starts, paths=paths, rounds=ROUNDS)
                    peers = np.minimum(peers, theirs.microseconds)
                    times = np.minimum(times, least_times(calls, ROUNDS))
                for one, found, other in zip(lattices, rescorer.paths_of(lattices, paths), theirs.strings):
                    ours = [(cost, tuple(own.tolist())) for cost, own in zip(found.cost.tolist(), found.tokens)]
                    if differs := disagreement(ours, other, rounding(found, model.order)):
                        raise ValueError(f"{one.arcs} arcs, p = {paths}: ours and PhiMatcher disagree: {differs}")
                ratio = np.median(peers / times)
                print(
                    f"{arcs:6} arcs, {paths:3} paths  ours {np.median(times):9.1f}  "
                    f"PhiMatcher {np.median(peers):10.1f}  x {ratio:.1f}  memory {before >> 10} to "
                    f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
