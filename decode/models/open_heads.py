"""Opens heads of any kind for a target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rescore.decode.models.bita import with_tokens
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.conditioned_heads import stored_heads
from rescore.decode.models.dflash import dflash_heads
from rescore.decode.models.draft_step import Heads
from rescore.decode.models.early_layers import EarlyLayers
from rescore.decode.models.heads_kind import MTP, HeadsKind
from rescore.decode.models.model_check import matrices_of
from rescore.decode.models.path_heads import PathHead, eagle_head, mtp_head
from rescore.decode.models.target import Target


def open_heads(heads: str | Path, kind: HeadsKind, target: Any) -> tuple[Any, Heads | PathHead | Target]:
    """Opens heads of a kind (`heads_kind`); returns the target to decode with, another one for BiTA, and the heads, or
    what reads its own draft. The target's states are tapped for EAGLE-3 and DFlash. ValueError if they do not fit.
    """
    if kind in ("trained", "medusa"):
        return target, stored_heads(heads, target.logits, *matrices_of(target.model))
    if not isinstance(target, CausalLMTarget):
        raise ValueError(
            f"{heads}: expected a causal language model of Hugging Face for heads of the kind {kind}, "
            f"got {type(target.model).__name__}"
        )
    if kind == "bita":
        return with_tokens(heads, target)
    if kind == "dflash":
        return target, dflash_heads(Path(heads), target)
    if kind == "eagle3":
        return target, eagle_head(Path(heads), target)
    if early := EarlyLayers.named(heads):
        return target, early.of(target)
    return target, mtp_head(target, None if heads == MTP else Path(heads))
