"""Our cache and masks in the form that layers of Hugging Face models take."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from rescore.decode.models.slot_cache import SlotCache
from rescore.lattice.extras import needed_for

with needed_for("a model of Hugging Face"):
    from transformers import Cache, DynamicCache, EncoderDecoderCache
    from transformers.modeling_outputs import BaseModelOutputWithPast

__all__ = ["CACHE", "DynamicCache", "EncoderDecoderCache", "SlotLayers", "attention_mask"]

# The argument of a model's forward and of generate that holds the cache, and the field of their outputs.
# transformers 5.24 renamed it; older versions do not know the new name.
CACHE = "cache" if "cache" in {field.name for field in fields(BaseModelOutputWithPast)} else "past_key_values"


class SlotLayers(Cache):
    """A `SlotCache` as the cache of one pass, after `SlotCache.begin`.

    start  number of tokens in the rows, for models that derive positions from it; arbitrary if rows differ, when the
           model is given its positions
    """

    def __init__(self, cache: SlotCache, start: int = 0):
        super().__init__(layers=[])
        self._cache = cache
        self._start = start

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return self._cache.update(layer_idx, key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._start


def attention_mask(seen: Tensor, implementation: str, dtype: torch.dtype) -> Tensor:
    """Converts bool [R, 1, L, end] to what the attention takes. Eager: a term for the scores, 0 or the least number of
    `dtype`. sdpa on a CPU: likewise with -inf, which every layer would otherwise compute; elsewhere the bool mask.

    transformers does not change masks of four dimensions.
    """
    if implementation == "sdpa" and seen.device.type != "cpu":
        return seen
    unseen = -torch.inf if implementation == "sdpa" else torch.finfo(dtype).min
    return torch.full(seen.shape, unseen, dtype=dtype, device=seen.device).masked_fill_(seen, 0.0)
