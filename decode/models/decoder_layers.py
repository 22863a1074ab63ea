"""The layers of a Hugging Face decoder, under the names that families use; decoders with layers replaced."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rescore.decode.models.private_copy import private_copy
from rescore.decode.models.target import Block

_ROTARY = "rotary_emb"
LAYERS = ("layers", "block", "h")
NORMS = ("norm", "final_layer_norm", "ln_f")


def is_rotary(decoder: Any) -> bool:
    """Whether positions are angles that the decoder computes, as far as one likes, and not rows of a table."""
    rotary = getattr(decoder, _ROTARY, None)
    return isinstance(rotary, nn.Module) and any(name.endswith("inv_freq") for name, _ in rotary.named_buffers())


class PassState(threading.local):
    """What parts of a decoder ask about the pass that this thread makes.

    block  what it reads
    whole  the chains of which that is a part
    long   whether longrope takes its angles of long texts; None: for each row those of its text, which is long if a
           pass reads it from its start to past the switch, or goes on past it. Drafts of a short text may go further
    tapped the outputs of the latest pass's layers that tell theirs, by number
    """

    block: Block | None = None
    whole: Block | None = None
    long: bool | None = None

    def __init__(self) -> None:
        self.tapped: dict[int, Tensor] = {}

    def tapping(self, layer: nn.Module, number: int) -> nn.Module:
        """A view of a layer that tells its output under this number."""

        def tell(_: nn.Module, given: Any, output: Any) -> None:
            self.tapped[number] = output[0] if isinstance(output, tuple) else output

        view = with_modules(layer, {})
        view._forward_hooks = OrderedDict(layer._forward_hooks)
        view.register_forward_hook(tell)
        return view

    @property
    def read(self) -> Block:
        assert self.block is not None, "a pass names its block"
        return self.block


class LongRope(nn.Module):
    """A decoder's longrope angles, those of long or of short texts, whichever positions a pass reads.

    A module of transformers overwrites its frequencies in every pass, so there is a copy of it for either.
    """

    def __init__(self, rotary: nn.Module, switch: int, state: PassState):
        super().__init__()
        self.short_rotary, self.long_rotary = private_copy(rotary), private_copy(rotary)
        self.switch, self.state = switch, state

    @classmethod
    def in_decoder(cls, decoder: Any, switch: int, state: PassState) -> tuple[Any, LongRope]:
        """The decoder with such angles, its weights shared, and the angles."""
        angles = cls(getattr(decoder, _ROTARY), switch, state)
        return with_modules(decoder, {_ROTARY: angles}), angles

    def forward(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self.state.long is not None:
            return (self._of_long if self.state.long else self._of_short)(x, position_ids, *args, **kwargs)
        block = self.state.whole
        assert block is not None, "a pass names its block"
        is_long = (torch.where(block.start == 0, block.last, block.start) >= self.switch)[:, None, None]
        cos, sin = self._of_long(x, position_ids, *args, **kwargs)
        short_cos, short_sin = self._of_short(x, position_ids, *args, **kwargs)
        return torch.where(is_long, cos, short_cos), torch.where(is_long, sin, short_sin)

    def _of_short(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self.short_rotary(x, position_ids.clamp(max=self.switch - 1), *args, **kwargs)

    def _of_long(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        last = torch.full_like(position_ids[..., :1], self.switch)
        cos, sin = self.long_rotary(x, torch.cat((position_ids, last), dim=-1), *args, **kwargs)
        return cos[..., :-1, :], sin[..., :-1, :]


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


def with_attributes(module: Any, of: Callable[[Any], dict[str, Any]]) -> Any:
    """The module with the attributes of(part) in each of its parts, in place of buffers of these names, everything else
    shared; the module itself if no part has any. ValueError as in `with_modules`.
    """
    children = {name: child if child is None else with_attributes(child, of) for name, child in module._modules.items()}
    attributes = of(module)
    if not attributes and all(child is module._modules[name] for name, child in children.items()):
        return module
    view = with_modules(module, children)
    buffers = {name: buffer for name, buffer in module._buffers.items() if name not in attributes}
    vars(view).update(attributes, _buffers=buffers)
    return view


def with_modules(module: Any, changed: dict[str, Any]) -> Any:
    """A copy of a module with other modules under these names; the rest is shared. The original is unchanged.

    ValueError if the module has a `forward` of its own, which is bound to the original.
    """
    if "forward" in vars(module):
        raise ValueError(
            f"{type(module).__name__}: expected the forward of its class, got another on the instance "
            "(torch.compile, a hook of accelerate), under which its parts cannot be replaced; remove it"
        )
    view = object.__new__(type(module))  # as `copy.copy` would make it, in a tenth of the time
    vars(view).update(vars(module), _modules={**module._modules, **changed})
    return view


def _name(decoder: Any, names: tuple[str, ...], kind: type, what: str) -> str:
    for name in names:
        if isinstance(getattr(decoder, name, None), kind):
            return name
    raise ValueError(
        f"{type(decoder).__name__}: expected {what}, named {', '.join(names[:-1])} or {names[-1]}, got none; "
        "this family cannot exit early"
    )
