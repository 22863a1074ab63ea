"""Drafters with several budgets, one table row per budget."""

from __future__ import annotations

from collections.abc import Mapping


class Budgeted:
    """A drafter with several budgets. budgets: p paths or n nodes of each name."""

    __slots__ = ()
    budgets: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its table rows, in order."""
        return tuple(self.budgets)
