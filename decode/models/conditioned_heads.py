"""Heads conditioned on the root token: residual blocks on the target's last hidden state and the token that it gave.

Medusa's heads (Cai et al. 2024) see the hidden state alone, although the next token is known when drafting begins. Here
a linear layer first joins its embedding to the state, as in the first head of Hydra (Ankner et al. 2024, arXiv
2402.05109) and in multi-token prediction modules. Slots stay independent of each other, so that they span a lattice.
All heads share rows of the target's output table: those of a draft vocabulary, the tokens that the model writes often.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from rescore.decode.models.checkpoint import TrainedFolder, TrainedForm
from rescore.decode.models.draft_step import DraftVocabulary, StatelessHeads
from rescore.decode.models.heads_kind import TRAINED, heads_kind
from rescore.decode.models.medusa import MedusaHeads, ResidualBlock


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
        HEADS.write(folder, self.form, {**self.state_dict(), "draft_vocabulary": self.ids}, about)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        embedding: Tensor,
        table: Tensor,
        dtype: torch.dtype = torch.float32,
    ) -> ConditionedHeads:
        """Loads heads for a target with these embeddings, on their device, in evaluation mode. ValueError if they do
        not fit.
        """
        form, tensors = HEADS.read(folder, width=table.shape[1], vocab_size=table.shape[0])
        vocabulary = tensors.pop("draft_vocabulary")
        if int(vocabulary[0]) < 0 or int(vocabulary[-1]) >= len(table) or not (vocabulary[1:] > vocabulary[:-1]).all():
            raise ValueError(
                f"{folder}: {HEADS.weights}: draft_vocabulary: expected ascending ids in [0, {len(table)}), got others"
            )
        with torch.device("meta"):  # draws no random numbers
            heads = cls(slots=form.slots, layers=form.layers, embedding=embedding, table=table, vocabulary=vocabulary)
        heads.load_state_dict(tensors, assign=True)
        return heads.to(device=table.device, dtype=dtype).eval()


class HeadsForm(TrainedForm, frozen=True, kw_only=True):
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
        shapes: dict[str, tuple[int, ...]] = {"draft_vocabulary": (self.draft_vocabulary,)}
        for slot in range(self.slots):
            shapes[f"heads.{slot}.input.weight"] = (self.width, 2 * self.width)
            for layer in range(self.layers):
                shapes[f"heads.{slot}.blocks.{layer}.linear.weight"] = (self.width, self.width)
                shapes[f"heads.{slot}.blocks.{layer}.linear.bias"] = (self.width,)
        return shapes


HEADS = TrainedFolder(
    what="heads",
    form=HeadsForm,
    format="rescore heads",
    weights=TRAINED["trained"],
    integers=("draft_vocabulary",),
)


def stored_heads(
    path: str | Path, output: Callable[[Tensor], Tensor], embedding: Tensor, table: Tensor
) -> ConditionedHeads | MedusaHeads:
    """Loads heads of `rescore train heads`, or Medusa's, for a target with these input and output embeddings [V,
    width], in their dtype and on their device. output: the target's logits of a hidden state. ValueError or
    FileNotFoundError says what is wrong.
    """
    path = Path(path)
    if heads_kind(path) == "trained":
        return ConditionedHeads.load(path, embedding=embedding, table=table, dtype=table.dtype)
    return MedusaHeads.load(
        path,
        width=table.shape[1],
        vocab_size=table.shape[0],
        output=output,
        dtype=table.dtype,
        device=table.device,
    )
