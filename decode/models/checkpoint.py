"""Validation of model folders from elsewhere, and the folders of what is trained here: JSON and names of tensors."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import torch
from msgspec import Meta, structs
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from rescore.lattice.atomic import atomic_file
from rescore.lattice.checked import Checked, of_format, read_object, validate
from rescore.lattice.mapped import safetensors

_MODEL = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_NUMBER = re.compile(r"\.(\d{1,6})\.", re.ASCII)
FEW = 1000
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
    """Of a model in several files; file names outside the folder are rejected."""

    weight_map: dict[str, Annotated[str, Meta(pattern=r"\A[^/\0]*\.safetensors\Z")]]


def tensor_files(folder: Path) -> dict[str, Path]:
    """Maps every tensor of a folder's safetensors model to its file; empty if there is no such model."""
    if (index := folder / _INDEX).exists():
        names = validate(read_object(index, lenient=True), _Index, index).weight_map
        return {tensor: folder / name for tensor, name in names.items()}
    if not (folder / _MODEL).exists():
        return {}
    with safetensors(folder / _MODEL) as file:
        return dict.fromkeys(file.keys(), folder / _MODEL)


def config_in(folder: Path) -> dict[str, Any]:
    """The configuration of a folder; empty if it has none."""
    path = folder / "config.json"
    return read_object(path, lenient=True) if path.exists() else {}


def check_layer_count(folder: Path, config: Mapping[str, Any]) -> None:
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


def read_tensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], integers: Collection[str] = ()
) -> dict[str, Tensor]:
    """Reads a safetensors file that must hold exactly these names and shapes: finite floats, but for the
    `integers`, which are int32.
    """
    with safetensors(path) as file:
        names = set(file.keys())
        if names != shapes.keys():
            odd = sorted(names ^ shapes.keys())[0]
            raise ValueError(
                f"{path}: expected the {len(shapes)} tensors of its configuration, got "
                f"{'none named' if odd in shapes else 'also'} {odd!r:.80}"
            )
        tensors = {name: file.get_tensor(name) for name in shapes}
    check_tensors(path, tensors, shapes, integers)
    return tensors


def check_tensors(
    path: Path, tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], integers: Collection[str] = ()
) -> None:
    """ValueError unless there are tensors of these names and shapes: finite floats, but for the `integers`."""
    for name, shape in shapes.items():
        tensor, whole = tensors.get(name), name in integers
        fits = tensor is not None and (tensor.dtype == torch.int32 if whole else tensor.is_floating_point())
        if tensor is None or not fits or tuple(tensor.shape) != shape:
            got = "none" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
            raise ValueError(
                f"{path}: {name}: expected {'int32' if whole else 'floating point'} {list(shape)}, got {got}; "
                "the file is damaged or belongs to another model"
            )
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: {name}: expected finite numbers, got NaN or infinity")


def write_weights(
    weights: Path, tensors: Mapping[str, Tensor], config: Path, about: Mapping[str, Any], kind: str
) -> None:
    """Writes tensors, and a JSON file about them. ValueError for a JSON file of others: it does not contain `kind`."""
    if config.exists() and kind not in config.read_text(encoding="utf-8", errors="replace"):
        raise ValueError(f"{config}: expected no file, or one with {kind!r}, got another; use a separate folder")
    with atomic_file(weights) as file:
        file.write(safetensors_bytes({name: one.detach().cpu().contiguous() for name, one in tensors.items()}))
    with atomic_file(config) as file:
        file.write((json.dumps(about, indent=2) + "\n").encode())


class TrainedForm(Checked, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The sizes of trained parameters."""

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor."""


_Form = TypeVar("_Form", bound=TrainedForm)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedFolder(Generic[_Form]):
    """How parameters of one kind lie in a folder: a JSON file with their form, and their weights.

    what    their name in messages
    form    the type of their form
    format  names their kind, in the JSON file `config`
    half    whether `weights` are stored in float16
    """

    what: str
    form: type[_Form]
    format: str
    weights: str
    config: str = "config.json"
    half: bool = True
    integers: tuple[str, ...] = ()
    version = 1

    def write(self, folder: str | Path, form: _Form, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Writes both files; `about` goes into the JSON file. Does not overwrite a JSON file of another format."""
        stored = {
            name: tensor.half() if self.half and tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
        config = {"format": self.format, "version": self.version, **structs.asdict(form), **about}
        write_weights(Path(folder) / self.weights, stored, Path(folder) / self.config, config, self.format)

    def read_form(self, folder: str | Path) -> _Form:
        path = Path(folder) / self.config
        if not path.exists():
            raise FileNotFoundError(f"{path}: expected beside {self.weights}, got nothing of that name")
        return validate(of_format(read_object(path, lenient=True), path, self.format, (self.version,)), self.form, path)

    def read(self, folder: str | Path, **model: Any) -> tuple[_Form, dict[str, Tensor]]:
        """Reads and checks form and tensors for a model of these sizes, which may have gained tokens since. ValueError
        or FileNotFoundError names what is wrong.
        """
        folder = Path(folder)
        form, path = self.read_form(folder), folder / self.weights
        for name, wanted in model.items():
            found = getattr(form, name)
            if found > wanted if name == "vocab_size" else found != wanted:
                raise ValueError(
                    f"{folder / self.config}: expected {self.what} for this model's {name} of {wanted!r:.80}, "
                    f"got {found!r:.80}; they were trained for another"
                )
        if not path.exists():
            raise FileNotFoundError(f"{path}: expected beside {self.config}, got nothing of that name")
        return form, read_tensors(path, form.shapes(), self.integers)
