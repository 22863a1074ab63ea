"""The layers of a Hugging Face decoder, under the names that families use; decoders with layers replaced."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from torch import nn

LAYERS = ("layers", "block", "h")
NORMS = ("norm", "final_layer_norm", "ln_f")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecoderLayers:
    """The decoder's names for its layers and its final norm. ValueError if it has none of the known ones."""

    decoder: Any
    layers_name: str
    norm_name: str

    @classmethod
    def of(cls, decoder: Any) -> DecoderLayers:
        return cls(
            decoder=decoder,
            layers_name=_name(decoder, LAYERS, nn.ModuleList, "a list of layers"),
            norm_name=_name(decoder, NORMS, nn.Module, "a norm after its layers"),
        )

    @property
    def layers(self) -> list[nn.Module]:
        return list(getattr(self.decoder, self.layers_name))

    @property
    def norm(self) -> nn.Module:
        return getattr(self.decoder, self.norm_name)

    def replaced(self, layers: list[nn.Module], norm: nn.Module | None = None) -> Any:
        """A decoder that runs these layers, and this norm after them if given; everything else is shared."""
        changed = {self.layers_name: nn.ModuleList(layers), self.norm_name: norm or self.norm}
        return with_modules(self.decoder, changed)


def with_modules(module: Any, changed: dict[str, Any]) -> Any:
    """A copy of a module with other modules under these names; the rest is shared. The original is unchanged.

    ValueError if the module has a `forward` of its own, which is bound to the original.
    """
    if "forward" in vars(module):
        raise ValueError(
            f"{type(module).__name__}: expected the forward of its class, got another on the instance "
            "(torch.compile, a hook of accelerate), under which its parts cannot be replaced; remove it"
        )
    view = copy.copy(module)
    view._modules = {**module._modules, **changed}
    return view


def _name(decoder: Any, names: tuple[str, ...], kind: type, what: str) -> str:
    for name in names:
        if isinstance(getattr(decoder, name, None), kind):
            return name
    raise ValueError(
        f"{type(decoder).__name__}: expected {what}, named {', '.join(names[:-1])} or {names[-1]}, got none; "
        "this family cannot exit early"
    )
