"""Hugging Face encoder-decoders (T5, BART, Whisper) as targets: the encoder reads the prompt, the decoder's text is
verified.

T5 and BART derive positions from the slots of the cache and take no others. Such models therefore read chains, not
trees, and rows of unequal length in groups: those that hold equally many tokens together. Keys and values of the
encoded prompt are computed once and kept.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.model_check import (
    check_attention_alone,
    check_logits,
    check_model,
    trying_out,
    vocab_size_of,
)
from rescore.decode.models.model_state import OfModel
from rescore.decode.models.private_copy import private_copy
from rescore.decode.models.slot_cache import (
    CACHE,
    DynamicCache,
    EncoderDecoderCache,
    SlotCache,
    SlotLayers,
    attention_mask,
)
from rescore.decode.models.target import Block
from rescore.lattice.extras import needed_for

with needed_for("a model of Hugging Face"):
    from transformers.modeling_outputs import BaseModelOutput


class EncodedCache(SlotCache):
    """A cache by slots of the decoder's text, with each row's encoded prompt.

    encoded  last hidden states of the encoder [rows, S, width]; inside, bool [rows, S]: not padding
    cross    keys and values of the encoded prompts, for every layer of the decoder
    """

    def __init__(self, rows: int, slots: int, encoded: Tensor, inside: Tensor, cross: DynamicCache):
        super().__init__(rows, slots)
        self.encoded = encoded
        self.inside = inside
        self.cross = cross

    def select(self, rows: Sequence[int]) -> None:
        super().select(rows)
        index = torch.tensor(rows, dtype=torch.int64, device=self.encoded.device)
        self.encoded, self.inside = self.encoded[index], self.inside[index]
        self.cross.batch_select_indices(index)

    def cross_of(self, rows: Tensor) -> DynamicCache:
        """`cross` of some rows."""
        cross = DynamicCache()
        for i, layer in enumerate(self.cross.layers):
            kept: Any = layer  # a DynamicLayer; transformers' type is more general
            cross.update(kept.keys[rows], kept.values[rows], i)
        return cross


class EncoderDecoderTarget(OfModel):
    """An encoder-decoder of transformers as a `Target`, of chains unless its decoder takes positions.

    context limits prompt and text, each; None for T5, whose positions are unlimited. reach is what the text can have.
    decoder: runs in place of the model's own and must give the same states; None: the model's own.
    """

    reads_back = True
    angles, fixed, reading, slides, reads_again = None, None, None, False, False  # as in `CausalLMTarget`

    def __init__(self, model: Any, decoder: Any = None):
        check_model(model, encoder_decoder=True)
        check_attention_alone(model)
        self._model = model
        self.encoder = model.get_encoder()
        self.decoder = model.get_decoder() if decoder is None else decoder
        self._output = model.get_output_embeddings()
        self.vocab_size = vocab_size_of(model, self._output)
        limits = (getattr(model.config, name, None) for name in ("max_position_embeddings", "max_target_positions"))
        self.context: int | None = next((one for one in limits if one is not None), None)
        self.reach, self.config, self.rope = self.context, model.config, dict[str, Any]()
        self._first = _first_token(model)
        taken = inspect.signature(self.decoder.forward).parameters
        self.trees, self._masks_prompts = "position_ids" in taken, "encoder_attention_mask" in taken
        self._encoded: tuple[Tensor, Tensor] | None = None
        self._try_out()

    @property
    def device(self) -> torch.device:
        return self.model.device

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[EncodedCache, list[NDArray[np.int64]]]:
        """ValueError for a prompt that is empty or longer than the encoder's positions."""
        if self._encoded is None:
            encoded, inside = self._encode(prompts)
            firsts = [np.array([self._first], np.int64) for _ in prompts]
            longest = max(map(len, prompts))  # the encoder has the prompts, and adds none
        else:
            encoded, inside = self._encoded
            firsts, longest = list(prompts), 0
        cross = DynamicCache()
        self.narrow()
        # The decoder itself makes the prompts' keys and values, in a pass whose other results are discarded.
        self.decoder(
            input_ids=torch.full((len(encoded), 1), self._first, device=self.device),
            **self._given(encoded, inside),
            use_cache=True,
            **{CACHE: EncoderDecoderCache(DynamicCache(), cross)},
        )
        if copies > 1:
            cross.batch_repeat_interleave(copies)
            encoded, inside = encoded.repeat_interleave(copies, 0), inside.repeat_interleave(copies, 0)
        return EncodedCache(len(encoded), max(1, length - longest), encoded, inside, cross), firsts

    def of_states(self, encoded: Tensor, inside: Tensor | None = None) -> EncoderDecoderTarget:
        """This target of prompts whose encoder's states [P, S, width] are known, as of sound: what it is given as
        prompts are then the decoder's first tokens. inside: bool [P, S], not padding; None: all of it.
        """
        made = copy.copy(self)
        inside = torch.ones(encoded.shape[:2], dtype=torch.bool, device=encoded.device) if inside is None else inside
        made._encoded = encoded, inside.bool()
        return made

    def _given(self, encoded: Tensor, inside: Tensor) -> dict[str, Tensor]:
        masked = {"encoder_attention_mask": inside} if self._masks_prompts else {}
        return {"encoder_hidden_states": encoded, **masked}

    def read(self, block: Block, cache: SlotCache) -> Tensor:
        if not isinstance(cache, EncodedCache):
            raise TypeError(
                f"expected the cache from open(), got {type(cache).__name__}; it holds the encoder's states"
            )
        if self.trees:
            return self._pass(block, cache, 0, None)
        if block.ancestors is not None:
            raise ValueError("expected a chain, got a tree, which encoder-decoders cannot read; draft one path")
        starts = block.start.tolist()
        if len(set(starts)) == 1:
            return self._pass(block, cache, starts[0], None)
        groups = {
            start: torch.tensor([row for row, at in enumerate(starts) if at == start], device=self.device)
            for start in set(starts)
        }
        parts = [self._pass_of_group(block, cache, start, rows) for start, rows in groups.items()]
        return torch.cat(parts)[torch.cat(list(groups.values())).argsort()]

    def logits(self, hidden: Tensor) -> Tensor:
        if _scales_output(self.model.config):
            hidden = hidden * self.model.config.d_model**-0.5
        logits = self.parts[1](hidden)
        bias = getattr(self.model, "final_logits_bias", None)  # BART
        return logits if bias is None else logits + bias[0]

    def _encode(self, prompts: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
        """The encoder's hidden states [P, S, width] of the prompts, padded at the end, and the mask of real tokens,
        bool [P, S].
        """
        if self.model.main_input_name != "input_ids":
            raise ValueError(
                f"{type(self.model).__name__}: expected the states of {self.model.main_input_name} (`of_states`, or "
                "--audio), got prompts of text"
            )
        for i, prompt in enumerate(prompts):
            if not len(prompt) or (self.context is not None and len(prompt) > self.context):
                raise ValueError(
                    f"prompt {i}: expected 1 to {self.context or 'any number of'} tokens for the encoder, "
                    f"got {len(prompt)}"
                )
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        inside = torch.arange(int(lengths.max()), device=self.device) < lengths[:, None]
        ids = torch.zeros(inside.shape, dtype=torch.int64, device=self.device)
        ids[inside] = torch.from_numpy(np.concatenate(prompts).astype(np.int64)).to(self.device)
        return self.encoder(input_ids=ids, attention_mask=inside).last_hidden_state, inside

    def _pass_of_group(self, block: Block, cache: EncodedCache, start: int, rows: Tensor) -> Tensor:
        """Hidden states [R, L, width] of some rows; zero past the context, where no row has text."""
        width = block.width if self.reach is None else min(block.width, self.reach - start)
        hidden = self._pass(Block.chain(block.ids[rows, :width], block.start[rows], start + width), cache, start, rows)
        return torch.nn.functional.pad(hidden, (0, 0, 0, block.width - width))

    def _pass(self, block: Block, cache: EncodedCache, start: int, rows: Tensor | None) -> Tensor:
        """Hidden states of all rows of the cache, or of `rows`. start: how many tokens all of them hold, unless the
        decoder takes positions.
        """
        cache.begin(block, rows)
        every = slice(None) if rows is None else rows
        most = None if self.reach is None else self.reach - 1  # of a draft's end, which is never used
        return self.parts[0](
            input_ids=block.ids,
            attention_mask=attention_mask(block, self.decoder.config._attn_implementation, self.model.dtype),
            **({"position_ids": block.positions.clamp(max=most)} if self.trees else {}),
            **self._given(cache.encoded[every], cache.inside[every]),
            use_cache=True,
            **{
                CACHE: EncoderDecoderCache(
                    SlotLayers(cache, start), cache.cross if rows is None else cache.cross_of(rows)
                )
            },
        ).last_hidden_state

    @torch.no_grad()
    def _try_out(self) -> None:
        with trying_out(self.model):
            got, expected = private_copy(self)._probe()
        check_logits(self.model, got, expected)

    def _probe(self) -> tuple[Tensor, Tensor]:
        """Logits [6, V] of three tokens read after 4 and 2 others, between wrong ones where trees are read, for two
        prompts, and the model's own.
        """
        text = torch.arange(7, device=self.device) * 5 % self.vocab_size
        text[0] = self._first
        target, given, prompts = self._of_probe(text)
        expected = [
            self.model(**one, decoder_input_ids=text[None], use_cache=False).logits[0, start : start + 3]
            for one, start in zip(given, (4, 2))
        ]
        cache, _ = target.open(prompts, 1, 16)
        start = torch.tensor([4, 2], device=self.device)
        target.read(Block.chain(text[None, :4].expand(2, -1), torch.zeros_like(start), 4), cache)
        paths = ((0,), (0, 1), (0, 2), (0, 2, 3), (0, 2, 4)) if self.trees else ((0,), (0, 1), (0, 1, 2))
        right = paths[-1]
        depths = torch.tensor([len(path) - 1 for path in paths], device=self.device).expand(2, -1)
        among = [[column in path for column in range(len(paths))] for path in paths]
        ancestors = torch.tensor(among, device=self.device).expand(2, -1, -1) if self.trees else None
        ids = text[start[:, None] + depths]
        ids[:, [column for column in range(len(paths)) if column not in right]] = self._first
        block = Block(ids=ids, start=start, depths=depths, ancestors=ancestors, end=4 + len(paths))
        return self.logits(target.read(block, cache)[:, [*right]]).flatten(0, 1), torch.cat(expected)

    def _of_probe(self, text: Tensor) -> tuple[EncoderDecoderTarget, list[dict[str, Any]], Sequence[NDArray[np.int64]]]:
        """The target that reads two prompts, what the model's own forward takes as each, and the prompts."""
        if self.model.main_input_name == "input_ids":
            prompts = [np.arange(length) * 7 % self.vocab_size for length in (5, 3)]
            return self, [{"input_ids": torch.from_numpy(one)[None].to(self.device)} for one in prompts], prompts
        shape = 2, 5, self.model.config.d_model
        states = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(self.device, self.model.dtype)
        given = [{"encoder_outputs": BaseModelOutput(last_hidden_state=one[None])} for one in states]
        return self.of_states(states), given, [text[:4].cpu().numpy()] * 2


def _first_token(model: Any) -> int:
    for config in (model.config, getattr(model, "generation_config", None)):
        token = getattr(config, "decoder_start_token_id", None)
        if token is not None:
            return int(token)
    raise ValueError(
        f"{type(model).__name__}: expected decoder_start_token_id in the configuration, got none; "
        "set it to the first token of the decoder's text"
    )


def _scales_output(config: Any) -> bool:
    """Whether hidden states are scaled for output weights tied to the embedding: a setting of T5, always in UMT5."""
    return bool(getattr(config, "scale_decoder_outputs", config.model_type == "umt5"))
