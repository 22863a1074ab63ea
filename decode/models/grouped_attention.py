"""Attention in which several heads read the same keys (grouped queries, Ainslie et al. 2023), in passes with a mask.

transformers copies keys and values for every head where there is a mask, over the whole text in each layer; for single
tokens it does not. Here the heads of a group are rows of one head, over the same keys.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor
from torch.nn import functional

_NAME = "rescore_grouped"


class _Config:
    """A model's configuration with this attention instead of sdpa."""

    _attn_implementation = _NAME

    def __init__(self, config: Any):
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


def grouping(part: Any) -> dict[str, Any]:
    """The attributes with which a part of a decoder attends so; none if it is no such attention."""
    config = getattr(part, "config", None)
    if getattr(part, "num_key_value_groups", 1) == 1 or getattr(config, "_attn_implementation", None) != "sdpa":
        return {}
    code = getattr(inspect.unwrap(type(part).forward), "__code__", None)
    if code is None or "get_interface" not in code.co_names or "sdpa" in repr(code.co_consts):  # asks for it by name
        return {}
    from transformers import AttentionInterface

    AttentionInterface.register(_NAME, _attend)
    return {"config": _Config(config)}


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """query [R, H, L, D], key and value [R, H / G, n, D], mask [R, 1, L, n]; returns [R, L, H, D]."""
    rows, heads, length, width = query.shape
    shared = key.shape[1]
    few = 1 < length <= 2 * shared * width  # so that the mask for each head of a group is smaller than keys and values
    changed = any(others.get(name) is not None for name in ("softcap", "position_bias"))
    if not few or changed or attention_mask is None or attention_mask.shape[1] > 1:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        given = {"dropout": dropout, "scaling": scaling, **others}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **given)
    packed = query.reshape(rows, shared, -1, width)
    mask = _for_each(attention_mask, heads // shared)
    found = functional.scaled_dot_product_attention(packed, key, value, mask, dropout, scale=scaling)
    of_heads = found.unflatten(2, (-1, length)).permute(0, 3, 1, 2, 4)  # the layout of what is found differs by device
    return of_heads.reshape(rows, length, heads, -1).contiguous(), None


def _for_each(mask: Tensor, group: int) -> Tensor:
    """The mask of a group's heads, one behind the other: made once for a pass's layers, and kept with the mask, which
    nobody writes to.
    """
    made: dict[int, Tensor] = vars(mask).setdefault("_of_groups", {})
    if group not in made:
        made[group] = mask.repeat(1, 1, group, 1)
    return made[group]
