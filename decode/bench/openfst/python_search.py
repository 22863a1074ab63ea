"""The p best distinct strings with OpenFst through pywrapfst, with epsilon backoff arcs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.bench.clock import least_times
from rescore.decode.bench.openfst.search import String
from rescore.lattice.fst import to_fst
from rescore.lattice.sausage import Sausage

Model = Any  # pywrapfst.MutableFst; the package is imported only where it is called


def read_model(file: Path) -> Model:
    """Reads an OpenFst file as an FST whose start state can be set."""
    import pywrapfst

    return pywrapfst.convert(pywrapfst.Fst.read(str(file)), "vector")


def best_distinct(lattice: Model, model: Model, paths: int) -> Model:
    """Returns the best distinct strings of a lattice composed with a model. The model's arcs must be sorted and its
    start state set.

    Paths of one string differ in where they back off. `unique` merges them only after epsilons are removed.
    """
    import pywrapfst

    composed = pywrapfst.compose(lattice, model)
    composed.rmepsilon()
    return pywrapfst.shortestpath(composed, nshortest=paths, unique=True)


def search_times(
    model: Model, lattices: Sequence[Sausage], states: NDArray[np.uint32], paths: int, rounds: int
) -> tuple[NDArray[np.float64], list[list[String]]]:
    """Returns the microseconds of each lattice, for composition and search only, and its strings. states: of the
    histories.
    """
    times, strings = np.empty(len(lattices)), []
    for i, (lattice, state) in enumerate(zip(lattices, states.tolist())):
        acceptor = to_fst(lattice)
        model.set_start(state)
        times[i] = least_times([partial(best_distinct, acceptor, model, paths)], rounds)[0]
        strings.append(strings_of_fst(best_distinct(acceptor, model, paths)))
    return times, strings


def strings_of_fst(best: Model) -> list[String]:
    """Returns the paths (cost, tokens) of an acyclic acceptor, cheapest first."""
    return sorted(_chains(best, best.start())) if best.start() >= 0 else []


def _chains(fst: Model, state: int) -> list[String]:
    final = float(fst.final(state))
    found: list[String] = [(final, ())] if math.isfinite(final) else []
    for arc in fst.arcs(state):
        own = (arc.ilabel - 1,) if arc.ilabel else ()
        found += [(float(arc.weight) + cost, own + tokens) for cost, tokens in _chains(fst, arc.nextstate)]
    return found
