"""The search for the p best distinct strings by OpenFst through pywrapfst, where backoff arcs are epsilons."""

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
    """The model in a file of OpenFst, as an FST whose start can be set."""
    import pywrapfst

    return pywrapfst.convert(pywrapfst.Fst.read(str(file)), "vector")


def best_distinct(lattice: Model, model: Model, paths: int) -> Model:
    """The best distinct strings of a lattice composed with a model whose arcs are sorted and whose start is set.

    Paths that spell one string differ in where they back off. `unique` merges them only once no epsilons are left.
    """
    import pywrapfst

    composed = pywrapfst.compose(lattice, model)
    composed.rmepsilon()
    return pywrapfst.shortestpath(composed, nshortest=paths, unique=True)


def search_times(
    model: Model, lattices: Sequence[Sausage], states: NDArray[np.uint32], paths: int, rounds: int
) -> tuple[NDArray[np.float64], list[list[String]]]:
    """Microseconds for each lattice, composition and search alone, and its strings; states: of the
    lattices' histories.
    """
    times, strings = np.empty(len(lattices)), []
    for i, (lattice, state) in enumerate(zip(lattices, states.tolist())):
        acceptor = to_fst(lattice)
        model.set_start(state)
        times[i] = least_times([partial(best_distinct, acceptor, model, paths)], rounds)[0]
        strings.append(strings_of_fst(best_distinct(acceptor, model, paths)))
    return times, strings


def strings_of_fst(best: Model) -> list[String]:
    """The paths (cost, tokens) of an acyclic acceptor, cheapest first."""
    return sorted(_chains(best, best.start())) if best.start() >= 0 else []


def _chains(fst: Model, state: int) -> list[String]:
    final = float(fst.final(state))
    found: list[String] = [(final, ())] if math.isfinite(final) else []
    for arc in fst.arcs(state):
        own = (arc.ilabel - 1,) if arc.ilabel else ()
        found += [(float(arc.weight) + cost, own + tokens) for cost, tokens in _chains(fst, arc.nextstate)]
    return found
