"""Medusa heads: residual blocks on the target's last hidden state, one stack per head.

Cai et al. 2024 (arXiv 2401.10774), section 2.1.1: head k is softmax(W2 (SiLU(W1 h + b) + h)), for the token k + 1
positions after the one that gave h. W2 is the head's own, or the backbone's.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from rescore.decode.models.checkpoint import check_tensors, config_in, tensor_files, write_weights
from rescore.decode.models.draft_step import DraftVocabulary, StatelessHeads
from rescore.decode.models.heads_kind import MEDUSA
from rescore.lattice.checked import Checked
from rescore.lattice.mapped import safetensors

CONFIG = "config.json"
_INSIDE_MODEL = re.compile(r"(?:.*\.)?medusa_head\.(\d+\..+)", re.ASCII)
_BLOCK = re.compile(r"(\d{1,4})\.(\d{1,4})\.linear\.(?:weight|bias)", re.ASCII)
_LAST = re.compile(r"(\d{1,4})\.(\d{1,4})\.weight", re.ASCII)


class ResidualBlock(nn.Module):
    """x + SiLU(W x + b), the identity before training."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(x))


class MedusaHeads(nn.Module, StatelessHeads):
    """T heads of `layers` residual blocks each, as `Heads`.

    output  maps hidden states [..., width] to logits [..., V]: the backbone's (`target.logits`), shared by all heads
            and not part of this module. None: each head has its own linear layer for `vocab_size` tokens
    Parameters are named as in the public checkpoints, after "heads.": <head>.<layer>.linear.{weight,bias} and, if heads
    have their own last layer, <head>.<layers>.weight.
    """

    def __init__(
        self,
        *,
        heads: int,
        width: int,
        layers: int = 1,
        output: Callable[[Tensor], Tensor] | None = None,
        vocab_size: int | None = None,
    ):
        super().__init__()
        if (output is None) == (vocab_size is None):
            raise ValueError(
                "expected either output, the backbone's, or vocab_size for heads with their own last layers; "
                "got both or neither"
            )
        self.form = MedusaForm(heads=heads, layers=layers, width=width, vocab_size=vocab_size)
        self.slots = heads
        self._output = (output,)  # in a tuple, so that a module does not become a submodule
        self.heads = nn.ModuleList(nn.Sequential(*self._stack()) for _ in range(heads))

    def _stack(self) -> list[nn.Module]:
        stack: list[nn.Module] = [ResidualBlock(self.form.width) for _ in range(self.form.layers)]
        if self.form.vocab_size is not None:
            stack.append(nn.Linear(self.form.width, self.form.vocab_size, bias=False))
        return stack

    @property
    def _stacks(self) -> list[nn.Sequential]:
        return [cast(nn.Sequential, head) for head in self.heads]

    def states(self, hidden: Tensor) -> Tensor:
        """States [..., T, width] after each head's residual blocks, from hidden states [..., width]."""
        return torch.stack([stack[: self.form.layers](hidden) for stack in self._stacks], dim=-2)

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        """Logits [..., T, V] from hidden states [..., width]; ignores the root tokens."""
        mixed = self.states(hidden)
        (output,) = self._output
        if output is not None:
            return output(mixed)
        return torch.stack([stack[-1](mixed[..., t, :]) for t, stack in enumerate(self._stacks)], dim=-2)

    def save(self, folder: str | Path, base_model: str = "") -> None:
        """Writes the public format into `folder`: medusa_lm_head.safetensors and config.json. `base_model` names the
        backbone.
        """
        tensors = {name.removeprefix("heads."): tensor for name, tensor in self.state_dict().items()}
        config = {
            "medusa_num_heads": self.form.heads,
            "medusa_num_layers": self.form.layers,
            "base_model_name_or_path": base_model,
        }
        write_weights(Path(folder) / MEDUSA[0], tensors, Path(folder) / CONFIG, config, "medusa_num_heads")

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        width: int,
        vocab_size: int,
        output: Callable[[Tensor], Tensor],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> MedusaHeads:
        """Loads a public checkpoint (see `read_medusa`) for a backbone of this width and V, in evaluation mode.

        `output` is used if the heads have no last layer of their own.
        """
        form, tensors = read_medusa(path, width=width, vocab_size=vocab_size)
        own = form.vocab_size is not None
        with torch.device("meta"):  # draws no random numbers
            heads = cls(
                heads=form.heads,
                width=width,
                layers=form.layers,
                output=None if own else output,
                vocab_size=form.vocab_size,
            )
        heads.load_state_dict({f"heads.{name}": tensor for name, tensor in tensors.items()}, assign=True)
        if form.vocab_size is not None and form.vocab_size < vocab_size:
            known = torch.arange(form.vocab_size, dtype=torch.int32, device=device)
            heads.vocabulary = DraftVocabulary(ids=known, size=vocab_size)
        return heads.to(device=device, dtype=dtype).eval()


