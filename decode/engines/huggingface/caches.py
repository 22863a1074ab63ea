"""Reads and fills transformers' caches, so that a chat can continue from the cache of an earlier turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Cache, DynamicCache, StaticCache
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionLayer,
    StaticLayer,
    StaticSlidingWindowLayer,
)

from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.model_check import check_logits
from rescore.decode.models.recurrent import KeptStates, RecurrentTarget, join_rows, put_state
from rescore.decode.models.slot_cache import CACHE, SlotCache
from rescore.decode.models.target import Block, FixedShapes

ReadTarget = CausalLMTarget | EncoderDecoderTarget
_WITH_STATES = (LinearAttentionLayer, LinearAttentionAndFullAttentionLayer)
_SHOWN = (
    "after its images or sound",
    "a prompt ends with them, where text must follow, or the family reads text behind them with more than keys, values "
    "and positions that count on",
)
_TAKEN = (DynamicLayer, DynamicSlidingWindowLayer, StaticLayer, StaticSlidingWindowLayer)


def continues_states(cache: Any) -> bool:
    """Whether a cache of a model with recurrent state tells how long its texts are, and keeps all of their tokens."""
    layers = getattr(cache, "layers", [])
    keeps_all = all(type(layer) in (DynamicLayer, *_WITH_STATES) for layer in layers)
    return keeps_all and any(isinstance(layer, DynamicLayer) for layer in layers)


def checked_cache(cache: Any, rows: int, most: int, *, states: bool = False) -> int:
    """Returns how many tokens a cache holds, padding included; ValueError unless it is a DynamicCache or a StaticCache
    that keeps all tokens in every layer, and has room for `most`. states: whether layers may have recurrent states.
    """
    remedy = f"give a transformers.DynamicCache(), or leave {CACHE} out"
    if type(cache) not in (DynamicCache, StaticCache) or cache.offloading:
        got = "one that offloads" if getattr(cache, "offloading", False) else type(cache).__name__
        raise ValueError(f"{CACHE}: expected a DynamicCache or a StaticCache without offloading, got {got}; {remedy}")
    layers: list[Any] = cache.layers
    for layer in layers:
        if type(layer) not in (*_TAKEN, *(_WITH_STATES if states else ())):
            raise ValueError(
                f"{CACHE}: expected layers of keys and values only, got a {type(layer).__name__}; {remedy}"
            )
        if type(layer) is StaticLayer and layer.max_cache_len < most:
            raise ValueError(
                f"{CACHE}: expected room for {most} tokens of prompt and text, got max_cache_len "
                f"{layer.max_cache_len}; make it longer, or give a smaller max_new_tokens"
            )
    held = held_by(cache)
    for layer in _attending(cache):
        if held and (layer.keys is None or min(int(layer.get_seq_length()), layer.keys.shape[-2]) != held):
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


def held_by(cache: Cache) -> int:
    """How many tokens a cache holds, padding included."""
    return int(cache.get_seq_length())


def read_prompts(
    model: Any, ids: Tensor, config: Any, given: Mapping[str, Any], cache: Cache | None
) -> tuple[DynamicCache, Tensor]:
    """Reads prompts with images or sound as `generate` does, by the model's own forward. Returns a cache of all tokens
    but the last, and the logits [B, V] behind that. ValueError unless it keeps keys and values of these tokens alone.

    cache: of what was read before, to be continued in place
    """
    cache = cache if cache is not None and held_by(cache) else DynamicCache()
    if not isinstance(cache, DynamicCache):
        raise ValueError(
            f"{CACHE}: expected a DynamicCache to go on with images or sound, got a filled {type(cache).__name__}"
        )
    logits = model._prefill(ids, config, {**given, CACHE: cache}).logits[:, -1]
    size = ids.shape[1]
    kept = {0 if layer.keys is None else layer.keys.shape[-2] for layer in cache.layers if hasattr(layer, "keys")}
    if kept != {size}:
        raise ValueError(
            f"{type(model).__name__}: expected keys and values of the prompt's {size} tokens in every layer, got "
            f"{sorted(kept)} of them: layers that attend to images apart from the text (cross-attention) are not read "
            "yet; leave custom_generate out"
        )
    cache.crop(-1)
    return cache, logits


class RememberingTarget:
    """A model whose cache starts with the contents of one of transformers and outlives decoding.

    past: that cache, None if there is none; pads: number of padding slots in each of its rows; shift: of positions, as
    in `SlotCache`; expected: logits [B, V] behind the prompts, if only their last tokens are not in the cache. The
    first pass is a ValueError unless it gives them.
    """

    reads_back = True

    def __init__(
        self,
        target: ReadTarget,
        past: Cache | None,
        pads: Sequence[int],
        shift: NDArray[np.int64] | None = None,
        expected: Tensor | None = None,
    ):
        self.target, self.past, self.pads, self._shift, self._expected = target, past, pads, shift, expected
        self.vocab_size, self.context, self.trees = target.vocab_size, target.context, target.trees

    @property
    def device(self) -> torch.device:
        return self.target.device

    @property
    def fixed(self) -> FixedShapes | None:
        return self.target.fixed

    @property
    def placeholders(self) -> frozenset[int]:
        return self.target.placeholders

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[SlotCache, list[NDArray[np.int64]]]:
        assert copies == 1, "trees are one row each"
        self._cache, firsts = self.target.open(prompts, copies, length)
        self._requests = list(range(len(prompts)))  # of the cache's rows
        self._ended: dict[int, SlotCache] = {}
        self._cache.selecting = self._select
        self._cache.shift = self._shift
        if self.past is not None and held_by(self.past):
            _restore(self._cache, self.past, self.pads)
        return self._cache, firsts

    def _select(self, rows: Sequence[int]) -> None:
        for row in set(range(self._cache.rows)).difference(rows):
            self._ended[self._requests[row]] = self._cache.row(row)
        self._requests = [self._requests[row] for row in rows]

    def read(self, block: Block, cache: SlotCache) -> Tensor:
        hidden = self.target.read(block, cache)
        if self._expected is not None:
            check_logits(self.target.model, self.logits(hidden[:, 0]), self._expected, _SHOWN)
            self._expected = None
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return self.target.logits(hidden)

    def of_request(self, request: int) -> SlotCache:
        """The cache of one request's text, of a row."""
        return self._ended[request] if request in self._ended else self._cache.row(self._requests.index(request))

    @torch.inference_mode()
    def read_on(self, request: int, text: Tensor, held: int) -> tuple[Tensor, SlotCache]:
        """Reads a finished request's `text`, int64 [n], of which it has read `held` tokens: logits [n - held, V] after
        the others, and the cache of all.
        """
        cache = self.of_request(request)
        if isinstance(cache, KeptStates) and cache.ends() != [held]:  # a state further on is of no use
            cache, _ = self.target.open([text[:held].cpu().numpy()], 1, len(text) + 1)
            self._read(text[:held], 0, cache)
        logits = torch.empty(0, self.vocab_size, device=self.device)
        if len(text) > held:
            logits = self.logits(self._read(text[held:], held, cache))
        if isinstance(cache, KeptStates):
            assert isinstance(self.target, RecurrentTarget)
            self.target.catch_up(cache)
        return logits, cache

    def _read(self, ids: Tensor, start: int, cache: SlotCache) -> Tensor:
        """Hidden states [L, width] of tokens [L] of a cache's only text, of which `start` were read."""
        at = torch.tensor([start], device=self.device)
        hidden = self.read(Block.chain(ids[None].to(self.device), at, start + len(ids)), cache)
        if start or not isinstance(cache, KeptStates):
            cache.keep([start], [range(len(ids))])
        return hidden[0]


