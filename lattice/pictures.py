"""What notebooks show of a value: modules that draw a type register with `picture`."""

from __future__ import annotations

from functools import singledispatch


@singledispatch
def picture(value: object) -> str | None:
    """The SVG text of a value, to be its `_repr_svg_`; None if there is none."""
    return None
