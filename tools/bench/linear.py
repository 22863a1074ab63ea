"""Linear layers over few tokens: the core's against torch's, by tokens, as passes over drafts have them.

    python tools/bench/linear.py
    python tools/bench/linear.py --layers 896x4864 4864x896 --threads 2
    ONEDNN_MAX_CPU_ISA=AVX2 python tools/bench/linear.py --dtype bfloat16

Each call reads other weights, so that they come from memory, and begins anywhere in a line of it, as in files. Products
of both must agree.

columns  milliseconds of torch and of the core, the second shortest of --repeats calls in turns; each over torch's for
         one token
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import cycle

import torch
from markdown_tables import show_header, show_row

from rescore import _core
from rescore.decode.lab.bench.machine import machine

MEMORY = 400 << 20  # bytes of weights, more than caches hold
SHIFT = 10  # numbers


def shortest(calls: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Milliseconds of each."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for times, call in zip(found, calls):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
    return [1e3 * sorted(times)[1] for times in found]


def compared(weights: Sequence[torch.Tensor], tokens: int, repeats: int) -> list[float]:
    """Milliseconds of torch and of the core."""
    outputs, inputs = weights[0].shape
    dtype, turns, threads = weights[0].dtype, cycle(weights), torch.get_num_threads()
    x, y = torch.randn(tokens, inputs).to(dtype), torch.empty(tokens, outputs, dtype=dtype)
    short = dtype is torch.bfloat16

    def ours() -> torch.Tensor:
        own = next(turns)
        where = x.data_ptr(), own.data_ptr(), y.data_ptr()
        _core.narrow_linear(*where, tokens, inputs, outputs, threads, bfloat16=short)
        return own

    within = 2**-7 if short else 1e-3
    torch.testing.assert_close(x @ ours().T, y, rtol=within, atol=within)
    return shortest([lambda: torch.nn.functional.linear(x, next(turns)), ours], repeats)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    layers = ["576x1536", "1536x576", "896x4864", "4864x896"]
    parser.add_argument("--layers", nargs="+", default=layers, metavar="INPUTSxOUTPUTS")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 4, 5, 9, 17, 25, 33], metavar="N")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), metavar="N")
    parser.add_argument("--repeats", type=int, default=60, metavar="R")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    print(f"{machine()['cpu']}, {args.threads} threads, {_core.processor}")
    show_header("layer, tokens", ("torch, ms", "core, ms", "torch, x one", "core, x one"))
    for layer in args.layers:
        inputs, outputs = map(int, layer.split("x"))
        count = max(2, MEMORY // (4 * inputs * outputs))
        weights = [
            torch.randn(inputs * outputs + SHIFT, dtype=dtype)[SHIFT:].view(outputs, inputs) for _ in range(count)
        ]
        one, _ = compared(weights, 1, args.repeats)
        for tokens in args.tokens:
            times = compared(weights, tokens, args.repeats)
            show_row(f"{layer}, {tokens}", (*times, *(time / one for time in times)))


if __name__ == "__main__":
    main()
