"""Rescoring on the device of the tensors: Triton kernels over models in device memory (docs/how/gpu.md)."""
