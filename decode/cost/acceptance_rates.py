"""Acceptance rates of drafted tokens by conditional q and depth, learned while decoding: a correction of q."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.tree import TokenTree

# Edges of the bins of conditional q, a token's probability given the draft's tokens before it: finer towards 1, where
# most of the accepted tokens are.
EDGES = np.array(
    [0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8] + [0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995]
)
# Percent accepted per bin, for the first, the second, the third and fourth, and later tokens of a draft. Greedy text of
# six tasks, SmolLM2-135M-Instruct, default calibration without heads (docs/lab/engines.md).
PERCENT = (
    (1, 2, 7, 11, 18, 32, 30, 63, 58, 71, 74, 41, 67, 80, 72, 84, 88, 94, 98, 98),
    (1, 2, 6, 10, 17, 31, 27, 61, 57, 70, 74, 49, 67, 80, 72, 84, 88, 94, 98, 98),
    (0, 2, 7, 11, 14, 35, 34, 65, 55, 72, 79, 70, 74, 81, 78, 83, 88, 95, 98, 98),
    (0, 3, 5, 13, 11, 36, 38, 49, 61, 80, 86, 88, 86, 90, 84, 93, 90, 97, 99, 99),
)
ROWS = np.array([0, 0, 1, 2, 2, 3], np.int32)  # row of the table by depth; the last one for all deeper tokens
SURELY = 0.8  # probability from which a token is worth drafting while the cost of a pass is unknown
PRIOR = 24.0  # tokens that each entry of the table counts as
FADING = 0.5 ** (1 / 512)  # weight of what was learned, per step: the next text may differ


class AcceptanceRates:
    """Acceptance rates by conditional q and depth, updated as drafts are verified."""

    def __init__(self) -> None:
        rates = np.array(PERCENT) / 100
        self._prior = np.stack([rates * PRIOR, np.full(rates.shape, PRIOR)])
        self._counts = self._prior.copy()  # tokens accepted and tested
        self._steps = 0  # since the counts were last faded

    def corrected(
        self, logq: NDArray[np.float32], parents: NDArray[np.int32], depths: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """Probabilities that the nodes of trees are accepted; 0 for padding, whose logq is -inf.

        Columns [n] of a `TokenTree`, or [B, n] of several trees; parents precede their children.
        """
        accepted, tested = self._faded()
        p = _core.acceptance(
            np.atleast_2d(logq), np.atleast_2d(parents), np.atleast_2d(depths), EDGES, ROWS, accepted / tested
        )
        return p.reshape(logq.shape)

    def note(self, trees: Sequence[TokenTree], accepted: Sequence[Sequence[int]]) -> None:
        """Counts verified trees, of which the nodes `accepted` were accepted, from the root token down.

        Their siblings were rejected. Descendants of rejected nodes were not tested and are not counted.
        """
        _core.count_accepted(
            self._faded(),
            EDGES,
            ROWS,
            [tree.logq for tree in trees],
            [tree.parents for tree in trees],
            [tree.depths for tree in trees],
            accepted,
        )

    def fade(self) -> None:
        """Begins a step: earlier counts weigh a little less."""
        self._steps += 1

    def _faded(self) -> NDArray[np.float64]:
        """The counts as of this step."""
        if self._steps:
            self._counts = self._prior + (self._counts - self._prior) * FADING**self._steps
            self._steps = 0
        return self._counts
