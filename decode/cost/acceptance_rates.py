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
        rates = np.array(PERCENT) / 100
        self._prior = np.stack([rates * PRIOR, np.full(rates.shape, PRIOR)])
        self._counts = self._prior.copy()  # tokens accepted and tested
        self._steps = 0  # since these were faded

    def corrected(
        self, logq: NDArray[np.floating], parents: NDArray[np.integer], depths: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        """Probabilities [.., n] that the nodes of trees are accepted; 0 where logq is -inf, which is padding.

        Columns as of `TokenTree`, one tree or several.
        """
        accepted, tested = self._faded()
        above = _flat(parents)
        p = _with_root((accepted / tested)[_bins(logq, above, depths)], 1.0)
        for _ in range(int(depths.max(initial=0)).bit_length()):  # the product over twice as many nodes each time
            p, above = p * p.ravel()[above], above.ravel()[above]
        return np.where(np.isneginf(logq), 0.0, p[..., :-1])

    def note(self, tree: TokenTree, accepted: Sequence[int]) -> None:
        """A tree was verified, and these nodes of it accepted, from the root on: their siblings were not, and of nodes
        behind those nothing is known.
        """
        stays = np.zeros(tree.size + 1, bool)
        stays[[*accepted, ROOT]] = True
        tested = stays[tree.parents]
        rows, columns = _bins(tree.logq, _flat(tree.parents), tree.depths)
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


def _bins(
    logq: NDArray[np.floating], above: NDArray[np.int64], depths: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column in the table of each node. above: as of `_flat`."""
    with np.errstate(invalid="ignore"):  # padding behind padding
        conditional = np.exp(logq - _with_root(logq, 0.0).ravel()[above[..., :-1]])
    return PLACES[np.minimum(depths, len(PLACES) - 1)], np.searchsorted(EDGES, conditional, side="right")


def _with_root(values: NDArray, root: float) -> NDArray:
    """Of the nodes [.., n], and behind them of the root token: [.., n + 1]."""
    padded = np.full((*values.shape[:-1], values.shape[-1] + 1), root, values.dtype)
    padded[..., :-1] = values
    return padded


def _flat(parents: NDArray[np.integer]) -> NDArray[np.int64]:
    """Places of the parents in such columns, laid end to end: [.., n + 1]; the root token's is its own."""
    n = parents.shape[-1]
    above = _with_root(np.where(parents == ROOT, n, parents).astype(np.int64), n)
    return above + (n + 1) * np.arange(above.size // (n + 1)).reshape(*parents.shape[:-1], 1)
