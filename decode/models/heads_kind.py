"""Which kind of heads a name means: told by names of files and tensors and by configurations, without weights."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from rescore.decode.models.checkpoint import config_in, tensor_files

HeadsKind = Literal["trained", "bita", "medusa", "dflash", "eagle3", "mtp", "early"]
READ_THEIR_DRAFT = ("eagle3", "mtp", "early")
MTP = "mtp"
EARLY = "early:"  # prefix of the model's own first layers as heads: `early_layers.EarlyLayers`
TRAINED: dict[HeadsKind, str] = {"trained": "heads.safetensors", "bita": "bita.safetensors"}  # by `rescore train`
MEDUSA = ("medusa_lm_head.safetensors", "medusa_lm_head.pt")
_EXTRA_LAYER = re.compile(r"(model\.(?:language_model\.)?layers\.(\d+)\.)eh_proj\.weight", re.ASCII)
_COUNTS = ("mtp_num_hidden_layers", "num_nextn_predict_layers")


def heads_kind(heads: str | Path | None, folder: Path | None = None) -> HeadsKind | None:
    """The kind of `heads` as `open_model` takes them; of None, those in the model's `folder`, or None if it has none.

    A path that nothing tells apart is taken for Medusa's, whose reader says what it lacks.
    """
    if heads is None:
        if folder is None:
            return None
        return "medusa" if _is_medusa(folder) else "mtp" if holds_mtp(folder) else None
    if heads == MTP:
        return "mtp"
    if str(heads).startswith(EARLY):
        return "early"
    path = Path(heads)
    for kind, weights in TRAINED.items():
        if (path / weights).exists():
            return kind
    config = config_in(path)
    form = config.get("speculators_model_type")
    if form == "dflash" or "dflash_config" in config:
        return "dflash"
    if form == "eagle3" or form is None and "draft_vocab_size" in config:
        return "eagle3"
    return "mtp" if path.is_dir() and mtp_prefix(tensor_files(path)) else "medusa"


def holds_mtp(folder: Path) -> bool:
    """Whether a model's folder has a layer of multi-token prediction. Without weights, its configuration says."""
    if names := tensor_files(folder):
        return mtp_prefix(names) is not None
    config = config_in(folder)
    parts = (config, *(value for value in config.values() if isinstance(value, dict)))
    return any(part.get(name) for part in parts for name in _COUNTS)


def mtp_prefix(names: Collection[str]) -> str | None:
    """What the names of the layer's tensors begin with, among those of a model; of several layers, the first one's."""
    extra = sorted((int(match[2]), match[1]) for name in names if (match := _EXTRA_LAYER.fullmatch(name)))
    return "mtp." if "mtp.fc.weight" in names else extra[0][1] if extra else None


def _is_medusa(folder: Path) -> bool:
    return any((folder / name).exists() for name in MEDUSA) or "medusa_num_heads" in config_in(folder)
