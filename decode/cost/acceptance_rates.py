"""How often drafted tokens are accepted, by what q says of them: corrections of q, learned while decoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.tree import ROOT, TokenTree

# Bins of conditional q, a token's probability given the tokens before it in the draft: finer towards 1, where q is
# surest of itself.
EDGES = np.array(
    [0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8] + [0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995]
)
# Percent of each bin that was accepted: first, second, third and fourth, and later tokens of a draft. Greedy text of
# six tasks, SmolLM2-135M-Instruct, default calibration without heads (docs/lab/engines.md).
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
        rates = np.array(PERCENT) / 100
        self._prior = np.stack([rates * PRIOR, np.full(rates.shape, PRIOR)])
        self._counts = self._prior.copy()  # tokens accepted and tested
        self._steps = 0  # since these were faded

    def corrected(
        self, logq: NDArray[np.floating], parents: NDArray[np.integer], depths: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        """Probabilities that the nodes of trees are accepted; 0 where logq is -inf, which is padding.

        Columns [n] as of `TokenTree`, or [B, n] of several trees.
        """
        accepted, tested = self._faded()
        above = _above(list(np.atleast_2d(parents)))
        p = np.append((accepted / tested)[_bins(logq.ravel(), above, depths.ravel())], 1.0)
        for _ in range(int(depths.max(initial=0)).bit_length()):  # the product over twice as many nodes each time
            p, above = p * p[above], above[above]
        return np.where(np.isneginf(logq), 0.0, p[:-1].reshape(logq.shape))

    def note(self, trees: Sequence[TokenTree], accepted: Sequence[Sequence[int]]) -> None:
        """Trees were verified, and these nodes of each accepted, from the root on: their siblings were not, and of
        nodes behind those nothing is known.
        """
        above = _above([tree.parents for tree in trees])
        starts = np.cumsum([0, *(tree.size for tree in trees)])
        stays = np.zeros(len(above), bool)
        stays[[*(start + node for start, path in zip(starts, accepted) for node in path), ROOT]] = True
        tested = stays[above[:-1]]
        logq, depths = (np.concatenate([getattr(tree, name) for tree in trees]) for name in ("logq", "depths"))
        rows, columns = _bins(logq, above, depths)
        for counted, which in zip(self._faded(), (tested & stays[:-1], tested)):
            np.add.at(counted, (rows[which], columns[which]), 1)

    def fade(self) -> None:
        """A step begins: what was learned counts a little less."""
        self._steps += 1

    def _faded(self) -> NDArray[np.float64]:
        """The counts as of this step."""
        if self._steps:
            self._counts = self._prior + (self._counts - self._prior) * FADING**self._steps
            self._steps = 0
        return self._counts


def _above(parents: Sequence[NDArray[np.integer]]) -> NDArray[np.int64]:
    """Of trees laid end to end, the place of each node's parent; behind them stands the root token of all, its own."""
    starts = np.cumsum([0, *map(len, parents)])
    root = starts[-1]
    return np.concatenate([*(np.where(one == ROOT, root, one + at) for one, at in zip(parents, starts)), [root]])


def _bins(
    logq: NDArray[np.floating], above: NDArray[np.int64], depths: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column in the table of each node of such trees."""
    with np.errstate(invalid="ignore"):  # padding behind padding
        conditional = np.exp(logq - np.append(logq, 0.0)[above[:-1]])
    return PLACES[np.minimum(depths, len(PLACES) - 1)], np.searchsorted(EDGES, conditional, side="right")