class MedusaForm(Checked, frozen=True, kw_only=True):
    """Shape of Medusa heads: `heads` is T; vocab_size is V if each head has its own last layer, else None."""

    heads: Annotated[int, Meta(ge=1)]
    layers: Annotated[int, Meta(ge=0)]
    width: Annotated[int, Meta(ge=1)]
    vocab_size: Annotated[int, Meta(ge=1)] | None = None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor."""
        shapes: dict[str, tuple[int, ...]] = {}
        for head in range(self.heads):
            for layer in range(self.layers):
                shapes[f"{head}.{layer}.linear.weight"] = (self.width, self.width)
                shapes[f"{head}.{layer}.linear.bias"] = (self.width,)
            if self.vocab_size is not None:
                shapes[f"{head}.{self.layers}.weight"] = (self.vocab_size, self.width)
        return shapes


def read_medusa(path: str | Path, *, width: int, vocab_size: int) -> tuple[MedusaForm, dict[str, Tensor]]:
    """Reads the form and tensors, named <head>.<layer>..., of heads in a folder or file, for a backbone of this width
    and V.

    A folder holds medusa_lm_head.safetensors, medusa_lm_head.pt, or a whole model in safetensors whose tensors
    medusa_head.<head>... are the heads. config.json beside the weights may have medusa_num_heads (only the first so
    many are used) and medusa_num_layers; otherwise the tensors decide. ValueError for anything but Medusa heads of this
    backbone.
    """
    path = Path(path)
    config, files = config_in(path if path.is_dir() else path.parent), _files(path)
    tensors: dict[str, Tensor] = {}
    for file in files:
        tensors.update(_pickled(file) if file.suffix != ".safetensors" else _safe(file))
    form = _form(path, tensors, config, width, vocab_size)
    return form, _checked(path, tensors, form)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"{path}: expected Medusa heads, a folder or a file, got nothing of that name")
        return [path]
    for name in MEDUSA:
        if (path / name).exists():
            return [path / name]
    inside = {file for name, file in tensor_files(path).items() if _INSIDE_MODEL.fullmatch(name)}
    if not inside:
        raise ValueError(
            f"{path}: expected {', '.join(MEDUSA)} or a model in safetensors with tensors 'medusa_head.0...', "
            "got none of them"
        )
    return sorted(inside)


def _safe(path: Path) -> dict[str, Tensor]:
    """Only the heads' tensors of a file."""
    with safetensors(path) as file:
        return {short: file.get_tensor(name) for name, short in _head_names(list(file.keys())).items()}


def _pickled(path: Path) -> dict[str, Tensor]:
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"{path}: expected a pickle of tensors alone, got one that would run code or is damaged; "
            "get the heads as safetensors"
        ) from None
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # torch raises many kinds
        told = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path}: expected a file of torch.save, got one that cannot be read: {told}") from None
    if not isinstance(value, dict) or not all(
        isinstance(k, str) and type(v) is Tensor and v.layout == torch.strided for k, v in value.items()
    ):
        raise ValueError(
            f"{path}: expected a dictionary of named tensors, got {type(value).__name__} with other things in it"
        )
    return {short: value[name] for name, short in _head_names(list(value)).items()}


def _head_names(names: list[str]) -> dict[str, str]:
    """Maps names in the file to <head>.<layer>...: what follows 'medusa_head.' in a whole model, else every name."""
    inside = {name: match[1] for name in names if (match := _INSIDE_MODEL.fullmatch(name))}
    return inside or {name: name for name in names}


def _form(path: Path, tensors: dict[str, Tensor], config: dict[str, Any], width: int, vocab_size: int) -> MedusaForm:
    """The form given by the tensors' names, checked against the config."""
    blocks = [match for name in tensors if (match := _BLOCK.fullmatch(name))]
    last = [match for name in tensors if (match := _LAST.fullmatch(name))]
    if not blocks and not last:
        raise ValueError(
            f"{path}: expected tensors of Medusa heads, such as '0.0.linear.weight', got {sorted(tensors)[:3]}"
        )
    found = len({int(match[1]) for match in (*blocks, *last)})
    layers = len({int(match[2]) for match in blocks})
    heads = config.get("medusa_num_heads", found)
    if type(heads) is not int or not 1 <= heads <= found:
        raise ValueError(
            f"{path}: expected config.json's medusa_num_heads {heads!r}, got tensors of {found}; some are missing, "
            "or the config belongs to another model"
        )
    if config.get("medusa_num_layers", layers) != layers:
        raise ValueError(
            f"{path}: expected heads of medusa_num_layers {config['medusa_num_layers']!r} by config.json, "
            f"got tensors of {layers}"
        )
    own = tensors.get(f"0.{layers}.weight")
    size = vocab_size if own is None else min(len(own), vocab_size)  # the backbone may have gained tokens since
    return MedusaForm(heads=heads, layers=layers, width=width, vocab_size=size if last else None)


def _checked(path: Path, tensors: dict[str, Tensor], form: MedusaForm) -> dict[str, Tensor]:
    """The tensors of the form, checked to be complete, of the right shape, and finite."""
    shapes = form.shapes()
    strange = [name for name in tensors if not (_BLOCK.fullmatch(name) or _LAST.fullmatch(name))]
    if strange:
        raise ValueError(
            f"{path}: expected tensors of Medusa heads alone, got {sorted(strange)[:3]} as well; "
            "the file holds another kind of heads"
        )
    check_tensors(path, tensors, shapes)
    return {name: tensors[name] for name in shapes}