def fill_cache(cache: Cache, rows: Sequence[SlotCache], ends: Sequence[int], pads: Sequence[int]) -> None:
    """Appends to `cache` the first ends[b] tokens of `rows` that it does not hold yet, and the states after them. Row b
    is left-padded by pads[b] slots, so that all have the same length.
    """
    states = [row for row in rows if isinstance(row, KeptStates)]
    stores = states[0].places if states else {layer: layer for layer in range(len(rows[0].keys))}
    held = held_by(cache)
    for layer, store in stores.items():
        keys, values = (
            torch.cat([_padded(of[store][:, :, :end], pad)[:, :, held:] for of, end, pad in zip(every, ends, pads)])
            for every in ([row.keys for row in rows], [row.values for row in rows])
        )
        cache.update(keys, values, layer)
    if states:
        layers: list[Any] = cache.layers
        for layer, state in join_rows([row.layers for row in states]).items():
            put_state(layers[layer], state)


def _restore(cache: SlotCache, past: Cache, pads: Sequence[int]) -> None:
    """Fills a new cache with what `past` holds."""
    held, attending = held_by(past), _attending(past)
    device = attending[0].keys.device
    ids = torch.zeros(cache.rows, held, dtype=torch.int64, device=device)
    cache.begin(Block.chain(ids, torch.zeros(cache.rows, dtype=torch.int64, device=device), held))
    for number, layer in enumerate(attending):
        keys, values = (_unpadded(of[:, :, :held], pads) for of in (layer.keys, layer.values))
        cache.update(number, keys, values)
    cache.held = [max(0, held - pad) for pad in pads]
    if isinstance(cache, KeptStates):
        layers: list[Any] = past.layers
        cache.places = {place: number for number, place in enumerate(map(layers.index, attending))}
        cache.start_from({place: layers[place] for place in cache.layers}, cache.held)


def _attending(cache: Cache) -> list[Any]:
    return [layer for layer in cache.layers if isinstance(layer, (DynamicLayer, StaticLayer))]


def _unpadded(states: Tensor, pads: Sequence[int]) -> Tensor:
    """Moves each row's padding after its text, where it is never read. states: keys or values [B, H, slots, D]."""
    return torch.stack([row.roll(-pad, dims=1) for row, pad in zip(states, pads)])


def _padded(states: Tensor, pad: int) -> Tensor:
    return torch.nn.functional.pad(states, (0, 0, pad, 0))
