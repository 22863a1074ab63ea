"""Folders of exit heads: exits.json and exits.safetensors, checked before use."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from rescore.decode.models.checkpoint import read_object
from rescore.lm.atomic import replacing

CONFIG = "exits.json"
WEIGHTS = "exits.safetensors"
FORMAT = "rescore exits"
VERSION = 1
MOST = {"depth": 1 << 12, "width": 1 << 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitForm:
    """The layers behind which tokens may leave, rising, of a model of so many layers and this width."""

    exits: tuple[int, ...]
    depth: int
    width: int

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            if not _whole(getattr(self, name), 1, most):
                raise ValueError(f"{name}: expected an integer from 1 to {most}, got {getattr(self, name)!r:.40}")
        rising = all(_whole(one, 1, self.depth - 1) for one in self.exits) and sorted(set(self.exits)) == [*self.exits]
        if not self.exits or not rising:
            raise ValueError(f"exits: expected rising layers from 1 to {self.depth - 1}, got {self.exits!r:.80}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor."""
        n, width = len(self.exits), self.width
        return {"translation": (n, width, width), "offset": (n, width), "classifier": (n, width), "bias": (n,)}


def write_exits(folder: str | Path, form: ExitForm, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """The folder's two files; weights in float16. `about` goes into exits.json."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.detach().half().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(folder / WEIGHTS) as file:
        file.write(safetensors_bytes(stored))
    with replacing(folder / CONFIG) as file:
        told = {"format": FORMAT, "version": VERSION, **asdict(form), **about}
        file.write((json.dumps(told, indent=2) + "\n").encode())


def read_exits(folder: str | Path, *, depth: int, width: int) -> tuple[ExitForm, dict[str, Tensor]]:
    """Form and tensors, checked. ValueError or FileNotFoundError names what is wrong."""
    folder = Path(folder)
    form = read_exit_form(folder)
    for name, wanted in (("depth", depth), ("width", width)):
        if getattr(form, name) != wanted:
            raise ValueError(
                f"{folder / CONFIG}: expected exits of this model, of {name} {wanted}, got {getattr(form, name)}; "
                "they were trained for another"
            )
    path, shapes = folder / WEIGHTS, form.shapes()
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected beside {CONFIG}, got nothing of that name")
    try:
        with safe_open(path, "pt") as file:
            if odd := sorted(set(file.keys()) ^ shapes.keys()):
                raise ValueError(f"{path}: expected {', '.join(shapes)} alone, got otherwise for {odd[0]!r:.80}")
            tensors = {name: file.get_tensor(name) for name in shapes}
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a safetensors file, got one that does not read: {error}") from None
    for name, shape in shapes.items():
        _check(path, name, tensors[name], shape)
    return form, tensors


def read_exit_form(folder: Path) -> ExitForm:
    """What exits.json says."""
    path = folder / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected what `rescore calm train` writes, got nothing of that name")
    config = read_object(path)
    if config.get("format") != FORMAT or config.get("version") != VERSION:
        raise ValueError(
            f"{path}: expected format {FORMAT!r}, version {VERSION}, got {config.get('format')!r:.40}, "
            f"{config.get('version')!r:.40}"
        )
    exits = config.get("exits")
    try:
        if not isinstance(exits, list):
            raise ValueError(f"exits: expected a list of layers, got {exits!r:.40}")
        return ExitForm(exits=tuple(exits), **{name: config.get(name) for name in MOST})  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _check(path: Path, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape or not tensor.is_floating_point():
        raise ValueError(
            f"{path}: {name}: expected floating point {list(shape)}, got {tensor.dtype} {list(tensor.shape)}; "
            "the file is damaged, or another's"
        )
    if not tensor.isfinite().all():
        raise ValueError(f"{path}: {name}: expected finite numbers, got NaN or infinity")
