"""Acceptance of drafted tokens against their q, learned while decoding: a correction of q."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.tree import TokenTree

# Edges of the bins of conditional q, a token's probability given the draft's tokens before it: finer towards 1, where
# most of the accepted tokens are.
EDGES = np.array([0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99])
PRIOR = 8.0  # accepted tokens that q itself counts as in each bin
FADING = 0.5 ** (1 / 512)  # weight of what was learned, per step: the next text may differ


class AcceptanceRates:
    """How many tokens were accepted, of those that q let expect, by conditional q; updated as drafts are verified."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, len(EDGES) + 1))  # tokens accepted and expected
        self._steps = 0  # since the counts were last faded

    def corrected(self, logq: NDArray[np.float32], parents: NDArray[np.int32]) -> NDArray[np.float64]:
        """Probabilities that the nodes of trees are accepted; 0 for padding, whose logq is -inf.

        Columns [n] of a `TokenTree`, or [B, n] of several trees; parents precede their children.
        """
        accepted, expected = self._faded() + PRIOR
        p = _core.acceptance(np.atleast_2d(logq), np.atleast_2d(parents), EDGES, accepted / expected)
        return p.reshape(logq.shape)

    def note(self, trees: Sequence[TokenTree], accepted: Sequence[Sequence[int]]) -> None:
        """Counts verified trees, of which the nodes `accepted` were accepted, from the root token down.

        Their siblings were rejected. Descendants of rejected nodes were not tested and are not counted.
        """
        _core.count_accepted(
            self._faded(), EDGES, [tree.logq for tree in trees], [tree.parents for tree in trees], accepted
        )

    def fade(self) -> None:
        """Begins a step: earlier counts weigh a little less."""
        self._steps += 1

    def _faded(self) -> NDArray[np.float64]:
        """The counts as of this step."""
        if self._steps:
            self._counts *= FADING**self._steps
            self._steps = 0
        return self._counts
