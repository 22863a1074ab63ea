"""Compiles every kernel for a GPU that need not be there, through the calls that launch them; prints a line for each.

Run by test_device_compile.py in a process of its own, since there kernels are not interpreted: python compile_kernels.py [CAPABILITY]
"""

import sys

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from rescore.decode.device.rescoring import DeviceRescorer
from rescore.decode.tensors import TensorSausage
from rescore.lm.ngram import NGram
from rescore.lm.tables import Tables

POINTERS = {torch.int64: "*i64", torch.int32: "*i32", torch.float32: "*fp32", torch.float64: "*fp64", torch.bool: "*i1"}
TARGET = GPUTarget("cuda", int(sys.argv[1]) if len(sys.argv) > 1 else 90, 32)


def signature(value):
    if isinstance(value, tuple):
        return type(value)(*map(signature, value))
    return POINTERS[value.dtype] if isinstance(value, torch.Tensor) else "i32"


def compile_instead(kernel, *args, grid, warmup, **named):
    constants = {name: value for name, value in named.items() if name in kernel.arg_names}
    options = {name: value for name, value in named.items() if name not in constants}
    types = {name: signature(value) for name, value in zip(kernel.arg_names, args)} | dict.fromkeys(constants, "constexpr")
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    compiled = triton.compile(ASTSource(kernel, types, places), target=TARGET, options=options)
    print(kernel.__name__, compiled.metadata.num_warps, "warps,", compiled.metadata.shared, "bytes shared,", len(compiled.asm["cubin"]), "bytes")


def models(count: int) -> tuple[NGram, ...]:
    tables = Tables.from_ngrams({(0,): (0.6, 0.5), (1,): (0.4, 1.0), (0, 1): (0.7, 0.5), (0, 1, 0): (0.9, 1.0)}, vocab_size=2)
    return (NGram.from_tables(tables),) * count


def main() -> None:
    JITFunction.run = compile_instead
    sausage = TensorSausage(ids=torch.zeros(2, 8, 16, dtype=torch.int32), cost=torch.zeros(2, 8, 16))
    history = torch.zeros(2, 3, dtype=torch.int32)
    for count in (0, 1, 2):
        rescorer = DeviceRescorer(models(count), alpha=np.ones((count, 1)), head=np.ones(1), capacity=512, device=torch.device("cpu"))
        rescorer.trees(sausage, history, 64)
        rescorer.paths(sausage, history, 16, "failure")
    for local in (False, True):
        lattice = rescorer.normalise(sausage, history, temperature=1.0, local=local)
        lattice.sample(torch.zeros(2, 4, 8, dtype=torch.float64))
        lattice.rows(torch.zeros(2, 4, 8, dtype=torch.int32))
        lattice.trees(64)


if __name__ == "__main__":
    main()
