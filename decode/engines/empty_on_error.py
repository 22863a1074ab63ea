"""A drafter whose errors never stop an engine: a request that cannot be drafted decodes without drafts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rescore.decode.engines.known_text import NOTHING
from rescore.decode.engines.text_drafter import DraftRow, TextDrafter
from rescore.lattice.tree import TokenTree

logger = logging.getLogger(__name__)

T = TypeVar("T")


class EmptyOnError:
    """A `TextDrafter` that turns errors, such as ids outside the n-gram model's vocabulary, into empty drafts for the
    rows concerned. Only the first error is logged.
    """

    def __init__(self, drafter: TextDrafter):
        self.drafter = drafter
        self._warned = False

    def chains(self, rows: Sequence[DraftRow], most: Sequence[int]) -> list[NDArray[np.int32]]:
        """As `TextDrafter.chains`; empty for rows that cannot be drafted."""
        return self._each(rows, most, self.drafter.chains, np.empty(0, np.int32))

    def trees(self, rows: Sequence[DraftRow], n: int) -> list[TokenTree]:
        """As `TextDrafter.trees`; empty for rows that cannot be drafted."""
        return self._each(rows, [n] * len(rows), lambda some, _: self.drafter.trees(some, n), NOTHING)

    def _each(
        self,
        rows: Sequence[DraftRow],
        most: Sequence[int],
        draft: Callable[[Sequence[DraftRow], Sequence[int]], list[T]],
        nothing: T,
    ) -> list[T]:
        try:
            return draft(rows, most)
        except (ValueError, TypeError) as error:
            if not self._warned:
                logger.warning("rescore drafts nothing for some requests: %s", error)
                self._warned = True
        if len(rows) == 1:
            return [nothing]
        return [self._each([row], [one], draft, nothing)[0] for row, one in zip(rows, most)]
