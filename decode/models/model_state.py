"""What decides how a model reads tokens, apart from its weights."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

from torch.nn.modules import module as torch_module

from rescore.decode.models.narrow_linear import narrowed

_PLACEHOLDER = re.compile(r"(image|video|audio)_token_(id|index)", re.ASCII)
_PLAIN = (bool, int, float, str, FunctionType, MethodType)


class OfModel:
    """What refers to a model of transformers."""

    _model: Any
    decoder: Any
    _output: Any
    # The decoder and the output layer as the latest call began, whose layers read few tokens fast.
    _narrowed: tuple[Any, Any] | None = None

    @property
    def model(self) -> Any:
        return self._model() if isinstance(self._model, weakref.ref) else self._model

    @property
    def placeholders(self) -> frozenset[int]:
        """The ids that stand for images or sound in a text, by the configuration's fields."""
        fields = ((name, value) for name, value in vars(self.model.config).items() if _PLACEHOLDER.fullmatch(name))
        return frozenset(value for _, value in fields if isinstance(value, int))

    def narrow(self) -> None:
        """Begins a call: its passes run the decoder and the output layer as they are now."""
        self._narrowed = narrowed(self.decoder), narrowed(self._output)

    @property
    def parts(self) -> tuple[Any, Any]:
        """The decoder and the output layer that passes run."""
        return self._narrowed or (self.decoder, self._output)

    def let_go(self) -> None:
        """Refers to the model weakly from now on, so that who keeps this for the model does not keep the model."""
        self._model = weakref.ref(self.model)


def state_of(model: Any) -> tuple[Any, ...]:
    """A model's modules and their attributes, methods and hooks. Two states are equal if nothing of that has changed. A
    state refers to the model weakly.
    """
    hooks = (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)
    return (
        type(model).prepare_inputs_for_generation,
        str(vars(model.config)),
        *(key for one in hooks for key in one),
        *(_weakly(part) for module in model.modules() for part in _state_of_module(module)),
    )


def _state_of_module(module: Any) -> Iterator[Any]:
    yield module
    yield type(module).forward
    yield type(module).__call__
    yield vars(module).get("forward")  # of the instance, of any kind
    yield from module._forward_hooks  # numbers that are never used again
    yield from module._forward_pre_hooks
    for value in vars(module).values():
        if isinstance(value, _PLAIN):
            yield value
        elif isinstance(value, list):  # adapters that are active, or merged
            yield tuple(_weakly(one) for one in value if isinstance(one, _PLAIN))
        elif isinstance(value, dict):  # their scales
            yield tuple(item for item in value.items() if isinstance(item[1], (bool, int, float, str)))


def _weakly(value: Any) -> Any:
    """A reference to a value, equal to others to it; the value itself, of a type that takes none."""
    try:
        return weakref.ref(value)
    except TypeError:
        return value
