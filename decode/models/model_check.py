"""Which Hugging Face models can be read in blocks: known cases by name, all others by a self-test."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ATTENTION = ("sdpa", "eager")
_WRONG = {torch.float64: 1e-3, torch.float32: 1e-3}
"""The largest relative error of logits attributed to rounding; a wrong mask or position causes far more."""
_WRONG_OF_SHORT_FLOATS = 0.1


def check_attention_model(model: Any, encoder_decoder: bool) -> None:
    """ValueError unless the model is a language model on one device whose only state is maskable keys and values."""
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
    if getattr(model, "_is_stateful", False):
        raise ValueError(
            f"{name}: expected attention alone, got a model with recurrent state, "
            "which cannot be rolled back when a draft is rejected"
        )
    if getattr(model.config, "alibi", False) or getattr(getattr(model.config, "attn_config", None), "alibi", False):
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
    if model.training:
        raise ValueError(
            f"{name}: expected evaluation mode, got training mode, whose dropout is random; call model.eval()"
        )
    devices = sorted({str(parameter.device) for parameter in model.parameters()})
    if len(devices) != 1 or devices == ["meta"]:
        raise ValueError(
            f"{name}: expected all weights on one device, got {', '.join(devices)}; "
            "open it without device_map or offloading"
        )


def check_size(kind: Any, config: Any, files: Collection[Path]) -> None:
    """ValueError if a configuration has more parameters than the model's files have bits. Otherwise memory would be
    allocated for them before they are found missing.
    """
    held = 8 * sum(file.stat().st_size for file in files)
    with torch.device("meta"):
        asked = sum(parameter.numel() for parameter in kind.from_config(config).parameters())
    if files and asked > held:
        raise ValueError(f"a configuration of {asked:,} parameters, but files of {held:,} bits")


@contextmanager
def trying_out(model: Any) -> Iterator[None]:
    """Turns any error of a family's code, given our arguments, into a ValueError."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"{type(model).__name__}: expected a family that takes positions, masks and a cache, "
            f"got {type(error).__name__}: {error}"
        ) from error


def check_logits(model: Any, got: Tensor, expected: Tensor) -> None:
    """ValueError unless logits [n, V] read in blocks equal the model's own up to rounding."""
    got, expected = got.float(), expected.float()
    spread = (expected - expected.mean(dim=-1, keepdim=True)).norm(dim=-1).clamp(min=1e-9)
    error = float(((got - expected).norm(dim=-1) / spread).max())
    if not error <= _WRONG.get(model.dtype, _WRONG_OF_SHORT_FLOATS):
        raise ValueError(
            f"{type(model).__name__}: expected the model's own logits when it is read in blocks, "
            f"got others (relative error {error:.2g}); "
            "the family ignores given masks or positions, or does more than its output layer to hidden states"
        )
