"""Rescoring where the tensors are: Triton kernels over models that stay on the device (docs/use/gpu.md)."""
