"""Which Hugging Face models can be read in blocks: known cases by name, all others by a self-test.

And what configurations say of positions and states.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rescore.lattice.checked import foreign_errors
from rescore.lattice.extras import needed_for

with needed_for("a model of Hugging Face"):
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer, LinearAttentionCacheLayerMixin

ATTENTION = ("sdpa", "eager")
_WRONG = {torch.float64: 1e-3, torch.float32: 1e-3}
"""The largest relative error of logits attributed to rounding; a wrong mask or position causes far more."""
_WRONG_OF_SHORT_FLOATS = 0.1
LONG = "longrope"
_IN_BLOCKS = (
    "when it is read in blocks",
    "the family, a hook or an adapter ignores given masks or positions, looks at a token's place in a pass, or does "
    "more than the output layer to hidden states; or its forward runs in mixed precision",
)


def check_model(model: Any, encoder_decoder: bool) -> None:
    """ValueError unless the model is a language model on one device, whose attention takes a mask per token."""
    name = type(model).__name__
    if not hasattr(model, "get_output_embeddings") or not hasattr(model, "config"):
        raise TypeError(f"expected a Hugging Face model, got {name}")
    if bool(getattr(model.config, "is_encoder_decoder", False)) != encoder_decoder:
        kind, other = (
            ("an encoder-decoder", "CausalLMTarget") if encoder_decoder else ("a decoder alone", "EncoderDecoderTarget")
        )
        raise ValueError(f"{name}: expected {kind}, got a model of the other kind; use {other}")
    if not model.can_generate() or model.get_output_embeddings() is None:
        raise ValueError(
            f"{name}: expected a language model that generates, got one without a head for the next token; "
            "open it with AutoModelForCausalLM"
        )
    if getattr(getattr(model, "active_peft_config", None), "alora_invocation_tokens", None):
        raise ValueError(
            f"{name}: expected an adapter that all tokens pass, got aLoRA, active from its invocation tokens on; "
            "use the model's own generate"
        )
    if rounding := rounds_by_pass(model):
        raise ValueError(
            f"{name}: expected a model that reads tokens together as one by one, got one that does not: {rounding}"
        )
    if getattr(model.config.get_text_config(decoder=True), "use_bidirectional_attention", None) in (True, "all"):
        raise ValueError(
            f"{name}: expected tokens that see those before them, got a prompt that sees both ways "
            "(use_bidirectional_attention), which is not read yet"
        )
    alibi = getattr(model.config, "alibi", False) or getattr(getattr(model.config, "attn_config", None), "alibi", False)
    if alibi and reads_field(model, "alibi"):
        raise ValueError(
            f"{name}: expected explicit positions, got ALiBi, which counts the slots of a cache; "
            "trees and ragged rows would be misread"
        )
    implementation = model.config._attn_implementation
    if implementation not in ATTENTION:
        raise ValueError(
            f"{name}: expected attention that takes a mask per token ({' or '.join(ATTENTION)}), "
            f"got {implementation!r}; call model.set_attn_implementation('sdpa')"
        )
    if model.training and (noise := _noise(model)):
        raise ValueError(f"{name}: expected a model without noise, got {noise} in training mode; call model.eval()")
    devices = sorted({str(parameter.device) for parameter in model.parameters()})
    if len(devices) != 1 or devices == ["meta"]:
        raise ValueError(
            f"{name}: expected all weights on one device, got {', '.join(devices)}; "
            "open it without device_map or offloading"
        )


def is_compiled(model: Any) -> bool:
    """Whether torch.compile replaced what calls the model, or its `forward` or `generate`."""
    code = [vars(model).get(name) for name in ("forward", "generate")]
    return model._compiled_call_impl is not None or any(hasattr(one, "_torchdynamo_orig_callable") for one in code)


def rounds_by_pass(model: Any) -> str | None:
    """Why no model reads tokens together as one by one whose layers scale what they read by all tokens of a pass, or
    choose by them what they round (LLM.int8).
    """
    for layer in model.modules():
        kind = f"{type(layer).__module__}.{type(layer).__name__}"
        if ".quantized.dynamic" in kind:
            return f"{kind} rounds by all tokens of a pass"
        if kind.endswith(".Linear8bitLt") and (threshold := getattr(getattr(layer, "state", None), "threshold", 0)):
            return f"{kind} rounds by all tokens of a pass where some are past {threshold:g} (llm_int8_threshold)"
    return None


def _noise(model: Any) -> str | None:
    """What makes a model random in training mode: a field of its configuration, or a module. None if nothing does."""
    for config in (model.config, model.config.get_text_config()):
        for field, value in config.to_dict().items():
            if ("drop" in field or "jitter" in field) and isinstance(value, float) and value > 0:
                return f"{field} = {value:g}"
    return _dropout(model)


def _dropout(model: Any) -> str | None:
    """A module that is in training mode and random, also one that was added to a model in evaluation mode."""
    random = ((at, part) for at, part in model.named_modules() if part.training and getattr(part, "p", 0) > 0)
    return next((f"{at} with p = {part.p:g}" for at, part in random), None)


def check_attention_alone(model: Any) -> None:
    """ValueError if the model has state other than keys and values."""
    if getattr(model, "_is_stateful", False):
        known = is_recurrent(model.config) and not model.config.is_encoder_decoder
        remedy = "make its target with causal_target" if known else "leave custom_generate out, and drafts"
        raise ValueError(
            f"{type(model).__name__}: expected attention alone, got a model with recurrent state, "
            f"which cannot be rolled back when a draft is rejected; {remedy}"
        )


def reads_field(model: Any, name: str, around: Any = None) -> bool:
    """Whether the family's code mentions a configuration field; true if the code cannot be read.

    A field that the code never mentions is left over from another family and means nothing. around: a part of the
    model; the code of what holds it counts alone.
    """
    holds = [
        module for module in model.modules() if around is None or module is not around and around in module.modules()
    ]
    kinds = {kind for module in holds for kind in type(module).__mro__ if _is_family(kind)}
    sources = (_source(kind) for kind in sorted(kinds, key=lambda kind: not _is_known(kind)))
    return any(source is None or name in source for source in sources)


def _is_known(kind: type) -> bool:
    return kind.__module__.startswith("transformers.models.")


def _is_family(kind: type) -> bool:
    return _is_known(kind) or kind.__module__.partition(".")[0] not in ("torch", "builtins", "transformers")


@functools.cache
def _source(kind: type) -> str | None:
    """The code of a class, for a family of transformers its whole file, which is faster to find; None if unknown."""
    try:
        return inspect.getsource(sys.modules[kind.__module__] if _is_known(kind) else kind)
    except (KeyError, OSError, TypeError):
        return None


def vocab_size_of(model: Any, output: Any) -> int:
    """The number of logits. Weights that are packed, wrapped or absent do not tell it, but a pass does."""
    if (weight := _matrix(output)) is not None:
        return int(weight.shape[0])
    with trying_out(model), torch.no_grad():
        first = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
        more = {"decoder_input_ids": first} if model.config.is_encoder_decoder else {}
        return int(model(input_ids=first, **more).logits.shape[-1])


def matrices_of(model: Any) -> tuple[Tensor, Tensor]:
    """The input and output embeddings [V, width]. A layer whose weight is packed, wrapped or absent is applied to every
    id, or to every unit vector.
    """
    embedding, output = model.get_input_embeddings(), model.get_output_embeddings()
    table = _matrix(embedding)
    if table is None:
        table = embedding(torch.arange(vocab_size_of(model, output), device=model.device)).detach()
    weight = _matrix(output)
    if weight is None:
        none = torch.zeros(1, table.shape[1], dtype=table.dtype, device=table.device)
        units = torch.eye(table.shape[1], dtype=table.dtype, device=table.device)
        weight = (output(units) - output(none)).T.detach().contiguous()
    return table, weight


def _matrix(layer: Any) -> Tensor | None:
    weight = getattr(layer, "weight", None)
    return weight if torch.is_tensor(weight) and weight.dim() == 2 and weight.is_floating_point() else None


def check_size(kind: Any, config: Any, files: Collection[Path]) -> None:
    """ValueError if a configuration has more parameters than the model's files have bits. Otherwise memory would be
    allocated for them before they are found missing.
    """
    held = 8 * sum(file.stat().st_size for file in files)
    with torch.device("meta"):
        asked = sum(parameter.numel() for parameter in kind.from_config(config).parameters())
    if files and asked > held:
        raise ValueError(f"a configuration of {asked:,} parameters, but files of {held:,} bits")


def trying_out(model: Any) -> AbstractContextManager[None]:
    """Turns any error of a family's code, given our arguments, into a ValueError."""
    return foreign_errors(f"{type(model).__name__}: expected a family that takes positions, masks and a cache, got")


