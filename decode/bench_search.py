"""The paper's tables 12 and 13: how long a search takes, by p and by the size of the lattice, ours beside OpenFst in one run."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pywrapfst
from numpy.typing import NDArray

from rescore.lattice.fst import to_fst as sausage_to_fst
from rescore.lattice.sausage import Sausage
from rescore.lm.fst import to_fst
from rescore.lm.ngram import NGram

from .bench_lattices import Lattices
from .draft import Rescorer
from .machine import machine
from .openfst.python_search import best_distinct, strings_of_fst
from .openfst.search import String, disagreement, run_search, scaled, strings_of
from .paper_latency import TABLE_12_MS, TABLE_13_MS

OURS, ANCHOR = "ours", "C++ OpenFst, PhiMatcher"
OURS_EPSILON, REPEATING, PYTHON = "ours, epsilon", "C++ OpenFst, epsilon, strings repeat", "pywrapfst, epsilon"
PEERS = {ANCHOR: OURS, REPEATING: OURS_EPSILON, PYTHON: OURS_EPSILON}  # which of our answers theirs is
TABLE_12, TABLE_13 = tuple(TABLE_12_MS), tuple(TABLE_13_MS)


class Disagreement(RuntimeError):
    """Two engines gave different answers to one question."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Engines:
    """What all searches use: our model, the same with scaled costs as an FST in memory and in a file, the compiled program or None."""

    rescorer: Rescorer
    fst: pywrapfst.VectorFst
    file: Path
    program: Path | None

    @classmethod
    def of_model(cls, model: NGram, alpha: float, folder: Path, program: Path | None) -> Engines:
        fst = to_fst(scaled(model, alpha))
        fst.write(str(folder / "model.fst"))
        fst.arcsort("ilabel")
        return cls(rescorer=Rescorer(model, alpha=alpha), fst=fst, file=folder / "model.fst", program=program)


def bench_search(engines: Engines, lattices: Lattices, *, rounds: int, advance: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """A row for every cell of the two tables: `slots`, `candidates`, `paths`, and of every engine its times in microseconds.

    Lattices are at least 16 x 16. Disagreement if two engines of one kind give different answers.
    """
    rows = []
    for slots, width, paths in dict.fromkeys((*TABLE_12, *TABLE_13)):
        times = measure(engines, lattices.cut(slots, width), lattices.histories, paths, rounds)
        rows.append({"slots": slots, "candidates": width, "paths": paths, "engines": figures(times)})
        advance()
    return rows


def measure(engines: Engines, batch: Sausage, histories: NDArray[np.int32], paths: int, rounds: int) -> dict[str, NDArray[np.float64]]:
    """Microseconds of every engine for every lattice, float64 [B]."""
    rescorer, states = engines.rescorer, engines.rescorer.states(histories)[0]
    every = range(batch.batch_size)
    single = [batch[i] for i in every]
    times, answers = {}, {}
    for name, semantics in ((OURS, "failure"), (OURS_EPSILON, "epsilon")):
        times[name] = least_times([partial(rescorer.paths, single[i], histories[i], paths, semantics=semantics) for i in every], rounds)
        drafts = rescorer.paths(batch, histories, paths, semantics=semantics)
        answers[name] = [strings_of(drafts, i) for i in every]
    if engines.program is not None:
        for name, mode in ((ANCHOR, "phi"), (REPEATING, "epsilon")):
            found = run_search(engines.program, engines.file, batch, states, mode=mode, paths=paths, rounds=1 + rounds)
            # Of paths whose strings repeat only the first is sure to be a string of the answer: the cheapest.
            most = paths if name == ANCHOR else 1
            check_equal(name, [one[:most] for one in answers[PEERS[name]]], [one[:most] for one in found.strings])
            times[name] = found.microseconds
    times[PYTHON], strings = python_times(engines.fst, single, states, paths, rounds)
    check_equal(PYTHON, answers[OURS_EPSILON], strings)
    return times


def python_times(model: pywrapfst.VectorFst, lattices: Sequence[Sausage], states: NDArray[np.uint32], paths: int, rounds: int) -> tuple[NDArray[np.float64], list[list[String]]]:
    times, strings = np.empty(len(lattices)), []
    for i, (lattice, state) in enumerate(zip(lattices, states.tolist())):
        acceptor = sausage_to_fst(lattice)
        model.set_start(state)
        times[i] = least_times([partial(best_distinct, acceptor, model, paths)], rounds)[0]
        strings.append(strings_of_fst(best_distinct(acceptor, model, paths)))
    return times, strings


def figures(times: dict[str, NDArray[np.float64]]) -> dict[str, dict[str, float]]:
    """median_us, p99_us, mean_us; `times_ours`: how many times our median of the same answer."""
    found = {name: {"median_us": float(np.median(own)), "p99_us": float(np.percentile(own, 99)), "mean_us": float(own.mean())} for name, own in times.items()}
    for name, peer in PEERS.items():
        if name in found:
            found[name]["times_ours"] = found[name]["median_us"] / found[peer]["median_us"]
    return found


def least_times(calls: Sequence[Callable[[], object]], rounds: int) -> NDArray[np.float64]:
    """Microseconds of this thread in each call, the least of the rounds, after a round that is not counted."""
    least = np.full(len(calls), np.inf)
    for number in range(rounds + 1):
        for i, call in enumerate(calls):
            began = time.thread_time_ns()
            call()
            took = time.thread_time_ns() - began
            if number:
                least[i] = min(least[i], took / 1e3)
    return least


def check_equal(engine: str, ours: list[list[String]], theirs: list[list[String]]) -> None:
    """Disagreement unless both answer every lattice alike: cost to 1e-4 nats, strings but for ties."""
    if len(ours) != len(theirs):
        raise Disagreement(f"{engine}: {len(theirs)} answers to {len(ours)} lattices")
    for lattice, (mine, other) in enumerate(zip(ours, theirs)):
        if differs := disagreement(mine, other):
            raise Disagreement(f"{engine} and ours disagree on lattice {lattice}: {differs}")


def settled() -> dict[str, object]:
    """The machine, and what OpenFst is compiled from and with."""
    return {
        **machine("rescore", "numpy", "pynini"),
        "libfst-dev": _output("dpkg-query", "-W", "-f", "${Version}", "libfst-dev"),
        "g++": _output("g++", "-dumpfullversion"),
    }


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
