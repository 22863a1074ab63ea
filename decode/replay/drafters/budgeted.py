"""Drafters at several budgets, each a row of the tables."""

from __future__ import annotations

from collections.abc import Mapping


class Budgeted:
    """budgets: what each name may spend, p strings or n nodes; one search, of the greatest, serves all."""

    __slots__ = ()
    budgets: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of the table."""
        return tuple(self.budgets)
