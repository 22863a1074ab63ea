"""Linear layers over few tokens, on a CPU in float32: passes over drafts.

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
    """A view of a module whose linear layers are run by the core where few tokens pass them, and whose heads in groups
    share keys there; the module itself if it has none of these, is compiled, or its parts cannot be replaced. It is of
    the module as it is now: weights, buffers and hooks are shared, attributes that are set later are not.
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
        self._parameters, self._form, self._most = layer._parameters, layer.weight.shape, _core.most_narrow_rows()

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        outputs, inputs = self._form
        rows = x.numel() // inputs
        few = 0 < rows <= self._most and x.shape[-1] == inputs and weight.shape == self._form
        plain = few and type(x) is Tensor and _plain(x) and _plain(weight)
        if not plain or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return functional.linear(x, weight, bias)
        y, threads = x.new_empty((*x.shape[:-1], outputs)), torch.get_num_threads()
        _core.narrow_linear(x.data_ptr(), weight.data_ptr(), y.data_ptr(), rows, inputs, outputs, threads)
        return y if bias is None else y.add_(bias)


def _plain(tensor: Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous()


def _fits(part: Any) -> bool:
    return (
        _core.most_narrow_rows() > 0
        and type(part) is nn.Linear
        and type(part.weight) is nn.Parameter
        and _plain(part.weight)
        and not (part.in_features % MULTIPLE or part.out_features % MULTIPLE)
    )
