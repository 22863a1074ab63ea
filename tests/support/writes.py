"""What a call writes to a model: attributes of modules and configurations, tables of hooks and the like, buffers."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from transformers import GenerationConfig, PreTrainedConfig

Written = set[tuple[str, str]]
KINDS = (nn.Module, PreTrainedConfig, GenerationConfig)


def parts_of(model: nn.Module) -> dict[str, Any]:
    """Modules and configurations by name."""
    parts: dict[str, Any] = dict(model.named_modules(prefix="model"))
    for name, part in list(parts.items()):
        parts |= {f"{name}.{key}": value for key, value in vars(part).items() if isinstance(value, KINDS[1:])}
    for name, part in list(parts.items()):
        parts |= {f"{name}.{key}": value for key, value in vars(part).items() if isinstance(value, PreTrainedConfig)}
    return parts


class _Table(OrderedDict):
    """A dictionary that notes what is written, once `note` is set; copies note nothing."""

    note = None

    def __setitem__(self, key, value):
        if self.note:
            self.note()
        super().__setitem__(key, value)

    def __delitem__(self, key):
        if self.note:
            self.note()
        super().__delitem__(key)

    def pop(self, *given):
        if self.note:
            self.note()
        return super().pop(*given)

    def __reduce_ex__(self, protocol):
        return _Table, (list(self.items()),)


def _noted(parts: dict[int, str], written: Written, own: Any) -> Any:
    def noting(self: Any, name: str, *value: Any) -> None:
        if id(self) in parts:
            written.add((parts[id(self)], name))
        own(self, name, *value)

    return noting


def _tables_of(part: Any) -> list[str]:
    return [name for name, value in vars(part).items() if type(value) in (dict, OrderedDict)]


@contextmanager
def writes_to(model: nn.Module) -> Iterator[Written]:
    """The writes within the block, as names of parts and what is written of each, also those that are undone."""
    parts, written = parts_of(model), set()
    by_id = {id(part): name for name, part in parts.items()}
    tensors = {(name, key): value for name, part in parts.items() for key, value in vars(part).items()}
    tensors |= {(name, key): value for name, one in model.named_modules() for key, value in one._buffers.items()}
    versions = {key: value._version for key, value in tensors.items() if torch.is_tensor(value)}
    attributes = {name: set(vars(part)) for name, part in parts.items()}
    with ExitStack() as stack:
        for kind in {type(part) for part in parts.values()}:
            for method in ("__setattr__", "__delattr__"):
                stack.enter_context(patch.object(kind, method, _noted(by_id, written, getattr(kind, method))))
        for name, part in parts.items():
            for key in _tables_of(part):
                own, table = vars(part)[key], _Table(vars(part)[key])
                vars(part)[key] = table
                table.note = lambda at=(name, key): written.add(at)
                stack.callback(_put_back, vars(part), key, own, table)
        yield written
    written |= {key for key, version in versions.items() if tensors[key]._version != version}
    written |= {(name, key) for name, part in parts.items() for key in set(vars(part)) ^ attributes[name]}


def _put_back(attributes: dict[str, Any], key: str, own: Any, table: _Table) -> None:
    own.clear()
    own.update(table)
    attributes[key] = own