def check_logits(model: Any, got: Tensor, expected: Tensor, read: tuple[str, str] = _IN_BLOCKS) -> None:
    """ValueError unless logits [n, V] equal the model's own up to rounding.

    read: how they were read, and why those of some families then differ.
    """
    got, expected = got.float(), expected.float()
    spread = (expected - expected.mean(dim=-1, keepdim=True)).norm(dim=-1).clamp(min=1e-9)
    error = float(((got - expected).norm(dim=-1) / spread).max())
    wrong = _WRONG_OF_SHORT_FLOATS if _is_quantised(model) else _WRONG.get(model.dtype, _WRONG_OF_SHORT_FLOATS)
    if not error <= wrong:
        random = _dropout(model)
        why = f"{random} is in training mode: call model.eval()" if random else read[1]
        why = why if expected.isfinite().all() else "its own are not finite: check its weights, images and sound"
        raise ValueError(
            f"{type(model).__name__}: expected the model's own logits {read[0]}, "
            f"got others (relative error {error:.2g}, at most {wrong:.2g}); {why}"
        )


def _is_quantised(model: Any) -> bool:
    """Whether some layers round their inputs or weights to a few bits, so that equal sums in another order differ."""
    weights = [getattr(module, "weight", None) for module in model.modules()]
    return bool(getattr(model, "is_quantized", False)) or any(
        weight is not None and not (torch.is_tensor(weight) and weight.is_floating_point()) for weight in weights
    )


