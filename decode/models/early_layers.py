"""The first layers of a model as a small model that shares its weights; all layers verify.

Self-speculative decoding as in Draft & Verify (Zhang et al. 2023, arXiv 2309.08168) and LayerSkip (Elhoushi et al.
2024, arXiv 2404.16710). Lossless: the text is that of all layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.decoder_layers import DecoderLayers, with_modules
from rescore.decode.models.exit_heads import exits_of
from rescore.decode.models.heads_kind import EARLY


def early_layers(
    target: CausalLMTarget, count: int, translate: Callable[[int, Tensor], Tensor] | None = None
) -> CausalLMTarget:
    """Returns a target of the first `count` layers, the model's last norm and its output layer.

    translate  maps the number of layers and the state after them to the input of the norm; None: the state itself
    """
    model, found = target.model, DecoderLayers.of(target.model.get_decoder())
    depth = len(found.layers)
    if not 1 <= count < depth:
        raise ValueError(f"{type(model).__name__}: expected at least one layer, fewer than its {depth}, got {count}")
    norm = None if translate is None else _TranslatedNorm(found.norm, count, translate)
    decoder = found.replaced(found.layers[:count], norm)
    name = next((name for name, module in model.named_children() if module is found.decoder), None)
    if name is None:
        raise ValueError(
            f"{type(model).__name__}: expected a model of text alone, got its decoder inside another; "
            "use get_base_model() of PEFT's"
        )
    return CausalLMTarget(with_modules(model, {name: decoder}))


class _TranslatedNorm(nn.Module):
    def __init__(self, norm: nn.Module, count: int, translate: Callable[[int, Tensor], Tensor]):
        super().__init__()
        self.norm, self._count, self._translate = norm, count, translate

    def forward(self, state: Tensor) -> Any:
        return self.norm(self._translate(self._count, state))


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyLayers:
    """The source "early:LAYERS" or "early:LAYERS:DIR": the first layers, with the exits of `rescore calm train` in
    DIR if given.
    """

    layers: int
    exits: Path | None = None

    @classmethod
    def named(cls, heads: str | Path | None) -> EarlyLayers | None:
        """Parses a name; None if other heads are named, ValueError if it begins with "early:" but is invalid."""
        if not str(heads).startswith(EARLY):
            return None
        layers, _, folder = str(heads).removeprefix(EARLY).partition(":")
        if not layers.isdecimal() or not 1 <= int(layers) < 1 << 12:
            raise ValueError(f"{heads}: expected early:LAYERS or early:LAYERS:DIR, such as early:24")
        return cls(layers=int(layers), exits=Path(folder) if folder else None)

    def of(self, target: CausalLMTarget) -> CausalLMTarget:
        """These layers of the whole model."""
        translate = None
        if self.exits is not None:
            found = exits_of(self.exits, target.model)
            if self.layers not in found.exits:
                raise ValueError(f"{self.exits}: expected an exit after {self.layers} layers, got {found.exits}")
            translate = found.translate
        return early_layers(target, self.layers, translate)
