"""Grids of which `make test` runs a part, and `make check-slow` the rest."""

from collections.abc import Collection

import pytest


def slow_but(quick: Collection, grid: Collection) -> list:
    """The rows of a grid for pytest, marked as slow unless they are among the quick ones."""
    rows = ((row, row if isinstance(row, tuple) else (row,)) for row in grid)
    return [pytest.param(*values, marks=[pytest.mark.slow] * (row not in quick)) for row, values in rows]
