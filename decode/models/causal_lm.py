"""Hugging Face causal language models as targets, through their public interfaces.

A pass gives the base decoder positions by depth, a mask per token and a cache by slots; the family's own code does the
rest. Three configuration fields say how some families scale or cap logits. When a target is made, a self-test compares
a few tokens, read as ragged rows and a tree, with the model's own forward pass. A family that passes needs no code
here; one that fails is rejected.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.decoder_layers import DecoderLayers, LongRope, PassState, is_rotary, with_attributes
from rescore.decode.models.fixed_passes import FixedPasses, why_eager
from rescore.decode.models.model_check import (
    LONG,
    check_attention_alone,
    check_logits,
    check_model,
    context_of,
    is_compiled,
    longest_of,
    reads_field,
    rope_types,
    switch_of,
    trying_out,
    vocab_size_of,
)
from rescore.decode.models.model_state import OfModel
from rescore.decode.models.private_copy import private_copy
from rescore.decode.models.slot_cache import CACHE, Form, SlotCache, SlotLayers, SlotStorage, attention_mask
from rescore.decode.models.target import Block
from rescore.lattice.checked import whole

FULL, SLIDING = "full_attention", "sliding_attention"
_PROBE_WINDOW = 3
_SCALES = {
    "logit_scale": lambda logits, scale: logits * scale,  # Cohere
    "logits_scaling": lambda logits, scale: logits / scale,  # Granite
    "final_logit_softcapping": lambda logits, cap: torch.tanh(logits / cap) * cap,  # Gemma
}
"""Fields that say how some families change logits."""


class MaskTable:
    """Stands for a layer's bool [1, 1, C, C]; any cut of it is what the block of a pass sees, within `window`
    positions.
    """

    def __init__(self, window: int, state: PassState):
        self.window, self.state = window, state

    def __getitem__(self, cut: Any) -> Tensor:
        return self.state.read.seen(self.window)


def with_mask_tables(module: Any, state: PassState) -> Any:
    """The module with a `MaskTable` in place of every table; the module itself if it has none."""

    def replacements(part: Any) -> dict[str, MaskTable]:
        windows = {name: _window_of(buffer) for name, buffer in part._buffers.items()}
        return {name: MaskTable(window, state) for name, window in windows.items() if window}

    return with_attributes(module, replacements)


def _window_of(buffer: Tensor | None) -> int:
    """The positions that a token sees in a causal table, itself included; 0 if the buffer is none."""
    if buffer is None or buffer.dtype != torch.bool or buffer.dim() != 4 or buffer.shape[2] != buffer.shape[3]:
        return 0
    window = int(buffer[0, 0, -1].sum())
    causal = torch.ones_like(buffer).tril().triu(1 - window)
    return window if torch.equal(buffer, causal) else 0


class CausalLMTarget(OfModel):
    """A causal language model of transformers as a `Target`.

    context is the configuration's max_position_embeddings. Rotary models can compute past it, but were not made for it;
    raise the field to do so. Where rotary angles change with the length of the text (longrope), it is the length up to
    which they do not, so that a text has one reading; a text that is generated may go on up to `longest` (`Switching`).
    `angles` chooses the angles, and is None elsewhere.

    reach is the number of positions that it can read: all of a table, any number of rotary ones, which is None.

    decoder  runs in place of the model's own and must give the same states; None: the model's own

    planes  what caches of the model store (`SlotStorage`)
    causal  whether prompts are read without a mask, as the model's own pass does with sdpa
    widest  the most tokens of a chain that a pass with masks reads at once
    fixed   on a GPU, reads drafts in passes of fixed shape; None: they are read as they are
    eager   on a GPU, why there is no `fixed`
    """

    trees = True
    reads_back = True
    eager: str | None = None
    widest = 512

    def __init__(self, model: Any, decoder: Any = None):
        check_model(model, encoder_decoder=False)
        self._model = model
        self.decoder = model.get_decoder() if decoder is None else decoder
        self.config = model.config.get_text_config(decoder=True)
        self._kinds = self._attention_kinds()
        self._state = PassState()
        self.angles: LongRope | None = None
        # Rotary parameters of a family that has tables are left over from another one.
        self.rope = rope_types(self.config) if reads_field(model, "rope_") else {}
        if LONG in self.rope and is_rotary(self.decoder):
            self.decoder, self.angles = LongRope.in_decoder(self.decoder, switch_of(self.rope), self._state)
        without, self.decoder = self.decoder, with_mask_tables(self.decoder, self._state)
        self._has_tables = self.decoder is not without
        self._output = model.get_output_embeddings()
        self.vocab_size = vocab_size_of(model, self._output)
        self.context: int | None = context_of(self.config, self.rope)
        self.longest: int | None = longest_of(self.config)
        self.reach = None if is_rotary(self.decoder) else self.context
        self._taps: tuple[int, ...] = ()
        self._scaled_by = [
            name
            for name in _SCALES
            if getattr(self.config, name, None) and reads_field(model, name, around=model.get_decoder())
        ]
        self.planes: dict[Form, int] = {}
        self.fixed: FixedPasses | None = None
        self.causal = self.config._attn_implementation == "sdpa"
        self._try_out()
        if self.device.type == "cuda":
            self._fix(FixedPasses(self))

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def reading(self) -> str | None:
        """How drafts are read, in a sentence, on a GPU and where the model is compiled; None elsewhere."""
        said = []
        if self.device.type == "cuda":
            eager = self.eager if self.fixed is None else self.fixed.eager
            said += [
                f"passes run kernel by kernel, since {eager}" if eager else "passes replay CUDA graphs of a few shapes"
            ]
        if is_compiled(self.model):
            said += ["the decoder is run directly, without what torch.compile made of the model around it"]
        return "; ".join(said) or None

    @property
    def switch(self) -> int | None:
        return self.angles.switch if self.angles is not None and self._state.long is None else None

    @property
    def reads_again(self) -> bool:
        name = "original_max_position_embeddings"
        code = inspect.unwrap(type(self.model).prepare_inputs_for_generation).__code__
        return hasattr(self.model.config, name) and name in (*code.co_names, *code.co_consts)

    @property
    def slides(self) -> bool:
        """Whether some layers attend to a window only."""
        return SLIDING in self._kinds

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[SlotCache, list[NDArray[np.int64]]]:
        rows = len(prompts) * copies
        if self.fixed is not None:
            return self.fixed.open(rows, length), list(prompts)
        self.narrow()
        return SlotCache(rows, length, storage=SlotStorage(rows, length, self.planes)), list(prompts)

    def read(self, block: Block, cache: SlotCache) -> Tensor:
        return self._pass(block, cache, SlotLayers(cache))

    def _pass(
        self,
        block: Block,
        cache: SlotCache,
        layers: SlotLayers,
        *,
        rows: Tensor | None = None,
        embeddings: Tensor | None = None,
    ) -> Tensor:
        """Last hidden states of a block. rows: as in `SlotCache.begin`; embeddings: in place of the block's ids."""
        if not isinstance(cache, SlotCache):
            raise TypeError(
                f"expected the cache from open(), got {type(cache).__name__}; "
                "caches of transformers cannot be rolled back row by row"
            )
        self.begin(block)
        if block.ancestors is None and block.width > self.widest and self._takes_masks(block):
            return torch.cat([self._read(part, cache, layers, rows) for part in block.parts(self.widest)], dim=1)
        return self._read(block, cache, layers, rows, embeddings)

    def _read(
        self,
        block: Block,
        cache: SlotCache,
        layers: SlotLayers,
        rows: Tensor | None,
        embeddings: Tensor | None = None,
    ) -> Tensor:
        if cache.grain > 1 and not block.is_causal:
            block = replace(block, end=cache.length(block.end))
        cache.begin(block, rows)
        self._state.block = block
        # What follows a text's last token is never used, so the end of a draft may have any position.
        positions = cache.positions(block)
        if self.reach is not None:
            positions = positions.clamp(max=self.reach - 1)
        states = self._decoder_for(block)(
            **({"input_ids": block.ids} if embeddings is None else {"inputs_embeds": embeddings}),
            position_ids=positions,
            attention_mask=self.masks(block),
            use_cache=True,
            **{CACHE: layers},
        ).last_hidden_state
        return (
            torch.cat([states, *(self._state.tapped[layer] for layer in self._taps)], dim=-1) if self._taps else states
        )

    def _decoder_for(self, block: Block) -> Any:
        return self.parts[0]

    def begin(self, block: Block) -> None:
        """Names what the decoder reads next on this thread, for its parts that ask."""
        self._state.block = self._state.whole = block

    def logits(self, hidden: Tensor) -> Tensor:
        logits = self.parts[1](hidden[..., : self.config.hidden_size] if self._taps else hidden)
        for name in self._scaled_by:
            logits = _SCALES[name](logits, getattr(self.config, name))
        return logits

    def tap(self, layers: Sequence[int]) -> None:
        """From now on states [.., H] have those behind these layers next to them, [.., (1 + f) H]: the residual stream
        that so many layers have made. ValueError unless each is from 1 to their number.
        """
        found = DecoderLayers.of(self.decoder)
        parts = found.layers
        for layer in layers:
            place = whole(layer, "layers", 1, len(parts)) - 1
            parts[place] = self._state.tapping(parts[place], layer)
        self.decoder, self._taps = found.replaced(parts), tuple(layers)
        self._try_out()
        if self.fixed is not None:
            self._fix(FixedPasses(self))

    def masks(self, block: Block) -> Any:
        """The attention masks of `mask`: one if all layers are alike, else one per kind."""
        masks = {kind: self.mask(block, window, self.model.dtype) for kind, window in self._windows.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def mask(self, block: Block, window: int | None, dtype: torch.dtype) -> Tensor | None:
        """As `attention_mask`; None where tokens see all before them, which sdpa does by itself."""
        if self._sees_all(block, window):
            return None
        return attention_mask(block, self.config._attn_implementation, dtype, window)

    def _takes_masks(self, block: Block) -> bool:
        return self._has_tables or not all(self._sees_all(block, window) for window in self._windows.values())

    def _sees_all(self, block: Block, window: int | None) -> bool:
        return self.causal and block.is_causal and (window is None or block.width < window)

    @property
    def _windows(self) -> dict[str, int | None]:
        return {kind: self.config.sliding_window if kind == SLIDING else None for kind in self._kinds}

    def _attention_kinds(self) -> tuple[str, ...]:
        """Kinds of attention of the layers; ValueError if some layers have other state."""
        check_attention_alone(self.model)
        return _layer_kinds(self.model, self.config)

    @torch.no_grad()
    def _try_out(self) -> None:
        """ValueError unless a private copy, with narrow windows, reads a few tokens as the model itself does; if need
        be with masks alone, which may be made by what calls the decoder.
        """
        try:
            self._try()
        except ValueError:
            if not self.causal:
                raise
            self.causal = False
            self._try()

    def _try(self) -> None:
        trial = private_copy(self, window=_PROBE_WINDOW)
        trial.fixed = self.fixed and self.fixed.of(trial)
        with trying_out(self.model):
            got, expected = trial._probe()
        self._check(got, expected)
        self.planes = trial.planes

    def _fix(self, passes: FixedPasses) -> None:
        """Reads drafts in passes of fixed shape from now on, unless something is against it or the self-test fails."""
        if self._has_tables:
            self.eager = "masks are cut from tables"
        elif self.angles is not None:
            self.eager = "longrope's angles change with the text"
        self.eager = self.eager or why_eager(self.decoder, self.model)
        if self.eager:
            return
        self.fixed = passes
        try:
            self._try_out()
        except ValueError as error:
            self.fixed, self.eager = None, str(error)

    def _check(self, got: Tensor, expected: Tensor) -> None:
        """ValueError unless the logits of `_probe` agree."""
        check_logits(self.model, got, expected)

    def _probe(self) -> tuple[Tensor, Tensor]:
        """Logits [6, V] of a text's tokens, read after 6 and 4 tokens in a tree with two wrong branches, and the
        model's own.
        """
        text = torch.arange(9) * 7 % self.vocab_size
        expected = self.model(input_ids=text[None].to(self.device), use_cache=False).logits[0]
        cache, prompts = self.open([text[:6].numpy()] * 2, 1, 16)
        self.read(Block.of_texts(prompts, [0, 0], self.device), cache)
        self.planes = cache.storage.planes
        start = torch.tensor([6, 4])
        ids = text[start[:, None] + torch.tensor([0, 2, 1, 0, 2])]
        parents = ((0,), (0, 1), (0, 2), (0, 2, 3), (0, 2, 4))  # columns 1 and 3 are the wrong ones
        ancestors = torch.tensor([[column in path for column in range(5)] for path in parents]).expand(2, -1, -1)
        depths = torch.tensor([len(path) - 1 for path in parents]).expand(2, -1)
        tree = Block(ids=ids, start=start, depths=depths, ancestors=ancestors, end=11)
        hidden = self.fixed.read(tree, cache).hidden if self.fixed else self.read(tree.to(self.device), cache)
        return self.logits(hidden[:, [0, 2, 4]]).flatten(0, 1), expected[[6, 7, 8, 4, 5, 6]]


def _layer_kinds(model: Any, config: Any) -> tuple[str, ...]:
    """Kinds of attention of the layers; ValueError if one is neither full nor sliding."""
    if getattr(config, "cross_attention_layers", None):
        check_kinds(model, [FULL, "cross-attention to images"])
    window = getattr(config, "sliding_window", None) and reads_field(model, "sliding_window")
    named = getattr(config, "layer_types", None) if reads_field(model, "layer_types") else None
    kinds = sorted(set(named or [SLIDING if window else FULL]))
    check_kinds(model, kinds)
    return tuple(kinds)


def check_kinds(model: Any, kinds: Sequence[str]) -> None:
    """ValueError unless all of a model's layers have full or sliding attention."""
    if strange := sorted(set(kinds) - {FULL, SLIDING}):
        raise ValueError(
            f"{type(model).__name__}: expected layers of full or sliding attention, got {', '.join(strange)}; "
            "their state cannot be masked or rolled back"
        )
