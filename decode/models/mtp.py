"""Multi-token prediction: a chain of small modules after the target, as published with DeepSeek-V3 and its kin.

DeepSeek-AI 2024 (arXiv 2412.19437), section 2.2. At place i of the text, module k reads the state of module k - 1
(module 0 is the target, its last hidden state) and the embedding of token i + k, attends to its own earlier places, and
gives logits of token i + k + 1 through the target's output layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rescore.decode.models.causal_lm import FULL, SLIDING, CausalLMTarget, check_kinds
from rescore.decode.models.checkpoint import stores_mtp
from rescore.decode.models.draft_step import DraftStep, DraftVocabulary, places_of
from rescore.decode.models.slot_cache import SlotCache, SlotLayers
from rescore.decode.models.target import Block

_FIRST_SLOTS = 256


class MtpHeads:
    """The T modules of an MTP model as `Heads`.

    Slot t reads the best tokens of the slots before it, where training has the true ones. Unlike Medusa's, these heads
    see one draft, the greedy one, and their lattice is conditioned on it.
    """

    vocabulary: DraftVocabulary | None = None

    def __init__(self, target: CausalLMTarget, modules: Any):
        self.target = target
        self.modules = modules
        self.slots = len(modules.layers)
        self._kinds = list(getattr(modules.config, "layer_types", None) or [FULL] * self.slots)
        check_kinds(target.model, self._kinds)
        # forward_layer calls this for its masks; transformers' own serve one request without padding.
        modules.create_masks_for_mtp_layer = self._masks

    @classmethod
    def of_checkpoint(cls, target: CausalLMTarget) -> MtpHeads:
        """Loads the modules from the folder of the target's model; ValueError if there are none."""
        from transformers.modeling_layers import MtpModel

        folder = target.model.config.name_or_path
        if not Path(folder).is_dir() or not stores_mtp(target.model):
            raise ValueError(
                f"{folder or type(target.model).__name__}: expected a folder whose safetensors hold the modules of "
                "multi-token prediction, got none"
            )
        try:
            modules = MtpModel.from_pretrained(target.model, device_map={"": target.device})
        except (RuntimeError, ValueError, OSError, KeyError) as error:
            raise ValueError(f"{folder}: expected complete modules of multi-token prediction, got {error}") from error
        return cls(target, modules.eval())

    def open(self, requests: int) -> MtpSession:
        return MtpSession(self, requests)

    def _masks(
        self, layer_idx: int, inputs_embeds: Tensor, mtp_cache: BlockLayers, position_ids: Tensor
    ) -> dict[str, Tensor | None]:
        window = self.modules.config.sliding_window if self._kinds[layer_idx] == SLIDING else None
        return {"attention_mask": self.target.mask(mtp_cache.block, window, inputs_embeds.dtype)}


class BlockLayers(SlotLayers):
    """The cache of a pass, with the block of the pass."""

    def __init__(self, cache: SlotCache, block: Block):
        super().__init__(cache)
        self.block = block


class MtpSession:
    """MTP modules, opened for the requests of one call.

    Place i of module k depends on token i + k, so the last k - 1 places of a step were read with drafted tokens. Every
    step therefore reads the last T - 1 places again, with the tokens now in the text, from stored hidden states.
    """

    def __init__(self, heads: MtpHeads, requests: int):
        self._heads = heads
        self._cache = SlotCache(requests, _FIRST_SLOTS)
        self._numbers = list(range(requests))  # of the requests in the cache
        self._read = [0] * requests
        self._kept: list[Tensor] = []

    @torch.no_grad()
    def logits(self, step: DraftStep) -> Tensor:
        """Logits [B, T, V]; ValueError unless the step's hidden states continue those of the previous step."""
        assert step.states is not None, "a step of decoding has hidden states"
        if (places := places_of(step.texts, self._numbers)) is not None:
            self._select(places)
        fresh = list(step.states())
        self._check(step, fresh)
        known = [torch.cat((old, new)) for old, new in zip(self._kept, fresh)] if self._kept else fresh
        starts = [len(history) - 1 - len(states) for history, states in zip(step.histories, known)]
        hidden = torch.nn.utils.rnn.pad_sequence(known, batch_first=True)
        block = Block.of_texts(
            [history[start + 1 :] for history, start in zip(step.histories, starts)], starts, hidden.device
        )
        logits = self._chain(block, hidden)
        self._read = [len(history) - 1 for history in step.histories]
        self._kept = [states[max(0, len(states) - self._heads.slots + 1) :] for states in known]
        return logits

    def _select(self, rows: Sequence[int]) -> None:
        self._cache.select(rows)
        self._numbers = [self._numbers[row] for row in rows]
        self._read = [self._read[row] for row in rows]
        self._kept = [self._kept[row] for row in rows] if self._kept else []

    def _chain(self, block: Block, hidden: Tensor) -> Tensor:
        """Every module's logits [B, T, V] at each row's last token; each module reads the best token of the one
        before.
        """
        row, last = torch.arange(block.rows, device=block.ids.device), block.depths[:, -1]
        ids, logits = block.ids, []
        self._cache.begin(block)
        for k in range(self._heads.slots):
            hidden = self._heads.modules.forward_layer(
                k, hidden, block.positions + 1 + k, BlockLayers(self._cache, block), input_ids=ids, use_cache=True
            )
            logits.append(self._heads.target.logits(hidden[row, last]))
            ids = ids.roll(-1, dims=1)
            ids[row, last] = logits[-1].argmax(dim=-1)
        return torch.stack(logits, dim=1)

    def _check(self, step: DraftStep, fresh: Sequence[Tensor]) -> None:
        for i, (history, states, read) in enumerate(zip(step.histories, fresh, self._read)):
            expected = len(history) - 1 - read
            if len(states) != expected or not expected:
                raise ValueError(
                    f"request {i}: expected the hidden states of the {expected} tokens read since the previous step, "
                    f"at least one, got {len(states)}"
                )
