"""Folders of exit heads: exits.json and exits.safetensors, validated on load."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rescore.decode.models.checkpoint import read_config, read_floats, write_folder

CONFIG = "exits.json"
WEIGHTS = "exits.safetensors"
FORMAT = "rescore exits"
VERSION = 1
MOST = {"depth": 1 << 12, "width": 1 << 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitForm:
    """The layers after which tokens may exit, ascending, of a model of this depth and width."""

    exits: tuple[int, ...]
    depth: int
    width: int

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            if not _whole(getattr(self, name), 1, most):
                raise ValueError(f"{name}: expected an integer from 1 to {most}, got {getattr(self, name)!r:.40}")
        rising = all(_whole(one, 1, self.depth - 1) for one in self.exits) and sorted(set(self.exits)) == [*self.exits]
        if not self.exits or not rising:
            raise ValueError(f"exits: expected ascending layers below the last, {self.depth}, got {self.exits!r:.80}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor."""
        n, width = len(self.exits), self.width
        return {"translation": (n, width, width), "offset": (n, width), "classifier": (n, width), "bias": (n,)}


def write_exits(folder: str | Path, form: ExitForm, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Writes the folder's two files, weights in float16; `about` goes into exits.json."""
    stored = {name: tensor.half() for name, tensor in tensors.items()}
    write_folder(
        Path(folder) / CONFIG, WEIGHTS, stored, {"format": FORMAT, "version": VERSION, **asdict(form), **about}
    )


def read_exits(folder: str | Path, *, depth: int, width: int) -> tuple[ExitForm, dict[str, Tensor]]:
    """Reads and checks form and tensors. ValueError or FileNotFoundError names what is wrong."""
    folder = Path(folder)
    form = read_exit_form(folder)
    for name, wanted in (("depth", depth), ("width", width)):
        if getattr(form, name) != wanted:
            raise ValueError(
                f"{folder / CONFIG}: expected exits of this model, of {name} {wanted}, got {getattr(form, name)}; "
                "they were trained for another"
            )
    path = folder / WEIGHTS
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected beside {CONFIG}, got nothing of that name")
    return form, read_floats(path, form.shapes())


def read_exit_form(folder: Path) -> ExitForm:
    """Reads exits.json."""
    path = folder / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected a file of `rescore calm train`, got nothing of that name")
    config = read_config(path, WEIGHTS, FORMAT, VERSION)
    exits = config.get("exits")
    try:
        if not isinstance(exits, list):
            raise ValueError(f"exits: expected a list of layers, got {exits!r:.40}")
        return ExitForm(exits=tuple(exits), **{name: config.get(name) for name in MOST})  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
