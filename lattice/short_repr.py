"""How values are shown: in one line, with arrays as dtype and shape; as pictures in notebooks."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import singledispatch
from importlib import import_module
from typing import Any

CELLS = 60  # characters per field


@singledispatch
def drawing(value: object) -> str | None:
    """The SVG text of a value; None if it has no picture. Modules that draw a type register it here."""
    return None


def picture(value: object) -> str | None:
    """A value's `drawing`, for its `_repr_svg_`. What draws is loaded when a notebook first asks."""
    import_module("rescore.lattice.draw")
    return drawing(value)


def short_repr(value: Any) -> str:
    """`__repr__` of a dataclass or struct such as `Sausage(ids=int32[8, 16], cost=float32[8, 16])`."""
    names = [one.name for one in fields(value) if one.repr] if is_dataclass(value) else value.__struct_fields__
    return f"{type(value).__name__}({', '.join(f'{name}={_short(getattr(value, name))}' for name in names)})"


def _short(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    text = repr(value)
    if len(text) <= CELLS:
        return text
    if isinstance(value, (tuple, list, dict)):
        return f"<{type(value).__name__} of {len(value)}>"
    return f"{text[: CELLS - 2]}.."


def readable(value: Any) -> str:
    """A value for people: yes or no, separated thousands, at most six significant digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
