"""Trained parts of a model's exits, translations and classifiers; the model itself is unchanged.

A layer's state predicts badly through the last norm and the output layer, unless the model was trained for it, as the
paper's was. A translation maps it to what the last layer would have made of it: x + x W + b of the state x, scaled to a
root mean square of 1 (the tuned lens of Belrose et al. 2023, arXiv 2303.08112). A classifier, sigmoid(v x + c),
predicts whether the exit's token will be the model's own (Schuster et al. 2022, arXiv 2207.07061, section 3).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from rescore.decode.models.checkpoint import TrainedFolder, TrainedForm
from rescore.decode.models.decoder_layers import DecoderLayers


class ExitHeads(nn.Module):
    """Translations and classifiers after the layers `exits`. Untrained: the state unchanged, and probability 1/2.

    translation [E, width, width], offset [E, width]; classifier [E, width], bias [E]: row e is for exits[e] layers
    """

    name = "classifier"
    translation: Tensor
    offset: Tensor
    classifier: Tensor
    bias: Tensor

    def __init__(self, form: ExitForm):
        super().__init__()
        self.form = form
        self._row = {layers: row for row, layers in enumerate(form.exits)}
        for name, shape in form.shapes().items():
            self.register_buffer(name, torch.zeros(shape))

    @property
    def exits(self) -> tuple[int, ...]:
        return self.form.exits

    def translate(self, layers: int, state: Tensor) -> Tensor:
        """Maps states [..., width] after `layers` layers to the input of the last norm."""
        row, x = self._row[layers], scale_rms(state)
        return x + x @ self.translation[row] + self.offset[row]

    def forward(self, layers: int, state: Tensor, below: Tensor) -> Tensor:
        """A `Confidence`: the probability that the exit's token is the last layer's."""
        row = self._row[layers]
        return torch.sigmoid((scale_rms(state) @ self.classifier[row] + self.bias[row]).float())

    def save(self, folder: str | Path, about: dict[str, Any]) -> None:
        """Writes two files; `about` is metadata."""
        EXITS.write(folder, self.form, dict(self.named_buffers()), about)

    @classmethod
    def load(cls, folder: str | Path, *, depth: int, width: int) -> ExitHeads:
        """Loads the heads of a folder for a model of this depth and width. ValueError if they do not fit."""
        form, tensors = EXITS.read(folder, depth=depth, width=width)
        heads = cls(form)
        heads.load_state_dict(tensors)
        return heads.float().eval()


def exits_of(folder: str | Path, model: Any) -> ExitHeads:
    """Loads the exits of a folder for a Hugging Face model, in its dtype and on its device."""
    depth = len(DecoderLayers.of(model.get_decoder()).layers)
    width = model.config.get_text_config(decoder=True).hidden_size
    return ExitHeads.load(folder, depth=depth, width=width).to(device=model.device, dtype=model.dtype)


def scale_rms(state: Tensor) -> Tensor:
    """Scales states [..., width] to a root mean square of 1."""
    return F.rms_norm(state, state.shape[-1:])


class ExitForm(TrainedForm, frozen=True, kw_only=True):
    """The layers after which tokens may exit, ascending, of a model of this depth and width."""

    exits: Annotated[tuple[Annotated[int, Meta(ge=1)], ...], Meta(min_length=1)]
    depth: Annotated[int, Meta(ge=1, le=1 << 12)]
    width: Annotated[int, Meta(ge=1, le=1 << 16)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if [*self.exits] != sorted({*self.exits}) or self.exits[-1] >= self.depth:
            raise ValueError(f"exits: expected ascending layers below the last, {self.depth}, got {self.exits!r:.80}")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        n, width = len(self.exits), self.width
        return {"translation": (n, width, width), "offset": (n, width), "classifier": (n, width), "bias": (n,)}


EXITS = TrainedFolder(
    what="exits", form=ExitForm, format="rescore exits", weights="exits.safetensors", config="exits.json"
)
