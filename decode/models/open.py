"""Opens a model with its heads by its path or name. No code of a checkpoint is run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rescore.decode.models.blockwise import BlockwiseHeads
from rescore.decode.models.draft_step import Heads
from rescore.decode.models.heads_kind import MTP
from rescore.decode.models.model_facts import facts_at
from rescore.decode.models.open_heads import open_heads
from rescore.decode.models.open_target import load_target, place_of
from rescore.decode.models.path_heads import PathHead
from rescore.decode.models.target import Target


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
    place, hugging_face = place_of(path, dtype, heads)
    facts = facts_at(place, hugging_face, heads)
    target = load_target(place, hugging_face, dtype, device)
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
