"""Private copies of models, to try things on while other threads decode.

Modules, configurations and tables of hooks are copied, weights are shared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
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

    Code that is bound to a module is bound to its copy: methods, and functions, partials and callable objects that
    refer to it, as `forward` of an instance does. What torch.compile made of such code is replaced by the code.

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
        """The copy of a value; the value itself if it neither is nor refers to anything that is copied."""
        if id(value) in self.made:
            return self.made[id(value)][1]
        if isinstance(value, (nn.Module, PreTrainedConfig, GenerationConfig)):
            return self.of_object(value)
        if isinstance(value, (dict, list, tuple, set)):
            return self._of_container(value)
        return self._of_code(value) if callable(value) else value

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

    def _of_container(self, value: Any) -> Any:
        """The copy of a dictionary, or of another container of a plain type."""
        if isinstance(value, dict):
            made = self._keep(value, copy.copy(value))
            for key, part in list(value.items()):
                made[key] = self.of(part)
            return made
        if type(value) in (list, set):
            return self._keep(value, type(value)(map(self.of, list(value))))
        return self._changed(value, value, lambda parts: parts) if type(value) is tuple else value

    def _of_code(self, value: Any) -> Any:
        if "_torchdynamo_orig_callable" in getattr(value, "__dict__", {}):
            return self.of(value._torchdynamo_orig_callable)
        if isinstance(value, MethodType):
            return self._changed(value, (value.__self__,), lambda parts: MethodType(value.__func__, *parts))
        if isinstance(value, partial):
            given = value.func, value.args, value.keywords
            return self._changed(value, given, lambda parts: partial(parts[0], *parts[1], **parts[2]))
        is_function = isinstance(value, FunctionType)
        if not is_function and (type(value).__new__ is not object.__new__ or not hasattr(value, "__dict__")):
            return value
        self._keep(value, value)  # while it is looked into, since it may refer to itself
        if is_function:
            cells = value.__closure__ or ()
            contents = [cell.cell_contents for cell in cells if cell != CellType()]
            return self._keep(value, self._changed(value, contents, partial(_with_contents, value)))
        return self._keep(value, self._changed(value, list(vars(value).values()), partial(_with_attributes, value)))

    def _changed(self, value: Any, parts: Sequence[Any], make: Callable[[Any], Any]) -> Any:
        """make(copies of the parts); the value itself if none of them is copied."""
        copies = tuple(self.of(part) for part in parts)
        return value if all(copy is part for copy, part in zip(copies, parts)) else make(copies)


def _with_contents(function: FunctionType, contents: Sequence[Any]) -> FunctionType:
    """The function with other values in place of those that its closure refers to."""
    rest = iter(contents)
    cells = tuple(cell if cell == CellType() else CellType(next(rest)) for cell in function.__closure__ or ())
    made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _with_attributes(value: Any, attributes: Sequence[Any]) -> Any:
    made = object.__new__(type(value))
    vars(made).update(zip(vars(value), attributes))
    return made
