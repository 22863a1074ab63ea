"""DFlash heads: all slots of a draft in one pass over a block of mask tokens, with the target's states as context.

Chen et al. 2026; folders of z-lab, or in the form of speculators. Every layer attends from the root token and the masks
behind it to what was made of the target's states of all tokens before, and both ways among themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rescore.decode.models.causal_lm import SLIDING, CausalLMTarget
from rescore.decode.models.checkpoint import tensor_files
from rescore.decode.models.decoder_layers import DecoderLayers
from rescore.decode.models.draft_step import DraftStep, DraftVocabulary
from rescore.decode.models.path_heads import (
    FIRST_SLOTS,
    UnreadStates,
    beside,
    config_of,
    read_all,
    tapping_head,
)
from rescore.decode.models.slot_cache import SlotCache
from rescore.decode.models.target import Block
from rescore.lattice.checked import read_object, whole

_MOST = 33  # tokens of a block, whose slots are a lattice's
_OTHERS = (  # fields of forms that are computed otherwise
    "conv_kernel_size",
    "selector_rank",
    "markov_rank",
    "attention_sink_bias",
    "attention_value_scale",
    "use_swa",
    "use_gemma_norm",
    "output_multiplier",
    "final_logit_softcapping",
    "is_causal",
    "causal",
    "projector_type",
)


class DFlashHeads(nn.Module):
    """T slots as `Heads`."""

    vocabulary: DraftVocabulary | None = None

    def __init__(self, target: CausalLMTarget, config: Any, form: Mapping[str, Any], names: Iterable[str]):
        super().__init__()
        from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm

        names, width, eps = set(names), config.hidden_size, config.rms_norm_eps
        inner = form.get("dflash_config") or {}
        config._attn_implementation = self.attention = target.config._attn_implementation
        self.mask = whole(
            inner.get("mask_token_id", form.get("mask_token_id")), "mask_token_id", 0, target.vocab_size - 1
        )
        self.block = whole(form.get("block_size", inner.get("block_size")), "block_size", 2, _MOST)
        self.first = 0 if form.get("sample_from_anchor") else 1  # row whose logits are of the first slot
        self.slots = self.block - self.first
        self.taps = _taps(form, inner, len(DecoderLayers.of(target.model.get_decoder()).layers), config)
        self.layers = nn.ModuleList(Qwen3DecoderLayer(config, number) for number in range(config.num_hidden_layers))
        self.fc = nn.Linear(len(self.taps) * target.config.hidden_size, width, bias=False)
        self.hidden_norm, self.norm = Qwen3RMSNorm(width, eps=eps), Qwen3RMSNorm(width, eps=eps)
        drafted = form.get("draft_vocab_size") or target.vocab_size
        self.lm_head = nn.Linear(width, drafted, bias=False) if "lm_head.weight" in names else None
        self.embed_tokens = nn.Embedding(target.vocab_size, width) if "embed_tokens.weight" in names else None
        self._target = (target,)  # in a tuple, so that its modules do not become submodules
        self.rotary: Any = None

    def open(self, requests: int) -> DFlashSession:
        return DFlashSession(self, requests)

    def remember(self, block: Block, states: Tensor, cache: SlotCache) -> None:
        """Adds keys and values of a block of texts, from the target's states [R, L, W]."""
        from transformers.models.qwen3.modeling_qwen3 import apply_rotary_pos_emb

        made = self.hidden_norm(self.fc(states[..., self._target[0].config.hidden_size :]))
        cos, sin = self.rotary(made, block.positions)
        cache.begin(block)
        for number, layer in enumerate(self.layers.children()):
            attention: Any = layer.self_attn
            shape = (*made.shape[:-1], -1, attention.head_dim)
            keys = attention.k_norm(attention.k_proj(made).view(shape)).transpose(1, 2)
            values = attention.v_proj(made).view(shape).transpose(1, 2)
            cache.update(number, apply_rotary_pos_emb(keys, keys, cos, sin)[1], values)

    def drafted(self, block: Block, cache: SlotCache) -> Tensor:
        """Logits [R, T, D] of a block of root tokens and masks."""
        target = self._target[0]
        embeddings: Any = self.embed_tokens or target.model.get_input_embeddings()
        x = embeddings(block.ids)
        given = beside(x, block, cache, self.rotary, self.attention)
        for layer in self.layers.children():
            x = layer(x, **given)
        x = self.norm(x[:, self.first :])
        return self.lm_head(x) if self.lm_head is not None else target.logits(x)


class DFlashSession:
    """DFlash heads, opened for the requests of one call. The cache has the tokens whose states the target has given."""

    def __init__(self, heads: DFlashHeads, requests: int):
        self._heads, self._cache = heads, SlotCache(requests, FIRST_SLOTS)
        self._states = UnreadStates(requests, self._cache)

    @torch.no_grad()
    def logits(self, step: DraftStep) -> Tensor:
        """Logits [B, T, D]. ValueError unless all states of the texts were told."""
        heads, (states, starts) = self._heads, self._states.take(step)
        device, ends = states.device, self._states.read
        known = [history[start:end] for history, start, end in zip(step.histories, starts, ends)]
        heads.remember(Block.of_texts(known, starts, device), states, self._cache)
        ids = np.full((len(ends), heads.block), heads.mask, np.int64)
        ids[:, 0] = [history[-1] for history in step.histories]
        both_ways = torch.ones(len(ends), heads.block, heads.block, dtype=torch.bool)
        depths = torch.arange(heads.block).expand(len(ends), -1)
        end = max(ends) + heads.block
        block = Block(ids=torch.from_numpy(ids), start=torch.tensor(ends), depths=depths, ancestors=both_ways, end=end)
        return heads.drafted(block.to(device), self._cache)


def _taps(form: Mapping[str, Any], inner: Mapping[str, Any], layers: int, config: Any) -> tuple[int, ...]:
    """The layers' states, by how many layers made them."""
    if ids := form.get("aux_hidden_state_layer_ids"):
        return tuple(sorted(ids))
    ids = inner.get("target_layer_ids") or form.get("target_layer_ids")
    if not ids:
        many = config.num_hidden_layers
        ids = [layers // 2] if many == 1 else np.linspace(1, layers - 3, many).round().astype(int).tolist()
    return tuple(sorted(one + 1 for one in ids))


def dflash_heads(folder: Path, target: CausalLMTarget) -> DFlashHeads:
    """The DFlash heads of a folder, whose target has their taps from now on. ValueError names what is missing, of a
    newer form, or not of this target.
    """
    path = folder / "config.json"
    form = read_object(path, lenient=True)
    inner = {**form, **(form.get("dflash_config") or {})}
    if newer := [name for name in _OTHERS if inner.get(name) not in (None, False)]:
        raise ValueError(f"{path}: expected DFlash's first form, got {newer[0]!r} of another, which cannot be read yet")
    tensors = read_all(tensor_files(folder))
    config = config_of(path, form, tensors, ("qwen3",))
    if SLIDING in (config.layer_types or ()):
        raise ValueError(f"{path}: layer_types: expected full attention, got {SLIDING}, on which engines do not agree")

    def make() -> DFlashHeads:
        try:
            return DFlashHeads(target, config, form, tensors)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None

    return tapping_head(folder, make, config, tensors, target)
