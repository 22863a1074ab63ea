"""Opens a model with its heads by its path or name. No code of a checkpoint is run."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget, BlockwiseTransformer
from rescore.decode.models.checkpoint import tensor_files
from rescore.decode.models.draft_step import Heads
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.heads_kind import MTP
from rescore.decode.models.located import convert_gguf, is_gguf, locate_model
from rescore.decode.models.model_check import check_size
from rescore.decode.models.model_facts import NO_MODEL, facts_at, model_place, read_hugging_face_config
from rescore.decode.models.open_heads import open_heads
from rescore.decode.models.path_heads import PathHead
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenModel:
    """A model that is ready to decode.

    target       verifies drafts
    heads        propose drafts; None if there are none
    small        what reads its own draft: a head, or the model's first layers; None if there is none
    tokenizer    the tokenizer.json beside the model, or None
    end_of_text  ids that end a text, in [0, V); empty if neither configuration nor tokenizer names one
    vocab_size   V
    kind         "blockwise", "causal-lm" or "encoder-decoder"
    """

    target: Target
    heads: Heads | None
    small: Target | PathHead | None
    tokenizer: Path | None
    end_of_text: tuple[int, ...]
    vocab_size: int
    kind: str


def open_model(
    path: str | Path,
    *,
    heads: str | Path | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> OpenModel:
    """Opens a model: a name on the Hugging Face Hub or a folder of one, a .gguf file (see `convert_gguf`), a blockwise
    model.safetensors or a folder with it, or the name of a model in a package ("smollm2"; see `locate_model`).

    heads   a folder of `rescore train heads` or `rescore train bita`; a folder or file of Medusa heads; "mtp", the
            layer of multi-token prediction stored with the model; a folder of EAGLE-3 or DFlash; or "early:LAYERS",
            its own first layers (`EarlyLayers`). What reads its own draft is `small`: all of these but DFlash. None
            takes the heads in the model's folder: blockwise, Medusa's, MTP's, or none
    dtype   of all weights; None is float32 for blockwise models, the checkpoint's for Hugging Face
    device  None is the CPU

    No code of a checkpoint is run, and weights are read from safetensors alone. ValueError or FileNotFoundError says
    what is missing and how to fix it.
    """
    found = locate_model(path)
    place, hugging_face = model_place(convert_gguf(found, dtype) if is_gguf(found) else found, heads)
    facts = facts_at(place, hugging_face, heads)
    if hugging_face:
        model = _load(place, dtype).to(device or "cpu")
        target: Any = EncoderDecoderTarget(model) if model.config.is_encoder_decoder else causal_target(model)
    else:
        model = BlockwiseTransformer.load(place, dtype or torch.float32).to(device or "cpu")
        target = BlockwiseTarget(model)
    target, source = _with_heads(target, facts.heads_kind, heads, place)
    return OpenModel(
        target=target,
        heads=None if facts.small else source,
        small=source if facts.small else None,
        tokenizer=facts.tokenizer,
        end_of_text=facts.end_of_text,
        vocab_size=target.vocab_size,
        kind=facts.kind,
    )


def _with_heads(target: Any, kind: Any, heads: str | Path | None, place: Path) -> tuple[Any, Any]:
    """The target to decode with, and its heads: named ones, or those found at the model's `place`, if any."""
    if kind is None:
        return target, None
    if kind == "blockwise":
        return target, BlockwiseHeads(target.model)
    if heads is not None or kind != MTP:
        return open_heads(heads or place, kind, target)
    try:
        return open_heads(MTP, kind, target)
    except ValueError as error:  # nobody asked for it
        warnings.warn(f"{place}: its layer of multi-token prediction is not used: {error}", stacklevel=2)
        return target, None


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
