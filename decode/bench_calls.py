"""The calls that benchmarks time and whose allocations they count: drafts of a batch of lattices, public and native."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.sausage import Sausage

from .draft import Rescorer, alpha_of_slots

NDArrays = tuple[NDArray[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One question to a batch of lattices [B, T, K] with histories [B, N - 1].

    public  through `Rescorer`, which checks arrays and looks up the histories' states
    native  to the core alone, with what `native_arguments` gave
    both return the answer's arrays, in one order
    """

    public: Callable[[Rescorer, Sausage, NDArray[np.int32]], NDArrays]
    native: Callable[..., NDArrays]


def native_arguments(rescorer: Rescorer, batch: Sausage, histories: NDArray[np.int32]) -> tuple[Any, ...]:
    """What the core is called with: what a caller has whose arrays are right and whose states are known."""
    cores = [model.core for model in rescorer.models]
    return cores, rescorer.states(histories), batch.ids, batch.cost, alpha_of_slots(rescorer.alpha, batch.slots)


def paths_call(p: int) -> Call:
    def public(rescorer: Rescorer, batch: Sausage, histories: NDArray[np.int32]) -> NDArrays:
        found = rescorer.paths(batch, histories, p)
        return found.tokens, found.cost, found.count

    def native(*arguments: Any, threads: int = 1) -> NDArrays:
        return _core.best_paths(*arguments, paths=p, threads=threads)

    return Call(public=public, native=native)


def tree_call(nodes: int) -> Call:
    def public(rescorer: Rescorer, batch: Sausage, histories: NDArray[np.int32]) -> NDArrays:
        found = rescorer.trees(batch, histories, nodes)
        return found.tokens, found.parents, found.depths, found.logq, found.count

    def native(*arguments: Any, threads: int = 1) -> NDArrays:
        return _core.best_tree(*arguments, nodes=nodes, threads=threads)

    return Call(public=public, native=native)


CALLS = {"paths, p = 16": paths_call(16), "tree of 16": tree_call(16), "tree of 64": tree_call(64)}
