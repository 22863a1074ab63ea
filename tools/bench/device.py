"""Microseconds of trees on a GPU by batch size, captured in a CUDA graph and called from Python. Results must equal the
CPU's, or nothing is printed.

    python tools/bench/device.py [--lm FILE] [--batch B ..]

Lattices are taken from the demo dump at equal distances, with its T x K.

`graph` is a replay of the captured call and `call` the call from Python, both timed by device events, median of
--repeats. `cpu` is the native core on one thread, wall-clock time for the whole batch. The last line has the model's
memory on the device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from markdown_tables import show_header, show_row
from search import lattices

from rescore.decode.device.rescoring import DeviceRescorer
from rescore.decode.draft.heads_lattice import TensorRescorer
from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.dump import Dump
from rescore.lattice.sausage import Sausage
from rescore.lattice.tensors import TensorSausage
from rescore.lm.model.ngram import NGram

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
BATCHES = (1, 8, 64, 256, 512)
LATTICES = 512
NODES = (16, 64)
TREE = ("tokens", "parents", "depths", "logq", "count")


def batch_of(sausages: Sausage, histories: np.ndarray, size: int) -> tuple[Sausage, np.ndarray]:
    """The lattices, repeated to fill the batch."""
    at = np.arange(size) % len(histories)
    return sausages[at], np.ascontiguousarray(histories[at])


def microseconds(call: Callable[[], Any], repeats: int) -> float:
    """Median time between two device events."""
    times = []
    for _ in range(repeats + 3):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        call()
        last.record()
        last.synchronize()
        times.append(1e3 * first.elapsed_time(last))
    return statistics.median(times[3:])


def captured(call: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call()
    return graph, found


def measure(
    rescorer: Rescorer,
    on_device: DeviceRescorer,
    sausages: Sausage,
    histories: np.ndarray,
    args: argparse.Namespace,
) -> Iterator[dict[str, Any]]:
    device = on_device.models.device
    for size in args.batch:
        batch = batch_of(sausages, histories, size)
        tensors, history = TensorSausage.of(batch[0], device), torch.from_numpy(batch[1]).to(device)
        for n in NODES:
            call = partial(on_device.trees, tensors, history, n)
            began = time.perf_counter()
            wanted = rescorer.trees(*batch, n)
            on_cpu = 1e6 * (time.perf_counter() - began)
            graph, found = captured(call)
            graph.replay()
            for field in TREE:
                if not np.array_equal(getattr(found, field).cpu().numpy(), getattr(wanted, field)):
                    raise SystemExit(f"trees of {n} nodes, batch {size}: {field} on the device differ from the CPU's")
            yield {
                "nodes": n,
                "batch": size,
                "graph_us": microseconds(graph.replay, args.repeats),
                "call_us": microseconds(call, args.repeats),
                "cpu_us": on_cpu,
            }


def show(rows: list[dict[str, Any]], title: str) -> None:
    print(title)
    show_header("batch", ("nodes", "graph us", "a lattice", "call us", "cpu us"))
    for row in rows:
        times = (
            f"{row['graph_us']:.1f}",
            row["graph_us"] / row["batch"],
            f"{row['call_us']:.1f}",
            f"{row['cpu_us']:.0f}",
        )
        show_row(str(row["batch"]), (row["nodes"], *times))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", type=Path, default=DEMO / "sampled")
    parser.add_argument(
        "--lm", type=Path, default=DEMO / "demo.ngram", help="with the dump's tokenizer (default: the demo's)"
    )
    parser.add_argument("--batch", type=int, nargs="*", default=list(BATCHES))
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--repeats", type=int, default=50)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device; nothing was measured", file=sys.stderr)
        return 1
    model = NGram.open(args.lm)
    rescorer = Rescorer(model, alpha=args.alpha)
    dump = Dump.open(args.dump)
    sausages, histories = lattices(dump, model, count=LATTICES, slots=dump.slots, width=dump.header.top_k)
    began = time.perf_counter()
    device = TensorRescorer(rescorer).on(torch.device("cuda"))
    torch.cuda.synchronize()
    moved_s, taken = time.perf_counter() - began, device.models.bytes
    rows = list(measure(rescorer, device, sausages, histories, args))
    show(
        rows,
        f"{torch.cuda.get_device_name()}, {model.info()['arcs']:,} n-grams, lattices of {sausages.slots} x "
        f"{sausages.width}",
    )
    print(
        f"model on the device: {taken / 1e9:.2f} GB, {taken / model.core.num_arcs:.1f} bytes per n-gram, "
        f"copied in {moved_s:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
