"""Validation of model folders from elsewhere: JSON and names of tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from rescore.lattice.atomic import replacing
from rescore.lattice.checked import checked, of_format, read_object

_MODEL = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_NUMBER = re.compile(r"\.(\d{1,6})\.", re.ASCII)
FEW = 1000
_Kind = TypeVar("_Kind")
LAYERS = (  # names that Hugging Face families use for the number of layers
    "num_hidden_layers",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
    "n_layer",
    "n_layers",
    "num_mtp_layers",
    "num_nextn_predict_layers",
)


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, Annotated[str, Meta(pattern=r"\A[^/\0]*\.safetensors\Z")]]


def tensor_files(folder: Path) -> dict[str, Path]:
    """Maps every tensor of a folder's safetensors model to its file; empty if there is no such model."""
    if (folder / _INDEX).exists():
        return _of_index(folder)
    if not (folder / _MODEL).exists():
        return {}
    try:
        with safe_open(folder / _MODEL, "pt") as file:
            return dict.fromkeys(file.keys(), folder / _MODEL)
    except SafetensorError as error:
        raise ValueError(
            f"{folder / _MODEL}: expected a safetensors file, got one that cannot be read: {error}"
        ) from None


def _of_index(folder: Path) -> dict[str, Path]:
    """The tensors of a model in several files; file names outside the folder are rejected."""
    names = checked(read_object(folder / _INDEX, lenient=True), _Index, folder / _INDEX).weight_map
    return {tensor: folder / name for tensor, name in names.items()}


def check_layers(folder: Path, config: Mapping[str, Any]) -> None:
    """ValueError if config.json has more layers than the names of the folder's tensors; these contain numbers of
    layers, experts and the like. Without safetensors the limit is FEW.
    """
    names = tensor_files(folder)
    stored = max((1 + int(number) for name in names for number in _NUMBER.findall(name)), default=0 if names else FEW)
    for own in (config, *(value for value in config.values() if isinstance(value, dict))):
        for name in LAYERS:
            if isinstance(own.get(name), int) and own[name] > stored:
                raise ValueError(
                    f"{folder / 'config.json'}: {name}: expected at most {stored}, the number that the tensors have, "
                    f"got {own[name]!r:.40}; the folder is damaged or of another kind"
                )


def read_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Reads a safetensors file that must hold exactly these names and shapes."""
    try:
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            if names != shapes.keys():
                odd = sorted(names ^ shapes.keys())[0]
                raise ValueError(
                    f"{path}: expected the {len(shapes)} tensors of its configuration, got "
                    f"{'none named' if odd in shapes else 'also'} {odd!r:.80}"
                )
            return {name: file.get_tensor(name) for name in shapes}
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a safetensors file, got one that cannot be read: {error}") from None


def check_floats(path: Path, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """ValueError unless a tensor holds finite floating-point numbers in this shape."""
    if tuple(tensor.shape) != shape or not tensor.is_floating_point():
        raise ValueError(
            f"{path}: {name}: expected floating point {list(shape)}, got {tensor.dtype} {list(tensor.shape)}; "
            "the file is damaged or belongs to another model"
        )
    if not tensor.isfinite().all():
        raise ValueError(f"{path}: {name}: expected finite numbers, got NaN or infinity")


def read_floats(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """As `read_tensors`; all tensors must hold finite floating-point numbers."""
    tensors = read_tensors(path, shapes)
    for name, shape in shapes.items():
        check_floats(path, name, tensors[name], shape)
    return tensors


def read_config(path: Path, weights: str, form: str, version: int, kind: type[_Kind]) -> _Kind:
    """Reads the JSON file of a format and version that describes the file `weights` beside it."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected beside {weights}, got nothing of that name")
    return checked(of_format(read_object(path, lenient=True), path, form, (version,)), kind, path)


def write_folder(path: Path, weights: str, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Writes tensors to the file `weights` beside the JSON file `path`, whose "format" names their kind. Does not
    overwrite a file of another format.
    """
    folder = path.parent
    if path.exists() and config["format"] not in path.read_text(encoding="utf-8", errors="replace"):
        raise ValueError(
            f"{path}: expected no file, or one of format {config['format']!r}, got another; use a separate folder"
        )
    with replacing(folder / weights) as file:
        file.write(safetensors_bytes({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))
    with replacing(path) as file:
        file.write((json.dumps(config, indent=2) + "\n").encode())
