"""Whether drafts may be read without the model's own `prepare_inputs_for_generation` and `forward`.

Drafts are read by the model's decoder, with ids, positions and a mask. Prompt tuning, hooks and the like change what
`generate` gives to the decoder, or what it gets back, so each call is checked: what the model makes of its inputs, by
asking it (microseconds), and what it makes of tokens read together, by a few passes, once per state of the model.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.generation import (
    LogitsProcessor,
    LogitsProcessorList,
    MaxLengthCriteria,
    StoppingCriteriaList,
)

from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.model_check import check_logits, trying_out
from rescore.decode.models.private_copy import private_copy
from rescore.decode.models.recurrent import RecurrentTarget
from rescore.decode.models.slot_cache import CACHE
from rescore.decode.models.target import Block

_READ = ("attention_mask", "position_ids")
_FREE = {"use_cache", "logits_to_keep", "return_dict", "cache_position"}  # change no token's logits
_ROW = 16  # ids per row when all of a vocabulary are prepared
_EMBEDDED = 1024  # ids that are embedded at once
_PROMPT, _STEPS = 5, 3
_WRONG = 1e-4  # least difference of a logit that is not rounding


def check_prepared(model: Any, target: CausalLMTarget, ids: Tensor, given: Mapping[str, Any]) -> None:
    """ValueError if `prepare_inputs_for_generation` changes the inputs of a call, or any id of the vocabulary."""
    inputs = {name: given[name] for name in _READ if given.get(name) is not None}
    every = torch.arange(-(-target.vocab_size // _ROW) * _ROW, device=ids.device)
    every = every.clamp(max=target.vocab_size - 1).view(-1, _ROW)
    for tokens, more in ((ids, inputs), (every, _positions(given, _ROW))):
        expected = {"input_ids": tokens, **more, CACHE: _new_cache(target)}
        got = model.prepare_inputs_for_generation(
            **expected, use_cache=True, is_first_iteration=True, next_sequence_length=None
        )
        changed = sorted(name for name, value in got.items() if not _is_given(name, value, expected))
        changed += sorted(name for name in expected if name != CACHE and got.get(name) is None and name not in changed)
        if changed:
            method = model.prepare_inputs_for_generation
            origin = getattr(getattr(method, "__func__", method), "__globals__", {}).get("__name__", "another module")
            raise ValueError(
                f"{type(model).__name__}: expected prepare_inputs_for_generation to pass inputs on, "
                f"got other {', '.join(changed)} from {origin}, "
                "which drafts would be read without (prompt tuning, own positions or embeddings); "
                "leave custom_generate out"
            )


def _positions(given: Mapping[str, Any], size: int) -> dict[str, Tensor]:
    """Those of a row of `size` tokens, if a call has any: int64 [.., 1, size] in the form of the given ones."""
    positions = given.get("position_ids")
    if positions is None:
        return {}
    return {"position_ids": torch.arange(size, device=positions.device).expand(*positions.shape[:-2], 1, size)}


def _is_given(name: str, value: Any, expected: Mapping[str, Any]) -> bool:
    if value is None or name in _FREE:
        return True
    other = expected.get(name)
    if torch.is_tensor(value) and torch.is_tensor(other):
        return value.shape == other.shape and torch.equal(value.to(other.device), other)
    return value is other


def check_steps(model: Any, target: CausalLMTarget, config: Any, given: Mapping[str, Any]) -> None:
    """ValueError unless tokens read together have the logits that `generate` has for them, one by one. Nothing that
    others read is changed: private copies of model and target are tried.
    """
    target = private_copy(target)
    model = target.model
    if hooks := len(model._forward_hooks) + len(model._forward_pre_hooks):
        raise ValueError(
            f"{type(model).__name__}: expected no forward hooks on the model itself, got {hooks}: drafts are read "
            "by its decoder and its output layer; put them there, or remove them"
        )
    _check_forward(model, target.vocab_size)
    text = (torch.arange(_PROMPT + _STEPS, device=target.device) + 0.5) * target.vocab_size / (_PROMPT + _STEPS)
    text = text.long()
    _check_output(model, target, text)
    with trying_out(model):
        expected = _step_by_step(target, text, config, given)
        cache, _ = target.open([np.zeros(_PROMPT, np.int64)], 1, len(text))
        parts = [
            target.read(Block.chain(text[None, start:stop], torch.tensor([start], device=text.device), stop), cache)
            for start, stop in ((0, _PROMPT), (_PROMPT, len(text)))
        ]
        got = target.logits(torch.cat(parts, dim=1)[0, _PROMPT - 1 :])
    check_logits(model, got, expected)


class _Reached(BaseException):
    """Ends a pass where the decoder begins."""


def _check_forward(model: Any, vocab_size: int) -> None:
    """ValueError unless the model's `forward` hands every id of the vocabulary to its decoder as it is, or as the input
    layer embeds it, as models do that also read images.

    Nothing more is computed, since each pass ends at the decoder. What depends on the order of ids is not found.
    """
    read: list[Any] = []

    def reached(decoder: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        read[:] = [*given[:1], named.get("input_ids"), named.get("inputs_embeds")]
        raise _Reached

    def hands_on(ids: Tensor) -> bool:
        read.clear()
        with suppress(_Reached):
            model(input_ids=ids, use_cache=True)
        got = [one for one in read if one is not None]
        if len(got) != 1:
            return False
        expected = ids if got[0].shape == ids.shape else model.get_input_embeddings()(ids)
        return torch.equal(got[0].to(ids.device), expected)

    every = torch.arange(vocab_size, device=model.device)
    hook = model.get_decoder().register_forward_pre_hook(reached, with_kwargs=True, prepend=True)
    try:
        first = hands_on(every[None, :1])
        parts = every.split(vocab_size if read and read[-1] is None else _EMBEDDED)
        # as a prompt, and as single tokens
        if not (first and all(hands_on(part[None]) and hands_on(part[:, None]) for part in parts)):
            raise ValueError(
                f"{type(model).__name__}: expected forward to hand all {vocab_size} ids to the decoder as they "
                "are, got others, other embeddings or no call of it; drafts are read by the decoder and its output "
                "layer: leave custom_generate out, or change ids in the embedding"
            )
    finally:
        hook.remove()


def _check_output(model: Any, target: CausalLMTarget, text: Tensor) -> None:
    """ValueError unless `forward` makes of the decoder's states what the target makes of them, id by id. A change after
    ids alone that are not in `text` is not found.
    """
    states: list[Tensor] = []
    hook = model.get_decoder().register_forward_hook(lambda _, given, out: states.append(out.last_hidden_state))
    try:
        with trying_out(model), torch.no_grad():
            expected = model(input_ids=text[None], use_cache=False).logits.float()
            got = target.logits(states[0]).float()
    finally:
        hook.remove()
    wrong = 4 * torch.finfo(model.dtype).eps * expected.abs().amax(dim=-1, keepdim=True).clamp(min=1.0)
    if not bool(((got - expected).abs() <= wrong.clamp(min=_WRONG)).all()):
        at = int((got - expected).abs().nan_to_num(torch.inf).amax(dim=(0, 1)).argmax())
        raise ValueError(
            f"{type(model).__name__}: expected forward to return the model's own logits, got others, most of id {at}; "
            "drafts are read by the decoder and its output layer: give generate a logits_processor instead, or leave "
            "custom_generate out"
        )


def _step_by_step(target: CausalLMTarget, text: Tensor, config: Any, given: Mapping[str, Any]) -> Tensor:
    """Logits [1 + steps, V] of `generate`'s own loop, which is made to write `text` after its first tokens."""
    config = copy.copy(config)
    for name in ("return_dict_in_generate", "output_logits"):
        setattr(config, name, True)
    config.do_sample = config.output_scores = False
    inputs = {name: given[name] for name in ("logits_to_keep",) if name in given} | _positions(given, _PROMPT)
    out = type(target.model)._sample(
        target.model,
        text[None, :_PROMPT],
        LogitsProcessorList([_Writes(text)]),
        StoppingCriteriaList([MaxLengthCriteria(len(text) + 1)]),
        config,
        **{**inputs, "use_cache": True, "attention_mask": None, CACHE: _new_cache(target)},
    )
    return torch.cat(out.logits)


def _new_cache(target: CausalLMTarget) -> DynamicCache:
    """A cache that keeps all tokens and, for models that have any, recurrent states."""
    return DynamicCache(config=target.model.config) if isinstance(target, RecurrentTarget) else DynamicCache()


class _Writes(LogitsProcessor):
    """Makes a text the only choice."""

    def __init__(self, text: Tensor):
        self.text = text

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        at = input_ids.shape[1]
        only = torch.full_like(scores, -torch.inf)
        only[:, self.text[min(at, len(self.text) - 1)]] = 0.0
        return only
