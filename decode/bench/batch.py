"""Batched calls: lattices per second by batch size and threads, overhead per call, allocations per call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rescore.decode.bench.allocations.counter import compile_preload, count_allocations
from rescore.decode.bench.calls import CALLS, NDArrays, TimedCall, native_arguments, paths_call, tree_call
from rescore.decode.bench.clock import figures, least_times, least_wall_times
from rescore.decode.bench.results import BenchRow
from rescore.decode.bench.search import NATIVE, OURS, Disagreement
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.sausage import Sausage
from rescore.lm.ngram import NGram

AGAIN = "ours, memory of the answer reused"
OVERHEAD, ALLOCATIONS = "overhead per call: one slot, one candidate", "allocations per call, warm"
CALLS_TIMED = 200  # calls per round on the smallest lattice
SMALLEST = {"paths, p = 1": paths_call(1), "tree of 1": tree_call(1)}


def throughput(
    model: NGram,
    alpha: float,
    batch: Sausage,
    histories: NDArray[np.int32],
    *,
    sizes: Sequence[int],
    threads: Sequence[int],
    rounds: int,
    advance: Callable[[], None],
) -> Iterator[BenchRow]:
    """Yields wall time in microseconds per lattice for every call, batch size and number of threads.

    Disagreement unless all answers equal those of single lattices.
    """
    for name, call in CALLS.items():
        alone = answers(call, Rescorer(model, alpha=alpha), batch, histories, 1)
        for count in threads:
            rescorer = Rescorer(model, alpha=alpha, threads=count)
            for size in sizes:
                if not all(map(np.array_equal, answers(call, rescorer, batch, histories, size), alone)):
                    raise Disagreement(
                        f"{name}: expected the answers of single lattices, got others in batches of {size} on "
                        f"{count} threads"
                    )
                calls = [
                    partial(call.public, rescorer, batch[part], histories[part]) for part in parts(len(histories), size)
                ]
                found = figures(least_wall_times(calls, rounds) / size)
                yield BenchRow(
                    group=name,
                    case={"batch": size, "threads": count, "lattices": len(calls) * size},
                    engines={OURS: {**found, "lattices_per_s": 1e6 / found["mean_us"]}},
                )
                advance()


def parts(total: int, size: int) -> list[slice]:
    """Splits `total` lattices into whole batches of `size`."""
    return [slice(start, start + size) for start in range(0, total - size + 1, size)]


def answers(call: TimedCall, rescorer: Rescorer, batch: Sausage, histories: NDArray[np.int32], size: int) -> NDArrays:
    found = [call.public(rescorer, batch[part], histories[part]) for part in parts(len(histories), size)]
    return tuple(np.concatenate(arrays) for arrays in zip(*found))


def overhead(
    model: NGram, alpha: float, batch: Sausage, histories: NDArray[np.int32], rounds: int
) -> Iterator[BenchRow]:
    """Yields CPU microseconds of calls on a lattice without alternatives: the cost of checks, arrays and the call into
    the core.
    """
    rescorer, small = Rescorer(model, alpha=alpha), batch[:1].head(1).top_k(1)
    for name, call in SMALLEST.items():
        ways: dict[str, Callable[[], object]] = {
            OURS: partial(call.public, rescorer, small, histories[:1]),
            AGAIN: call.again(rescorer, small, histories[:1]),
            NATIVE: partial(call.native, *native_arguments(rescorer, small, histories[:1])),
        }
        yield BenchRow(
            group=OVERHEAD,
            case={"call": name},
            engines={way: figures(least_times([one] * CALLS_TIMED, rounds)) for way, one in ways.items()},
        )


def allocations(
    lm: Path, alpha: float, batch: Sausage, histories: NDArray[np.int32], *, threads: int, folder: Path
) -> Iterator[BenchRow]:
    """Yields the number of allocations per call: minimum and maximum over the lattices, and for all in one call."""
    found = count_allocations(
        compile_preload(folder / "preload.so"), lm, alpha, batch, histories, threads=threads, folder=folder
    )
    for name, own in found.items():
        yield BenchRow(
            group=ALLOCATIONS,
            case={"call": name, "threads": threads, "batch": len(histories)},
            engines={
                OURS: own["public"],
                AGAIN: own["again"],
                NATIVE: own["native"],
                f"a batch of {len(histories)}": own["batch"],
            },
        )
