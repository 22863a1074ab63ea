"""The search for the p best distinct strings by OpenFst through pywrapfst, where backoff arcs are epsilons."""

from __future__ import annotations

import math

import pywrapfst


def best_distinct(lattice: pywrapfst.VectorFst, model: pywrapfst.VectorFst, paths: int) -> pywrapfst.Fst:
    """The best distinct strings of a lattice composed with a model whose arcs are sorted and whose start is set.

    Paths that spell one string differ in where they back off. `unique` merges them only once no epsilons are left.
    """
    composed = pywrapfst.compose(lattice, model)
    composed.rmepsilon()
    return pywrapfst.shortestpath(composed, nshortest=paths, unique=True)


def strings_of_fst(best: pywrapfst.Fst) -> list[tuple[float, tuple[int, ...]]]:
    """The paths (cost, tokens) of an acyclic acceptor, cheapest first."""
    return sorted(_chains(best, best.start())) if best.start() >= 0 else []


def _chains(fst: pywrapfst.Fst, state: int) -> list[tuple[float, tuple[int, ...]]]:
    final = float(fst.final(state))
    found: list[tuple[float, tuple[int, ...]]] = [(final, ())] if math.isfinite(final) else []
    for arc in fst.arcs(state):
        own = (arc.ilabel - 1,) if arc.ilabel else ()
        found += [(float(arc.weight) + cost, own + tokens) for cost, tokens in _chains(fst, arc.nextstate)]
    return found
