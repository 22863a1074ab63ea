"""Parses and validates one call of `generate`. Unsupported options raise an error that names them.

transformers calls a `custom_generate` object with prompts, processors, criteria, configuration and cache, but drops the
streamer, the assistant model and synced_gpus (5.23; `GenerationMixin._extract_generation_mode_kwargs`). Without the
streamer its reader would wait forever, so the dropped arguments are read from the stack frame of the `generate` call
whose `custom_generate` is our object. The same function takes the tokenizer out of the call before it asks for the
object's signature, and then loses it, so `stop_strings` would find none: the signature puts it back. No other frame is
read.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Cache, GenerationMixin
from transformers.generation import GenerationMode
from transformers.generation.configuration_utils import ALL_STATIC_CACHE_IMPLEMENTATIONS as STATIC

from rescore.decode.engines.huggingface.caches import checked_cache, continues_states
from rescore.decode.models.model_check import attends, is_recurrent
from rescore.decode.models.slot_cache import CACHE

TAKEN = ("tokenizer", "assistant_tokenizer")
DROPPED = ("streamer", "assistant_model", "synced_gpus")
_HERE = "custom_generate"
_REMEDIES = {
    "contrastive_search": "leave penalty_alpha out",
    "assisted_generation": "leave assistant_model, prompt_lookup_num_tokens, use_mtp and assistant_early_exit out; "
    "a draft model is given to Drafting",
    "dola_generation": "leave dola_layers out",
}
_REPLACING = ("inputs_embeds", "labels")
_BEAMS = "give num_beams=1, without constraints"
_KNOWN = {
    "attention_mask",
    "position_ids",
    CACHE,
    "use_cache",
    "logits_to_keep",
    "output_attentions",
    "output_hidden_states",
}
_ENCODED = {"encoder_outputs", "decoder_attention_mask"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerateCall:
    """The inputs and options of one call.

    ids         prompts int64 [B, n], left-padded
    pads        number of padding ids per row
    most        maximum new tokens
    processors, criteria  those of `generate`, in its order
    fill        padding id after a text that has ended; None: `generate` has no end-of-text token, so all rows end
                together
    spare       the id that fills a row which ends before the others all the same
    ends        the tokens that end a text
    sampled     whether tokens are sampled
    cache       the cache to fill, and to start from unless `past` is there; None if the caller wants none
    shown       names of arguments with images or sound, which the model's own forward reads with the prompts
    shift       what is added to the positions of each row's new tokens: those of an image share some
    past        the cache after the prompts, if that forward has read them, and its logits [B, V] behind them
    scores, logits, wrapped  outputs to return: processed scores, raw scores, a dict
    """

    ids: Tensor
    pads: list[int]
    most: int
    processors: list[Any]
    criteria: list[Any]
    fill: int | None
    spare: int
    ends: tuple[int, ...]
    sampled: bool
    cache: Cache | None
    shown: tuple[str, ...]
    shift: NDArray[np.int64]
    past: tuple[Cache, Tensor] | None = None
    scores: bool
    logits: bool
    wrapped: bool

    @classmethod
    def of(
        cls,
        model: Any,
        ids: Tensor,
        processors: Any,
        criteria: Any,
        config: Any,
        dropped: Mapping[str, Any],
        kwargs: Mapping[str, Any],
    ) -> GenerateCall:
        """Reads the arguments of `generate`'s decoding method; ValueError for unsupported ones."""
        _check_mode(config, dropped)
        _check_outputs(config)
        shown = _shown(model, kwargs)
        wrapped = bool(config.return_dict_in_generate)
        limit = criteria.max_length if criteria.max_length is not None else config.max_length
        most = max(1, limit - ids.shape[1])  # generate decodes a token before it checks the length
        cache = _cache(model, ids, kwargs, config, wrapped, most)
        pads = _pads(model, ids, kwargs)
        return cls(
            ids=ids,
            pads=pads,
            most=most,
            processors=list(processors),
            criteria=list(criteria),
            fill=_fill(criteria, config),
            spare=0 if config._pad_token_tensor is None else int(config._pad_token_tensor),
            ends=() if config._eos_token_tensor is None else tuple(config._eos_token_tensor.flatten().tolist()),
            sampled=bool(config.do_sample),
            cache=cache,
            shown=shown,
            shift=_shift(model, ids, pads, kwargs, shown),
            scores=wrapped and bool(config.output_scores),
            logits=wrapped and bool(config.output_logits),
            wrapped=wrapped,
        )

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return self.ids.shape[1] - min(self.pads)

    @property
    def batch(self) -> int:
        return self.ids.shape[0]

    def prompts(self) -> list[NDArray[np.int64]]:
        """Returns the rows without their padding."""
        return [row[pad:].cpu().numpy() for row, pad in zip(self.ids, self.pads)]


