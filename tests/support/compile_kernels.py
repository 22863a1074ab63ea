"""Compiles every kernel for a GPU that need not be there, through the calls that launch them; prints a line for each.

Run by tests/device/test_compile.py in a process of its own, since there kernels are not interpreted: python
compile_kernels.py [CAPABILITY]
"""

import sys

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from rescore.decode.device.rescoring import DeviceRescorer
from rescore.lattice.tensors import TensorSausage
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables

POINTERS = {torch.int64: "*i64", torch.int32: "*i32", torch.float32: "*fp32", torch.float64: "*fp64", torch.bool: "*i1"}
TARGET = GPUTarget("cuda", int(sys.argv[1]) if len(sys.argv) > 1 else 90, 32)


def signature(value, place, constants):
    """Types as the launcher would give them: a number that is 1 is compiled in."""
    if isinstance(value, tuple):
        return type(value)(*(signature(one, (*place, i), constants) for i, one in enumerate(value)))
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    if value == 1:
        constants[place] = 1
        return "constexpr"
    return "i32"


def compile_instead(kernel, *args, grid, warmup, **named):
    options = {name: value for name, value in named.items() if name not in kernel.arg_names}
    constants = {(kernel.arg_names.index(name),): value for name, value in named.items() if name not in options}
    types = {name: signature(value, (i,), constants) for i, (name, value) in enumerate(zip(kernel.arg_names, args))}
    types |= {name: "constexpr" for name in named if name not in options}
    compiled = triton.compile(ASTSource(kernel, types, constants), target=TARGET, options=options)
    shared, cubin = compiled.metadata.shared, len(compiled.asm["cubin"])
    print(f"{kernel.__name__} {compiled.metadata.num_warps} warps, {shared} bytes shared, {cubin} bytes")


def models(count: int) -> tuple[NGram, ...]:
    ngrams = {(0,): (0.6, 0.5), (1,): (0.4, 1.0), (0, 1): (0.7, 0.5), (0, 1, 0): (0.9, 1.0)}
    tables = Tables.from_ngrams(ngrams, vocab_size=2)
    return (NGram.from_tables(tables),) * count


def searches(count: int, slots: int, width: int, most: int) -> None:
    """`most`: nodes and length of the history."""
    rescorer = DeviceRescorer(models(count), alpha=np.ones((count, 1)), head=np.ones(1), device=torch.device("cpu"))
    sausage = TensorSausage(ids=torch.zeros(2, slots, width, dtype=torch.int32), cost=torch.zeros(2, slots, width))
    rescorer.trees(sausage, torch.zeros(2, most, dtype=torch.int32), most)


def main() -> None:
    JITFunction.run = compile_instead
    searches(1, 8, 16, 64)
    searches(2, 1, 1, 1)


if __name__ == "__main__":
    main()
