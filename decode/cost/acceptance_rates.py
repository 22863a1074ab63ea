"""How often drafted tokens are accepted, by what q says of them: corrections of q, learned while decoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.tree import ROOT, TokenTree

# Bins of conditional q, a token's probability given the tokens before it in the draft: finer towards 1, where q is
# surest of itself.
EDGES = (
    *(0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    *(0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995),
)
# Percent of each bin that was accepted: first, second, third and fourth, and later tokens of a draft. Greedy text of
# six tasks, SmolLM2-135M-Instruct, default calibration without heads (docs/engines.md).
PERCENT = (
    (1, 2, 7, 11, 18, 32, 30, 63, 58, 71, 74, 41, 67, 80, 72, 84, 88, 94, 98, 98),
    (1, 2, 6, 10, 17, 31, 27, 61, 57, 70, 74, 49, 67, 80, 72, 84, 88, 94, 98, 98),
    (0, 2, 7, 11, 14, 35, 34, 65, 55, 72, 79, 70, 74, 81, 78, 83, 88, 95, 98, 98),
    (0, 3, 5, 13, 11, 36, 38, 49, 61, 80, 86, 88, 86, 90, 84, 93, 90, 97, 99, 99),
)
PLACES = np.array([0, 0, 1, 2, 2, 3])  # rows of the table, by depth
SURELY = 0.8  # probability of tokens that are worth drafting while it is not known what passes cost
PRIOR = 24.0  # tokens that each of these numbers counts as
FADING = 0.5 ** (1 / 512)  # of what was learned, for each step: another text may be another matter


class AcceptanceRates:
    """Acceptance by q and depth, learned as drafts are verified."""

    def __init__(self) -> None:
        self._rates = np.array(PERCENT) / 100
        self._prior = np.stack([self._rates * PRIOR, np.full(self._rates.shape, PRIOR)])
        self._counts = self._prior.copy()  # tokens accepted and tested

    def corrected(
        self, logq: NDArray[np.floating], parents: NDArray[np.integer], depths: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        """Probabilities [.., n] that the nodes of trees are accepted; 0 where logq is -inf, which is padding.

        Columns as of `TokenTree`, one tree or several.
        """
        rates = self._rates[self._bins(logq, parents, depths)]
        p = np.concatenate([rates, np.ones((*rates.shape[:-1], 1))], axis=-1)  # index -1 is the root token
        for depth in range(1, int(depths.max(initial=0)) + 1):
            p[..., :-1] = np.where(depths == depth, rates * np.take_along_axis(p, parents, axis=-1), p[..., :-1])
        return np.where(np.isneginf(logq), 0.0, p[..., :-1])

    def note(self, tree: TokenTree, accepted: Sequence[int]) -> None:
        """A tree was verified, and these nodes of it accepted, from the root on: their siblings were not, and of nodes
        behind those nothing is known.
        """
        tested = np.isin(tree.parents, [ROOT, *accepted]).nonzero()[0]
        rows, columns = self._bins(tree.logq, tree.parents, tree.depths)
        cells = np.ravel_multi_index((rows[tested], columns[tested]), self._rates.shape)
        for counted, which in ((self._counts[0], cells[np.isin(tested, accepted)]), (self._counts[1], cells)):
            counted += np.bincount(which, minlength=counted.size).reshape(counted.shape)
        self._rates = self._counts[0] / self._counts[1]

    def fade(self) -> None:
        """A step begins: what was learned counts a little less."""
        self._counts = self._prior + (self._counts - self._prior) * FADING
        self._rates = self._counts[0] / self._counts[1]

    @staticmethod
    def _bins(
        logq: NDArray[np.floating], parents: NDArray[np.integer], depths: NDArray[np.integer]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row and column in the table of each node."""
        padded = np.concatenate([logq, np.zeros((*logq.shape[:-1], 1), logq.dtype)], axis=-1)
        with np.errstate(invalid="ignore"):  # padding behind padding
            conditional = np.exp(logq - np.take_along_axis(padded, parents, axis=-1))
        return PLACES[np.minimum(depths, len(PLACES) - 1)], np.searchsorted(EDGES, conditional, side="right")
