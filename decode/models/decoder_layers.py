"""The layers of a Hugging Face decoder, by the names that families give them; decoders with others in their place."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from torch import nn

LAYERS = ("layers", "block", "h")
NORMS = ("norm", "final_layer_norm", "ln_f")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecoderLayers:
    """layers, and the norm behind the last, under their names in the decoder. ValueError where there are none such."""

    decoder: Any
    layers_name: str
    norm_name: str

    @classmethod
    def of(cls, decoder: Any) -> DecoderLayers:
        return cls(
            decoder=decoder,
            layers_name=_name(decoder, LAYERS, nn.ModuleList, "a list of layers"),
            norm_name=_name(decoder, NORMS, nn.Module, "a norm behind its layers"),
        )

    @property
    def layers(self) -> list[nn.Module]:
        return list(getattr(self.decoder, self.layers_name))

    @property
    def norm(self) -> nn.Module:
        return getattr(self.decoder, self.norm_name)

    def replaced(self, layers: list[nn.Module], norm: nn.Module | None = None) -> Any:
        """A decoder that runs these layers, and this norm behind them if one is given; it shares all else."""
        changed = {self.layers_name: nn.ModuleList(layers), self.norm_name: norm or self.norm}
        return with_modules(self.decoder, changed)


def with_modules(module: Any, changed: dict[str, Any]) -> Any:
    """A module with others under these names, which shares all else with the one given; that one stays as it is."""
    view = copy.copy(module)
    view._modules = {**module._modules, **changed}
    return view


def _name(decoder: Any, names: tuple[str, ...], kind: type, what: str) -> str:
    for name in names:
        if isinstance(getattr(decoder, name, None), kind):
            return name
    raise ValueError(
        f"{type(decoder).__name__}: expected {what}, named {', '.join(names[:-1])} or {names[-1]}, got none; "
        "layers of this family cannot be left early"
    )
