"""Opens a model by its path or name, without heads. No code of a checkpoint is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from rescore.decode.models.blockwise import BlockwiseTarget, BlockwiseTransformer
from rescore.decode.models.checkpoint import tensor_files
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.located import convert_gguf, is_gguf, locate_model
from rescore.decode.models.model_check import check_size
from rescore.decode.models.model_facts import NO_MODEL, model_place, read_hugging_face_config
from rescore.decode.models.recurrent import causal_target
from rescore.decode.models.target import Target
from rescore.lattice.checked import foreign_errors
from rescore.lattice.extras import needed_for

with needed_for("a model of Hugging Face"):
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForMultimodalLM,
        AutoModelForSeq2SeqLM,
        AutoModelForSpeechSeq2Seq,
    )

_KINDS: tuple[Any, ...] = (
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,  # before causal models, which have a decoder of Whisper alone
    AutoModelForMultimodalLM,
    AutoModelForCausalLM,
)


def open_target(
    path: str | Path, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Target:
    """Opens a model as `open_model` does, without heads."""
    place, hugging_face = place_of(path, dtype)
    return load_target(place, hugging_face, dtype, device)


def place_of(path: str | Path, dtype: torch.dtype | None = None, heads: str | Path | None = None) -> tuple[Path, bool]:
    """The `model_place` of a model that `open_model` takes; a .gguf file is converted to `dtype`."""
    found = locate_model(path)
    return model_place(convert_gguf(found, dtype) if is_gguf(found) else found, heads)


def load_target(place: Path, hugging_face: bool, dtype: torch.dtype | None, device: torch.device | str | None) -> Any:
    """The target at a `model_place`."""
    if hugging_face:
        model = _load(place, dtype).to(device or "cpu")
        return EncoderDecoderTarget(model) if model.config.is_encoder_decoder else causal_target(model)
    return BlockwiseTarget(BlockwiseTransformer.load(place, dtype or torch.float32).to(device or "cpu"))


def _load(folder: Path, dtype: torch.dtype | None) -> Any:
    """Loads a model and checks that all weights were stored: transformers would fill in random ones and only log it."""
    config = read_hugging_face_config(folder)
    with foreign_errors(NO_MODEL.format(folder)):
        kind = next((one for one in _KINDS if type(config) in one._model_mapping), AutoModelForCausalLM)
        check_size(kind, config, set(tensor_files(folder).values()))
        loaded: Any = kind.from_pretrained(
            folder,
            config=config,
            dtype=dtype or "auto",
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # rejected below, by name
        )
    model, info = loaded
    for what in ("missing_keys", "mismatched_keys"):
        if wrong := sorted(map(str, info[what])):
            raise ValueError(
                f"{folder}: expected weights for all of {type(model).__name__}, got {len(wrong)} "
                f"{what.replace('_', ' ')}, {wrong[0]} first; the folder is damaged or of another kind"
            )
    return model.eval()


def use_threads(count: int) -> None:
    """Let PyTorch compute on `count` threads of the processor, at most OMP_THREAD_LIMIT.

    It does not ask for that limit itself, and oneDNN (3.12) leaves parts of products of bfloat16 unwritten when it gets
    fewer threads than it planned for.
    """
    limit = os.environ.get("OMP_THREAD_LIMIT", "").strip()
    torch.set_num_threads(min(count, int(limit)) if limit.isdecimal() and int(limit) else count)
