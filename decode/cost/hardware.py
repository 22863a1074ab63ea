"""Accelerators by name, with the memory and arithmetic figures of their data sheets."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """An accelerator's data sheet figures.

    bandwidth  bytes per second
    flops      dense bfloat16 operations per second; a multiply-add is two
    memory     bytes
    """

    name: str
    bandwidth: float
    flops: float
    memory: float

    def __post_init__(self) -> None:
        for field in ("bandwidth", "flops", "memory"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{field}: expected a finite number above 0, got {value!r}")


def _sheet(name: str, gb_s: float, tflops: float, gb: float) -> Accelerator:
    return Accelerator(name=name, bandwidth=1e9 * gb_s, flops=1e12 * tflops, memory=1e9 * gb)


ACCELERATORS = {
    one.name: one
    for one in (
        # NVIDIA H200 Tensor Core GPU Datasheet: H200 SXM, 4.8 TB/s, 1,979 TFLOPS bfloat16 with sparsity, 141 GB.
        _sheet("h200", 4800, 989.5, 141),
        # NVIDIA H100 Tensor Core GPU Datasheet: H100 SXM, 3.35 TB/s, 1,979 TFLOPS bfloat16 with sparsity, 80 GB.
        _sheet("h100", 3350, 989.5, 80),
        # The same sheet: H100 PCIe, 2 TB/s, 1,513 TFLOPS bfloat16 with sparsity, 80 GB.
        _sheet("h100-pcie", 2000, 756.5, 80),
        # NVIDIA A100 Tensor Core GPU Datasheet: A100 80GB SXM, 2,039 GB/s, 312 TFLOPS bfloat16.
        _sheet("a100", 2039, 312, 80),
        # The same sheet's 40 GB SXM: 1,555 GB/s.
        _sheet("a100-40gb", 1555, 312, 40),
        # NVIDIA L40S Datasheet: 864 GB/s, 362.05 TFLOPS bfloat16 (733 with sparsity), 48 GB.
        _sheet("l40s", 864, 362.05, 48),
        # NVIDIA L4 Tensor Core GPU Datasheet: 300 GB/s, 242 TFLOPS bfloat16 with sparsity, 24 GB.
        _sheet("l4", 300, 121, 24),
        # NVIDIA A10 Tensor Core GPU Datasheet: 600 GB/s, 125 TFLOPS bfloat16, 24 GB.
        _sheet("a10", 600, 125, 24),
        # NVIDIA Ada GPU Architecture whitepaper, appendix A: RTX 4090, 1,008 GB/s, 165.2 TFLOPS bfloat16 with
        # float32 accumulation, 24 GB.
        _sheet("rtx-4090", 1008, 165.2, 24),
        # NVIDIA Ampere GA102 GPU Architecture whitepaper, appendix A: RTX 3090, 936 GB/s, 71 TFLOPS bfloat16
        # with float32 accumulation, 24 GB.
        _sheet("rtx-3090", 936, 71, 24),
        # AMD Instinct MI300X Data Sheet: 5.3 TB/s, 1,307.4 TFLOPS bfloat16, 192 GB.
        _sheet("mi300x", 5300, 1307.4, 192),
    )
}


def accelerator(name: str) -> Accelerator:
    """Returns an accelerator by name; ignores case, and accepts blanks for hyphens."""
    found = ACCELERATORS.get(name.lower().replace(" ", "-"))
    if found is None:
        raise ValueError(
            f"expected one of {', '.join(ACCELERATORS)}, got {name!r:.80}; or give bandwidth and operations per second"
        )
    return found
