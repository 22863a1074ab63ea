"""Folders of BiTA's learned tokens: config.json and bita.safetensors, validated on load."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rescore.decode.models.checkpoint import read_config, read_floats, write_folder

CONFIG = "config.json"
WEIGHTS = "bita.safetensors"
FORMAT = "rescore bita"
VERSION = 1
MOST_MASKS, MOST_PROMPTS = 63, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class BitaForm:
    """M masks, P prompt tokens; the model's width and V; and for every layer (attention heads, width of a key, width of
    a value).
    """

    masks: int
    prompts: int
    width: int
    vocab_size: int
    layers: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        for name, least, most in (("masks", 1, MOST_MASKS), ("prompts", 0, MOST_PROMPTS)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ValueError(f"{name}: expected an integer from {least} to {most}, got {value!r:.40}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor."""
        shapes: dict[str, tuple[int, ...]] = {"masks": (self.masks, self.width)}
        for i, (heads, key, value) in enumerate(self.layers):
            shapes[f"keys.{i}"] = (heads, self.prompts, key)
            shapes[f"values.{i}"] = (heads, self.prompts, value)
        return shapes


def holds_bita(folder: Path) -> bool:
    """Whether a folder's configuration is that of BiTA tokens."""
    return (folder / WEIGHTS).exists()


def write_bita(folder: str | Path, form: BitaForm, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Writes the folder's two files; `about` goes into config.json."""
    write_folder(
        Path(folder) / CONFIG, WEIGHTS, tensors, {"format": FORMAT, "version": VERSION, **asdict(form), **about}
    )


def read_bita(folder: str | Path, model: BitaForm) -> tuple[BitaForm, dict[str, Tensor]]:
    """Reads and checks form and tensors for a model with the width and layers of `model`, and at least the V that they
    were trained with. ValueError or FileNotFoundError names what is wrong.
    """
    folder = Path(folder)
    config = read_config(folder / CONFIG, WEIGHTS, FORMAT, VERSION)
    own = config.get("vocab_size")  # the model may have gained tokens since, which masks do not have ids of
    fits = type(own) is int and 1 <= own <= model.vocab_size
    for name, wanted in (
        ("width", model.width),
        ("vocab_size", own if fits else model.vocab_size),
        ("layers", _lists(model.layers)),
    ):
        if config.get(name) != wanted:
            raise ValueError(
                f"{folder / CONFIG}: expected tokens for this model's {name} of {wanted!r:.80}, "
                f"got {config.get(name)!r:.80}; they were trained for another"
            )
    try:
        form = BitaForm(
            masks=config.get("masks"),  # type: ignore[arg-type]
            prompts=config.get("prompts"),  # type: ignore[arg-type]
            width=model.width,
            vocab_size=model.vocab_size,
            layers=model.layers,
        )
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from None
    return form, read_floats(folder / WEIGHTS, form.shapes())


def _lists(layers: tuple[tuple[int, int, int], ...]) -> list[list[int]]:
    return [list(layer) for layer in layers]
