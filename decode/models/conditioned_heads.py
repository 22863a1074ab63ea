"""Heads conditioned on the root token: residual blocks on the target's last hidden state and the token that it gave.

Medusa's heads (Cai et al. 2024) see the hidden state alone, although the next token is known when drafting begins. Here
a linear layer first joins its embedding to the state, as in the first head of Hydra (Ankner et al. 2024, arXiv
2402.05109) and in multi-token prediction modules. Slots stay independent of each other, so that they span a lattice.
All heads share rows of the target's output table: those of a draft vocabulary, the tokens that the model writes often.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from msgspec import Meta, structs
from torch import Tensor, nn

from rescore.decode.models.bita import holds_bita
from rescore.decode.models.checkpoint import check_floats, read_config, read_tensors, write_folder
from rescore.decode.models.heads import DraftVocabulary, StatelessHeads
from rescore.decode.models.medusa import MedusaHeads, ResidualBlock
from rescore.lattice.checked import Checked


class SlotHead(nn.Module):
    """The head of one slot: the state for its logits, before training the target's own."""

    def __init__(self, width: int, layers: int):
        super().__init__()
        self.input = nn.Linear(2 * width, width, bias=False)
        with torch.no_grad():
            self.input.weight.copy_(torch.eye(width, 2 * width))
        self.blocks = nn.Sequential(*(ResidualBlock(width) for _ in range(layers)))

    def forward(self, joined: Tensor) -> Tensor:
        return self.blocks(self.input(joined))


class ConditionedHeads(nn.Module, StatelessHeads):
    """T heads of `layers` residual blocks each, as `Heads`.

    embedding  the target's input embeddings [V, width]; table: its output embeddings, of the same shape. Neither is
               trained or saved
    vocabulary  ids of the draft vocabulary, ascending [D]
    """

    def __init__(self, *, slots: int, layers: int, embedding: Tensor, table: Tensor, vocabulary: Tensor):
        super().__init__()
        size, width = table.shape
        self.form = HeadsForm(
            slots=slots, layers=layers, width=width, vocab_size=size, draft_vocabulary=len(vocabulary)
        )
        self.slots = slots
        self.heads = nn.ModuleList(SlotHead(width, layers) for _ in range(slots))
        self._fixed = (embedding.detach(), table.detach()[vocabulary.long().to(table.device)])
        self.ids = vocabulary.int().to(table.device)
        self.vocabulary = DraftVocabulary(ids=self.ids, size=size)

    @property
    def table(self) -> Tensor:
        """The output embeddings of the draft vocabulary [D, width]."""
        return self._fixed[1]

    def joined(self, hidden: Tensor, certain: Tensor) -> Tensor:
        """The input of all heads [..., 2 width]: the state, and the token's embedding scaled to the size of a state."""
        token = F.rms_norm(self._fixed[0][certain], hidden.shape[-1:])
        return torch.cat((hidden, token.to(hidden.dtype)), dim=-1)

    def states(self, hidden: Tensor, certain: Tensor) -> list[Tensor]:
        """For every slot, the state [..., width] whose products with the table are its logits."""
        joined = self.joined(hidden, certain)
        return [head(joined) for head in self.heads]

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        states = torch.stack(self.states(hidden, certain), dim=-2)
        if self.table.dtype != torch.float32:
            return states @ self.table.T
        # With few rows, table @ states takes a third of the time of states @ table on a CPU.
        return (self.table @ states.flatten(0, -2).T).T.unflatten(0, states.shape[:-1])

    def save(self, folder: str | Path, about: dict) -> None:
        """Writes the heads in float16 into `folder`; `about` is metadata for its config.json."""
        write_heads(folder, self.form, {**self.state_dict(), "draft_vocabulary": self.ids}, about)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        embedding: Tensor,
        table: Tensor,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> ConditionedHeads:
        """Loads heads for a target with these embeddings, in evaluation mode. ValueError if they do not fit."""
        form, tensors = read_heads(folder, width=table.shape[1], vocab_size=table.shape[0])
        vocabulary = tensors.pop("draft_vocabulary")
        heads = cls(slots=form.slots, layers=form.layers, embedding=embedding, table=table, vocabulary=vocabulary)
        heads.load_state_dict(tensors)
        return heads.to(device=device, dtype=dtype).eval()


CONFIG = "config.json"
WEIGHTS = "heads.safetensors"
FORMAT = "rescore heads"
VERSION = 1


class HeadsForm(Checked, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """T slots, residual blocks per slot, the target's width and V, and the D tokens of the draft vocabulary."""

    slots: Annotated[int, Meta(ge=1, le=64)]
    layers: Annotated[int, Meta(ge=0, le=64)]
    width: Annotated[int, Meta(ge=1, le=1 << 16)]
    vocab_size: Annotated[int, Meta(ge=1, le=1 << 24)]
    draft_vocabulary: Annotated[int, Meta(ge=1)]

    def __post_init__(self) -> None:
        super().__post_init__()
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
        Path(folder) / CONFIG, WEIGHTS, stored, {"format": FORMAT, "version": VERSION, **structs.asdict(form), **about}
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
    return read_config(folder / CONFIG, WEIGHTS, FORMAT, VERSION, HeadsForm)


def _check(path: Path, name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if name != "draft_vocabulary":
        check_floats(path, name, tensor, shape)
    elif tuple(tensor.shape) != shape or tensor.dtype != torch.int32:
        raise ValueError(
            f"{path}: {name}: expected int32 {list(shape)}, got {tensor.dtype} {list(tensor.shape)}; "
            "the file is damaged or belongs to another model"
        )


def stored_heads(
    path: str | Path, output: Callable[[Tensor], Tensor], embedding: Tensor, table: Tensor
) -> ConditionedHeads | MedusaHeads:
    """Loads heads of `rescore train heads`, or Medusa's, for a target with these input and output embeddings [V,
    width], in their dtype and on their device. output: the target's logits of a hidden state. ValueError or
    FileNotFoundError says what is wrong.
    """
    path = Path(path)
    if holds_bita(path):
        raise ValueError(
            f"{path}: expected heads of `rescore train heads`, or none, got mask tokens of BiTA, which only causal "
            "language models of Hugging Face can read"
        )
    if path.is_dir() and holds_heads(path):
        return ConditionedHeads.load(path, embedding=embedding, table=table, dtype=table.dtype, device=table.device)
    return MedusaHeads.load(
        path,
        width=table.shape[1],
        vocab_size=table.shape[0],
        output=output,
        dtype=table.dtype,
        device=table.device,
    )
