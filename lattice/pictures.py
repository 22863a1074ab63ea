"""Pictures of values in notebooks. Modules that draw a type register with `picture`."""

from __future__ import annotations

from functools import singledispatch


@singledispatch
def picture(value: object) -> str | None:
    """The SVG text of a value, for its `_repr_svg_`; None if it has no picture."""
    return None
