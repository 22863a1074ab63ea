"""Reads and fills transformers' `DynamicCache`, so that a chat can continue from the cache of an earlier turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.slot_cache import CACHE, SlotCache
from rescore.decode.models.target import Block

Layers = list[tuple[Tensor, Tensor]]
"""Keys and values [1, attention heads, slots, head width] of one row, one pair per layer."""


def checked_cache(cache: Any, rows: int) -> int:
    """Returns how many tokens a cache holds, padding included; ValueError unless it is a DynamicCache that keeps all
    tokens in every layer.
    """
    remedy = f"give a transformers.DynamicCache(), or leave {CACHE} out"
    if type(cache) is not DynamicCache or cache.offloading:
        got = "one that offloads" if getattr(cache, "offloading", False) else type(cache).__name__
        raise ValueError(f"{CACHE}: expected a DynamicCache without offloading, got {got}; {remedy}")
    layers: list[Any] = cache.layers
    for layer in layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise ValueError(
                f"{CACHE}: expected layers of keys and values only, got a {type(layer).__name__}; {remedy}"
            )
    held = cache.get_seq_length()
    for layer in layers:
        if held and (layer.keys is None or layer.keys.shape[-2] != held):
            got = "none" if layer.keys is None else f"the last {layer.keys.shape[-2]}"
            raise ValueError(
                f"{CACHE}: expected all {held} tokens in every layer, got {got} in a {type(layer).__name__}; "
                f"{remedy}; made without a config, its layers keep all tokens"
            )
        if held and layer.keys.shape[0] != rows:
            raise ValueError(
                f"{CACHE}: expected {rows} rows, those of input_ids and num_return_sequences, got {layer.keys.shape[0]}"
            )
    return held


class RememberedCache(SlotCache):
    """A slot cache that also keeps the rows of finished requests."""

    def __init__(self, rows: int, slots: int):
        super().__init__(rows, slots)
        self._requests = list(range(rows))
        self._ended: dict[int, Layers] = {}

    def select(self, rows: Sequence[int]) -> None:
        for row in set(range(self.rows)).difference(rows):
            self._ended[self._requests[row]] = [(keys.clone(), values.clone()) for keys, values in self._row(row)]
        super().select(rows)
        self._requests = [self._requests[row] for row in rows]

    def of_request(self, request: int) -> Layers:
        """Returns the keys and values of one request's text."""
        return self._ended[request] if request in self._ended else self._row(self._requests.index(request))

    def _row(self, row: int) -> Layers:
        return [(keys[row : row + 1], values[row : row + 1]) for keys, values in zip(self.keys, self.values)]


class RememberingTarget:
    """A causal language model whose cache starts with the contents of a DynamicCache and outlives decoding.

    past: the DynamicCache, None if there is none; pads: number of padding slots in each of its rows.
    """

    trees = True
    reads_back = True

    def __init__(self, target: CausalLMTarget, past: DynamicCache | None, pads: Sequence[int]):
        self.target, self.past, self.pads = target, past, pads
        self.vocab_size, self.context = target.vocab_size, target.context

    @property
    def device(self) -> torch.device:
        return self.target.device

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[SlotCache, list[NDArray[np.int64]]]:
        assert copies == 1, "trees are one row each"
        self.cache = RememberedCache(len(prompts), length)
        held = self.past.get_seq_length() if self.past is not None else 0
        if self.past is not None and held:
            past: list[Any] = self.past.layers
            layers = [tuple(_unpadded(states, self.pads) for states in (layer.keys, layer.values)) for layer in past]
            _store(self.cache, layers, held)
            self.cache.held = [max(0, held - pad) for pad in self.pads]
        return self.cache, list(prompts)

    def read(self, block: Block, cache: SlotCache) -> Tensor:
        return self.target.read(block, cache)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.target.logits(hidden)

    @torch.inference_mode()
    def read_on(self, request: int, held: int, ids: Tensor) -> tuple[Tensor, Layers]:
        """Reads `ids` int64 [L] after the first `held` tokens of a finished request: logits [L, V] after each, and the
        keys and values of all held + L tokens.
        """
        cache = SlotCache(1, held + max(1, len(ids)))
        _store(
            cache, [(keys[:, :, :held], values[:, :, :held]) for keys, values in self.cache.of_request(request)], held
        )
        logits = torch.empty(0, self.vocab_size, device=self.device)
        if len(ids):
            start = torch.tensor([held], device=self.device)
            logits = self.logits(self.read(Block.chain(ids[None].to(self.device), start, held + len(ids)), cache)[0])
        end = held + len(ids)
        return logits, [(keys[:, :, :end], values[:, :, :end]) for keys, values in zip(cache.keys, cache.values)]


def fill_cache(cache: DynamicCache, rows: Sequence[Layers], pads: Sequence[int]) -> None:
    """Appends to `cache` the tokens of `rows` that it does not hold yet. Row b is left-padded by pads[b] slots, so that
    all have the same length.
    """
    held = cache.get_seq_length()
    for layer in range(len(rows[0])):
        keys, values = (
            torch.cat([_padded(row[layer][which], pad) for row, pad in zip(rows, pads)])[:, :, held:]
            for which in (0, 1)
        )
        cache.update(keys, values, layer)


def _store(cache: SlotCache, layers: Sequence[tuple[Tensor, ...]], slots: int) -> None:
    """Writes keys and values into the first slots of every layer, as if they had just been read."""
    device = layers[0][0].device
    ids = torch.zeros(cache.rows, slots, dtype=torch.int64, device=device)
    cache.begin(Block.chain(ids, torch.zeros(cache.rows, dtype=torch.int64, device=device), slots))
    for layer, (keys, values) in enumerate(layers):
        cache.update(layer, keys, values)


def _unpadded(states: Tensor, pads: Sequence[int]) -> Tensor:
    """Moves each row's padding after its text, where it is never read. states: keys or values [B, H, slots, D]."""
    return torch.stack([row.roll(-pad, dims=1) for row, pad in zip(states, pads)])


def _padded(states: Tensor, pad: int) -> Tensor:
    return torch.nn.functional.pad(states, (0, 0, pad, 0))
