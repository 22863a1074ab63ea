"""Which parts of a call are read with which rotary angles, and which calls cannot be drafted at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers.cache_utils import DynamicSlidingWindowLayer

from rescore.decode.engines.huggingface.caches import continues_states
from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.recurrent import RecurrentTarget
from rescore.decode.models.slot_cache import CACHE


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryStretch:
    """A part of every text.

    most  maximum new tokens of each row
    long  whether longrope takes its angles of long texts; None for other angles
    kept  whether keys and values of the stretch before stay as they were read, or are read again
    """

    most: int
    long: bool | None = None
    kept: bool = True


def stretches(call: GenerateCall, target: CausalLMTarget) -> list[RotaryStretch]:
    """The parts of a call. `generate` switches the angles of all rows at the step at which the longest one is long."""
    if target.angles is None:
        return [RotaryStretch(most=call.most)]
    short = max(0, target.angles.switch - call.longest + 1)
    if not short or short >= call.most:
        return [RotaryStretch(most=call.most, long=not short)]
    kept = not _reads_again(call, target)
    return [RotaryStretch(most=short, long=False), RotaryStretch(most=call.most - short, long=True, kept=kept)]


def rounds_by_pass(model: Any) -> str | None:
    """Why no model reads tokens together as one by one whose layers scale what they read by all tokens of a pass."""
    dynamic = (type(one) for one in model.modules() if ".quantized.dynamic" in type(one).__module__)
    found = next(dynamic, None)
    return None if found is None else f"{found.__module__}.{found.__name__} rounds by all tokens of a pass"


def why_undrafted(
    call: GenerateCall, target: CausalLMTarget, every_state: bool, given: Mapping[str, Any]
) -> str | None:
    """Why the model's own loop decodes a call; None if drafts give the same text.

    every_state: whether the drafter must read every token itself.
    """
    if isinstance(target, RecurrentTarget) and call.cache is not None and not continues_states(call.cache):
        return f"{CACHE} of a model with recurrent state does not keep all tokens of attention layers"
    length = call.longest + call.most - 1  # the last token is not read
    if max(call.pads) == call.ids.shape[1]:
        return f"row {call.pads.index(max(call.pads))} is padding alone"
    original = getattr(target.config, "max_position_embeddings", None)
    if "dynamic" in target.rope and original is not None and length > original:
        return f"rope_type 'dynamic' takes other angles at every step past {original} positions"
    if target.reach is not None and length > target.reach and _table_grows(target):
        return f"the model computes more rows of its table for texts past its {target.reach} positions"
    window = _window_left_over(target, given)
    if window is not None and call.ids.shape[1] + call.most > window:
        return f"{CACHE} keeps {window} tokens (sliding_window), which the family does not expect"
    parts = stretches(call, target)
    spans = call.cache is not None or call.scores or call.logits or (every_state and parts[-1].kept)
    held = 0 if call.cache is None else call.cache.get_seq_length()
    if spans and len(parts) > 1 or parts[0].long and held and _reads_again(call, target):
        return "longrope switches its angles within the text, and a cache, scores or heads span the switch"
    return None


def _reads_again(call: GenerateCall, target: CausalLMTarget) -> bool:
    """Whether the whole texts are read again when the angles switch, as by Phi-3. It counts the padding, so that it
    does so too early if no row is without.
    """
    return not min(call.pads) and target.reads_again


def _table_grows(target: CausalLMTarget) -> bool:
    """Whether a table of sines is made anew where a text outgrows it, by the length of the cache (XGLM)."""
    return any(hasattr(module, "make_weights") for module in target.decoder.modules())


def _window_left_over(target: CausalLMTarget, given: Mapping[str, Any]) -> int | None:
    """The window of the cache that `generate` made from a field that the family does not use."""
    layers = getattr(given.get(CACHE), "layers", ())
    windows = [layer.sliding_window for layer in layers if type(layer) is DynamicSlidingWindowLayer]
    return min(windows) if windows and not target.slides else None
