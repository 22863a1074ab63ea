"""Files of a model's folder that others wrote: JSON and the names of tensors, checked before use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

_MODEL = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # text that is no UTF-8 or no JSON
        raise ValueError(f"{path}: expected JSON, got text that does not read: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def tensor_files(folder: Path) -> dict[str, Path]:
    """Name of every tensor of a folder's safetensors model -> its file in that folder; empty without such a model."""
    if (folder / _INDEX).exists():
        return _of_index(folder)
    if not (folder / _MODEL).exists():
        return {}
    try:
        with safe_open(folder / _MODEL, "pt") as file:
            return dict.fromkeys(file.keys(), folder / _MODEL)
    except SafetensorError as error:
        raise ValueError(
            f"{folder / _MODEL}: expected a safetensors file, got one that does not read: {error}"
        ) from None


def _of_index(folder: Path) -> dict[str, Path]:
    """Those of a model in several files; names that lead out of the folder are refused."""
    names = read_object(folder / _INDEX).get("weight_map")
    if not isinstance(names, dict):
        raise ValueError(f"{folder / _INDEX}: expected an object 'weight_map', got {type(names).__name__}")
    for name in names.values():
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ValueError(f"{folder / _INDEX}: expected names of safetensors files in this folder, got {name!r}")
    return {tensor: folder / name for tensor, name in names.items()}
