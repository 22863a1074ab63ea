"""Linear layers over few tokens, on a CPU in float32 and bfloat16: passes over drafts, and prompts where libraries are
slower.

Libraries of linear algebra take two to three times as long for 5 to 17 tokens as for one, though the weights come from
memory once. The core's own takes little longer for up to 9, and up to twice as long for 17 (docs/notebooks/engines.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rescore import _core
from rescore.decode.models.decoder_layers import with_attributes
from rescore.decode.models.grouped_attention import grouping

MULTIPLE = 16  # of the widths of layers that the core reads


def narrowed(module: Any) -> Any:
    """A view of a module whose linear layers are run by the core where it is as fast as libraries, and whose heads in
    groups share keys there; the module itself if it has none of these, is compiled, or its parts cannot be replaced. It
    is of the module as it is now: weights, buffers and hooks are shared, attributes that are set later are not.
    """
    if any(part._compiled_call_impl is not None for part in module.modules()):
        return module
    try:
        return with_attributes(module, lambda part: {"forward": _Forward(part)} if _fits(part) else grouping(part))
    except ValueError:  # a part has a forward of its own
        return module


class _Forward:
    """The forward of a linear layer."""

    def __init__(self, layer: Any):
        self._parameters, self._form, self._dtype = layer._parameters, layer.weight.shape, layer.weight.dtype
        self._short = self._dtype is torch.bfloat16
        self._fewest, self._most = _core.narrow_rows(bfloat16=self._short)

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        outputs, inputs = self._form
        rows = x.numel() // inputs
        few = self._fewest <= rows <= self._most and x.shape[-1] == inputs and weight.shape == self._form
        plain = few and type(x) is Tensor and _plain(x, self._dtype) and _plain(weight, self._dtype)
        if not plain or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return functional.linear(x, weight, bias)
        y, threads = x.new_empty((*x.shape[:-1], outputs)), torch.get_num_threads()
        where = x.data_ptr(), weight.data_ptr(), y.data_ptr()
        _core.narrow_linear(*where, rows, inputs, outputs, threads, bfloat16=self._short)
        return y if bias is None else y.add_(bias)


def _plain(tensor: Tensor, dtype: torch.dtype) -> bool:
    return tensor.dtype is dtype and tensor.is_cpu and tensor.is_contiguous()


def _fits(part: Any) -> bool:
    return (
        type(part) is nn.Linear
        and type(part.weight) is nn.Parameter
        and (dtype := part.weight.dtype) in (torch.float32, torch.bfloat16)
        and _core.narrow_rows(bfloat16=dtype is torch.bfloat16)[1] > 0
        and _plain(part.weight, dtype)
        and not (part.in_features % MULTIPLE or part.out_features % MULTIPLE)
    )
