"""The calls that benchmarks time and whose allocations they count: searches of a batch, public and native."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.rescoring.weights import alpha_of_slots
from rescore.lattice.sausage import Sausage

NDArrays = tuple[NDArray[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """One kind of search of a batch of lattices [B, T, K] with histories [B, N - 1].

    public  calls `Rescorer`, which validates arrays
    again   returns a function that repeats the public call into the same output arrays
    native  calls the core only, with the result of `native_arguments`

    public and native return the output arrays in the same order.
    """

    public: Callable[[Rescorer, Sausage, NDArray[np.int32]], NDArrays]
    again: Callable[[Rescorer, Sausage, NDArray[np.int32]], Callable[[], object]]
    native: Callable[..., NDArrays]


def native_arguments(rescorer: Rescorer, batch: Sausage, histories: NDArray[np.int32]) -> tuple[Any, ...]:
    """Returns the arguments of the core's search functions."""
    cores = [model.core for model in rescorer.models]
    return cores, histories, batch.ids, batch.cost, alpha_of_slots(rescorer.alpha, batch.slots)


def paths_call(p: int) -> TimedCall:
    def public(rescorer: Rescorer, batch: Sausage, histories: NDArray[np.int32]) -> NDArrays:
        found = rescorer.paths(batch, histories, p)
        return found.tokens, found.cost, found.count

    def again(rescorer: Rescorer, batch: Sausage, histories: NDArray[np.int32]) -> Callable[[], object]:
        return partial(rescorer.paths, batch, histories, p, out=rescorer.paths(batch, histories, p))

    def native(*arguments: Any, threads: int = 1) -> NDArrays:
        return _core.best_paths(*arguments, paths=p, threads=threads)

    return TimedCall(public=public, again=again, native=native)


def tree_call(nodes: int) -> TimedCall:
    def public(rescorer: Rescorer, batch: Sausage, histories: NDArray[np.int32]) -> NDArrays:
        return rescorer.trees(batch, histories, nodes).columns

    def again(rescorer: Rescorer, batch: Sausage, histories: NDArray[np.int32]) -> Callable[[], object]:
        return partial(rescorer.trees, batch, histories, nodes, out=rescorer.trees(batch, histories, nodes))

    def native(*arguments: Any, threads: int = 1) -> NDArrays:
        return _core.best_tree(*arguments, nodes=nodes, threads=threads)

    return TimedCall(public=public, again=again, native=native)


CALLS = {"paths, p = 16": paths_call(16), "tree of 16": tree_call(16), "tree of 64": tree_call(64)}
