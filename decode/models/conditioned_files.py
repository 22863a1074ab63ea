"""Folders of heads conditioned on the root token: config.json and heads.safetensors, validated on load."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rescore.decode.models.checkpoint import check_floats, read_config, read_tensors, write_folder

CONFIG = "config.json"
WEIGHTS = "heads.safetensors"
FORMAT = "rescore heads"
VERSION = 1
MOST = {"slots": 64, "layers": 64, "width": 1 << 16, "vocab_size": 1 << 24, "draft_vocabulary": 1 << 24}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsForm:
    """T slots, residual blocks per slot, the target's width and V, and the D tokens of the draft vocabulary."""

    slots: int
    layers: int
    width: int
    vocab_size: int
    draft_vocabulary: int

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            value, least = getattr(self, name), 0 if name == "layers" else 1
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ValueError(f"{name}: expected an integer from {least} to {most}, got {value!r:.40}")
        if self.draft_vocabulary > self.vocab_size:
            raise ValueError(
                f"draft_vocabulary: expected at most the {self.vocab_size} tokens of the target, "
                f"got {self.draft_vocabulary}"
            )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor."""
        shapes: dict[str, tuple[int, ...]] = {"draft_vocabulary": (self.draft_vocabulary,)}
        for slot in range(self.slots):
            shapes[f"heads.{slot}.input.weight"] = (self.width, 2 * self.width)
            for layer in range(self.layers):
                shapes[f"heads.{slot}.blocks.{layer}.linear.weight"] = (self.width, self.width)
                shapes[f"heads.{slot}.blocks.{layer}.linear.bias"] = (self.width,)
        return shapes


def holds_heads(folder: Path) -> bool:
    """Whether a folder's configuration is that of heads of this kind."""
    return (folder / WEIGHTS).exists()


def write_heads(folder: str | Path, form: HeadsForm, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Writes the folder's two files, weights in float16; `about` goes into config.json."""
    stored = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    write_folder(
        Path(folder) / CONFIG, WEIGHTS, stored, {"format": FORMAT, "version": VERSION, **asdict(form), **about}
    )


def read_heads(folder: str | Path, *, width: int, vocab_size: int) -> tuple[HeadsForm, dict[str, Tensor]]:
    """Reads and checks form and tensors for a target of this width and V, which may have gained tokens since.

    ValueError or FileNotFoundError names what is wrong.
    """
    folder = Path(folder)
    form = read_form(folder)
    for name, wanted, fits in (
        ("width", width, form.width == width),
        ("vocab_size", vocab_size, form.vocab_size <= vocab_size),
    ):
        if not fits:
            raise ValueError(
                f"{folder / CONFIG}: expected heads for this model's {name} of {wanted}, got {getattr(form, name)}; "
                "they were trained for another"
            )
    shapes = form.shapes()
    tensors = read_tensors(folder / WEIGHTS, shapes)
    for name, shape in shapes.items():
        _check(folder / WEIGHTS, name, tensors[name], shape)
    ids = tensors["draft_vocabulary"]
    if int(ids[0]) < 0 or int(ids[-1]) >= vocab_size or not (ids[1:] > ids[:-1]).all():
        raise ValueError(
            f"{folder / WEIGHTS}: draft_vocabulary: expected ascending ids in [0, {vocab_size}), got others"
        )
    return form, tensors


def read_form(folder: Path) -> HeadsForm:
    """Reads config.json."""
    config = read_config(folder / CONFIG, WEIGHTS, FORMAT, VERSION)
    try:
        return HeadsForm(**{name: config.get(name) for name in MOST})  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from None


def _check(path: Path, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if name != "draft_vocabulary":
        check_floats(path, name, tensor, shape)
    elif tuple(tensor.shape) != shape or tensor.dtype != torch.int32:
        raise ValueError(
            f"{path}: {name}: expected int32 {list(shape)}, got {tensor.dtype} {list(tensor.shape)}; "
            "the file is damaged or belongs to another model"
        )
