"""Private copies of models, to try things on while other threads decode.

Modules, configurations and tables of hooks are copied, weights are shared.
"""

from __future__ import annotations

import copy
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any, TypeVar

from torch import nn

from rescore.lattice.extras import needed_for

with needed_for("a model of Hugging Face"):
    from transformers import GenerationConfig, PreTrainedConfig

Owner = TypeVar("Owner")


def private_copy(owner: Owner, window: int | None = None) -> Owner:
    """A copy of an object that holds models, such as a target, with private copies of these. Running it writes nothing
    that the original reads.

    Code that is bound to a module is bound to its copy: methods, partials, and functions that refer to it, as `forward`
    of an instance may be. What torch.compile made of such code is replaced by the code.

    window: the copies' sliding windows are at most so many tokens wide
    """
    copies = _Copies()
    made = copies.of_object(owner)
    if window is not None:
        copies.narrow(window)
    return made


class _Copies:
    """made: original and copy, by the id of the original, which no other object takes as long as it is referred to."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any) -> Any:
        """The copy of a value: of a module, a configuration, a plain container, or code that refers to any; other
        values are shared.
        """
        if id(value) in self.made:
            return self.made[id(value)][1]
        if isinstance(value, (nn.Module, PreTrainedConfig, GenerationConfig)):
            return self.of_object(value)
        if isinstance(value, dict):
            made = self._keep(value, copy.copy(value))
            made.update({key: self.of(part) for key, part in list(value.items())})
            return made
        if type(value) in (list, set, tuple):
            return self._keep(value, type(value)(map(self.of, list(value))))
        if isinstance(value, MethodType):
            return MethodType(self.of(value.__func__), self.of(value.__self__))
        if isinstance(value, partial):
            return partial(self.of(value.func), *self.of(value.args), **self.of(value.keywords))
        return self._of_function(value) if isinstance(value, FunctionType) else value

    def of_object(self, value: Any) -> Any:
        made = self._keep(value, object.__new__(type(value)))
        vars(made).update({name: self.of(part) for name, part in list(vars(value).items())})
        if isinstance(made, nn.Module):
            # Such buffers are computed, and some families write them anew in a pass; the others are weights.
            for name in made._non_persistent_buffers_set & made._buffers.keys():
                buffer = made._buffers[name]
                made._buffers[name] = None if buffer is None else buffer.clone()
        return made

    def narrow(self, window: int) -> None:
        for _, made in self.made.values():
            named = getattr(made, "__dict__", {})
            if isinstance(named.get("sliding_window"), int):
                named["sliding_window"] = min(window, named["sliding_window"])

    def _keep(self, value: Any, made: Any) -> Any:
        self.made[id(value)] = value, made
        return made

    def _of_function(self, value: FunctionType) -> Any:
        if "_torchdynamo_orig_callable" in vars(value):
            return self.of(value._torchdynamo_orig_callable)  # type: ignore[attr-defined]
        if not value.__closure__:
            return value
        self._keep(value, value)  # while it is looked into, since it may refer to itself
        cells = [one if one == CellType() else CellType(self.of(one.cell_contents)) for one in value.__closure__]
        made = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, tuple(cells))
        made.__kwdefaults__ = value.__kwdefaults__
        vars(made).update(vars(value))  # such as the wrapped function, whose signature it has
        return self._keep(value, made)
