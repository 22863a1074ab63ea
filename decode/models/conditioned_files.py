"""Folders of heads that know the certain token: config.json and heads.safetensors, checked before use."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from rescore.decode.models.checkpoint import read_object
from rescore.lm.atomic import replacing

CONFIG = "config.json"
WEIGHTS = "heads.safetensors"
FORMAT = "rescore heads"
VERSION = 1
MOST = {"slots": 64, "layers": 64, "width": 1 << 16, "vocab_size": 1 << 24, "draft_vocabulary": 1 << 24}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsForm:
    """The heads' T slots, the blocks of each, the target's width and V, and the D tokens of the draft vocabulary."""

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
    """Whether a folder says that it holds heads of this kind."""
    return (folder / WEIGHTS).exists()


def write_heads(folder: str | Path, form: HeadsForm, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """The folder's two files; weights in float16. `about` goes into config.json."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CONFIG
    if path.exists() and FORMAT not in path.read_text(encoding="utf-8", errors="replace"):
        raise ValueError(f"{path}: expected no file, or that of such heads, got another's; save them in a folder apart")
    stored = {
        name: (tensor.half() if tensor.is_floating_point() else tensor).detach().cpu().contiguous()
        for name, tensor in tensors.items()
    }
    with replacing(folder / WEIGHTS) as file:
        file.write(safetensors_bytes(stored))
    with replacing(path) as file:
        told = {"format": FORMAT, "version": VERSION, **asdict(form), **about}
        file.write((json.dumps(told, indent=2) + "\n").encode())


def read_heads(folder: str | Path, *, width: int, vocab_size: int) -> tuple[HeadsForm, dict[str, Tensor]]:
    """Form and tensors, checked, of heads for a target of this width and V. ValueError or FileNotFoundError names what
    is wrong.
    """
    folder = Path(folder)
    form = read_form(folder)
    for name, wanted in (("width", width), ("vocab_size", vocab_size)):
        if getattr(form, name) != wanted:
            raise ValueError(
                f"{folder / CONFIG}: expected heads for this model's {name} of {wanted}, got {getattr(form, name)}; "
                "they were trained for another"
            )
    try:
        with safe_open(folder / WEIGHTS, "pt") as file:
            names, shapes = set(file.keys()), form.shapes()
            if names != shapes.keys():
                odd = sorted(names ^ shapes.keys())[0]
                raise ValueError(
                    f"{folder / WEIGHTS}: expected the {len(shapes)} tensors that config.json asks for, got "
                    f"{'none named' if odd in shapes else 'also'} {odd!r:.80}"
                )
            tensors = {name: file.get_tensor(name) for name in shapes}
    except SafetensorError as error:
        raise ValueError(
            f"{folder / WEIGHTS}: expected a safetensors file, got one that does not read: {error}"
        ) from None
    for name, shape in shapes.items():
        _check(folder / WEIGHTS, name, tensors[name], shape)
    ids = tensors["draft_vocabulary"]
    if int(ids[0]) < 0 or int(ids[-1]) >= vocab_size or not (ids[1:] > ids[:-1]).all():
        raise ValueError(f"{folder / WEIGHTS}: draft_vocabulary: expected rising ids in [0, {vocab_size}), got others")
    return form, tensors


def read_form(folder: Path) -> HeadsForm:
    """What config.json says."""
    path = folder / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected beside {WEIGHTS}, got nothing of that name")
    config = read_object(path)
    if config.get("format") != FORMAT or config.get("version") != VERSION:
        raise ValueError(
            f"{path}: expected format {FORMAT!r}, version {VERSION}, got {config.get('format')!r:.40}, "
            f"{config.get('version')!r:.40}"
        )
    try:
        return HeadsForm(**{name: config.get(name) for name in MOST})  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check(path: Path, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    ids = name == "draft_vocabulary"
    if tuple(tensor.shape) != shape or (tensor.dtype != torch.int32 if ids else not tensor.is_floating_point()):
        kind = "int32" if ids else "floating point"
        raise ValueError(
            f"{path}: {name}: expected {kind} {list(shape)}, got {tensor.dtype} {list(tensor.shape)}; "
            "the file is damaged, or another's"
        )
    if not ids and not tensor.isfinite().all():
        raise ValueError(f"{path}: {name}: expected finite numbers, got NaN or infinity")