def rope_types(config: Any) -> dict[str, dict[str, Any]]:
    """The rotary parameters of a configuration by type, such as "default" and "longrope"."""
    rope = getattr(config, "rope_parameters", None) or {}
    # Either one set of parameters, or one per kind of layer.
    return {one["rope_type"]: one for one in (rope, *rope.values()) if isinstance(one, dict) and "rope_type" in one}


def switch_of(rope: dict[str, dict[str, Any]]) -> int:
    """The length of a text past which longrope, one of these parameters, takes its long factors."""
    return int(rope[LONG]["original_max_position_embeddings"])


def context_of(config: Any, rope: dict[str, Any] | None = None) -> int | None:
    """The positions that a decoder was made for; None if its configuration does not say.

    rope: its rotary parameters by type; None: the configuration's.
    """
    rope = rope_types(config) if rope is None else rope
    if LONG in rope:
        return switch_of(rope)
    return longest_of(config)


def longest_of(config: Any) -> int | None:
    """The positions of the longest text of a decoder; None if its configuration does not say."""
    return getattr(config, "max_position_embeddings", None)


def is_recurrent(config: Any) -> bool:
    """Whether caches of a configuration's models have states that are no keys and values."""
    return any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in DynamicCache(config=config).layers)


def attends(config: Any) -> bool:
    """Whether some layers of a configuration's models have keys and values."""
    return any(isinstance(layer, DynamicLayer) for layer in DynamicCache(config=config).layers)