def _check_mode(config: Any, dropped: Mapping[str, Any]) -> None:
    mode = config.get_generation_mode(dropped.get("assistant_model"))
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE):
        name = mode.value.replace("_", " ")
        raise ValueError(
            f"{_HERE}: expected greedy decoding or sampling, got {name}; {_REMEDIES.get(mode.value, _BEAMS)}, "
            "or leave custom_generate out"
        )
    if dropped.get("synced_gpus"):
        raise ValueError(
            f"{_HERE}: expected one process, got synced_gpus, under which all processes must make the same number of "
            "passes; leave it out"
        )
    wanted = config.cache_implementation or "dynamic"
    if wanted != "dynamic" and wanted not in STATIC or "offloaded" in wanted:
        raise ValueError(
            f"{_HERE}: expected cache_implementation None, 'dynamic' or 'static', got {wanted!r}, whose "
            "keys and values are quantised or offloaded; leave it out"
        )
    if config.prefill_chunk_size is not None:
        raise ValueError(
            f"{_HERE}: expected prefill_chunk_size None, got {config.prefill_chunk_size}: "
            "prompts are read in one pass; leave it out"
        )


def _shown(model: Any, kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments with images or sound, and what goes with them; ValueError for others, which are not text."""
    known = _KNOWN | _ENCODED if model.config.is_encoder_decoder else _KNOWN
    more = {name: value for name, value in kwargs.items() if name not in known and not _is_nothing(model, name, value)}
    taken = inspect.signature(model.forward).parameters if _takes_more_than_text(model) else {}
    # What transformers has made of `pixel_values` is named by what it is.
    kinds = {name: f" ({', '.join(value)})" for name, value in more.items() if isinstance(value, Mapping)}
    unknown = sorted(name + kinds.get(name, "") for name in more if name not in taken or name in _REPLACING)
    if unknown:
        raise ValueError(
            f"{_HERE}: expected input_ids and attention_mask, and images or sound as the model's forward takes them, "
            f"got {', '.join(unknown)}; leave it out, or leave custom_generate out"
        )
    return tuple(more)


def _takes_more_than_text(model: Any) -> bool:
    kinds = getattr(model, "input_modalities", ())  # a string where it is text alone
    return not isinstance(kinds, str) and len(kinds) > 1


def _is_nothing(model: Any, name: str, value: Any) -> bool:
    """Whether an argument is none, or says of a text that it has no images or sound, as transformers and its processors
    say of every text.
    """
    if isinstance(value, Mapping):
        return all(part is None for part in value.values())
    marks = name == "mm_token_type_ids" or name == "token_type_ids" and _takes_more_than_text(model)
    return value is None or marks and torch.is_tensor(value) and not value.any()


def _check_outputs(config: Any) -> None:
    for name in ("output_attentions", "output_hidden_states"):
        if getattr(config, name):
            raise ValueError(
                f"{_HERE}: {name}: not supported, since verification passes read other tokens than plain decoding; "
                "leave it out, or call the model on the finished text"
            )


def _pads(model: Any, ids: Tensor, kwargs: Mapping[str, Any]) -> list[int]:
    """Returns the number of leading ids per row that the attention mask excludes."""
    name = "decoder_attention_mask" if model.config.is_encoder_decoder else "attention_mask"
    mask = kwargs.get(name)
    attended = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.to(ids.device).bool()
    if attended.shape != ids.shape:
        raise ValueError(f"{name}: expected the shape of input_ids, {list(ids.shape)}, got {list(attended.shape)}")
    pads = (~attended).sum(dim=1)
    left = torch.arange(ids.shape[1], device=ids.device) >= pads[:, None]
    for row in range(len(ids)):
        if bool((attended[row] != left[row]).any()):
            raise ValueError(
                f"{name}: expected padding on the left only, got another mask in row {row}; "
                "set tokenizer.padding_side = 'left'"
            )
    placed = "position_ids" in inspect.signature(model.forward).parameters
    if pads.any() and not placed and attends(model.config):
        raise ValueError(
            f"attention_mask: expected no padding for {type(model).__name__}, whose generate counts it as positions, "
            f"got {int(pads.max())} ids of it; decode prompts of different lengths one by one"
        )
    return pads.tolist()


def _shift(
    model: Any, ids: Tensor, pads: Sequence[int], kwargs: Mapping[str, Any], shown: Sequence[str]
) -> NDArray[np.int64]:
    """What is to be added to the positions of each row's new tokens [B]. `generate` counts on from the last position of
    the prompt; of positions of several kinds, those of the last kind count. ValueError if text alone is given others
    than 0, 1, .., or behind images of earlier turns.
    """
    positions = kwargs.get("position_ids")  # [B, n], or of several kinds [k, B, n]
    if positions is None:
        return np.zeros(len(ids), np.int64)
    if positions.shape[-1] != ids.shape[1]:
        raise ValueError(
            f"position_ids: expected one for each of {ids.shape[1]} ids, got {positions.shape[-1]}; leave them out, "
            "and token_healing, which shortens the ids alone"
        )
    planes = positions.to(ids.device).reshape(-1, *positions.shape[-2:]).expand(-1, *ids.shape)
    own = torch.arange(ids.shape[1], device=ids.device) - torch.tensor(pads, device=ids.device)[:, None]
    beyond = planes - own
    shift = beyond[-1, :, -1]
    usual = (beyond == 0) | (beyond == shift[:, None]) & _takes_more_than_text(model)
    if not shown and not bool(usual[..., own >= 0].all()):
        raise ValueError(
            "position_ids: expected those of the attention mask, 0, 1, .. after the padding, got others; leave them out"
        )
    return shift.cpu().numpy()


def _fill(criteria: Any, config: Any) -> int | None:
    """Returns the id that pads finished rows; like `generate`, None unless some criterion has an `eos_token_id`."""
    if not any(hasattr(one, "eos_token_id") for one in criteria):
        return None
    if config._pad_token_tensor is None:
        raise ValueError(
            "pad_token_id: expected an id, since a stopping criterion has an eos_token_id, got None; "
            "give generate a pad_token_id"
        )
    return int(config._pad_token_tensor)


def _cache(model: Any, ids: Tensor, kwargs: Mapping[str, Any], config: Any, wrapped: bool, most: int) -> Cache | None:
    """Returns the cache to fill: the user's own, or the one that `generate` made if the result is to include it.

    most: new tokens
    """
    cache = kwargs.get(CACHE)
    if cache is None or model.config.is_encoder_decoder or not (wrapped or getattr(cache, "_is_user_defined", False)):
        return None
    states = is_recurrent(model.config)
    if states and not continues_states(cache):
        return cache  # the model's own loop continues and fills it: `why_undrafted`
    held = checked_cache(cache, len(ids), ids.shape[1] + most - 1, states=states)  # the last token is not read
    mask = kwargs.get("attention_mask")
    whole = getattr(config, "_mask_length", ids.shape[1]) if mask is None else mask.shape[1]
    if held and (held >= ids.shape[1] or whole != ids.shape[1]):
        raise ValueError(
            f"{CACHE}: expected input_ids to hold the cache's {held} tokens and at least one more, "
            f"got {ids.shape[1]}; give all ids of the text"
        )
    return cache


def dropped_arguments(custom: object) -> dict[str, Any]:
    """Returns the DROPPED arguments given to the `generate` call that runs `custom`; empty outside `generate`."""
    frame = _frame_of(inspect.unwrap(GenerationMixin.generate).__code__)
    if frame is None or frame.f_locals.get("custom_generate") is not custom:
        return {}
    return {name: frame.f_locals[name] for name in DROPPED if frame.f_locals.get(name) is not None}


def _frame_of(code: CodeType) -> FrameType | None:
    """The innermost frame of a function, which torch.compile may have rewritten."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) != (code.co_filename, code.co_name):
        frame = frame.f_back
    return frame


class GivesBackTokenizer:
    """The `__signature__` of an object given as `custom_generate`.

    Read by transformers, it returns the tokenizer to the arguments from which the ones that it names are picked.
    """

    def __get__(self, custom: Any, kind: type) -> inspect.Signature:
        if custom is None:
            raise AttributeError("__signature__")  # the class has its own
        frame = _frame_of(GenerationMixin._extract_generation_mode_kwargs.__code__)
        taken = frame.f_locals.get("generation_mode_kwargs") if frame is not None else None
        if frame is not None and taken and frame.f_locals.get("custom_generate") is custom:
            frame.f_locals["kwargs"].update({name: taken[name] for name in TAKEN if name in taken})
        return inspect.signature(type(custom).__call__.__get__(custom))
