"""Texts that are expected, such as the file that is edited: the target's own text is likely to copy most of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.lattice.checked import text_ids

ARCS = (0.02, 0.02, 0.001, 0.02, 0.02, 0.02)
"""Weights of arcs that replace a token, insert one, leave the text, remove one more, jump behind an equal pair; and the
probability that a token which is not copied is taken to have."""
SHARE = (1.54, 0.84)
"""(a, b): where the best place has weight m, copies have the share 1 / (1 + exp(-(a + b ln m))). Fitted to
edits made by script (docs/how/predictions.md)."""


def edit_model(prediction: ArrayLike) -> _core.EditModel:
    """The automaton of edits of a text, int [n], which begins where the answer does (docs/how/predictions.md)."""
    return _core.EditModel(text_ids(prediction, "prediction"), arcs=ARCS, share=SHARE)


def count_copied(prediction: NDArray[np.int32], text: NDArray[np.int32]) -> int:
    """How many tokens of a predicted text [n] are in the text [m], in order: their longest common subsequence, a bit
    for each token of the prediction (Hyyrö 2004).
    """
    places: dict[int, int] = {}
    for place, token in enumerate(prediction.tolist()):
        places[token] = places.get(token, 0) | 1 << place
    every = left = (1 << len(prediction)) - 1
    for token in text.tolist():
        found = left & places.get(token, 0)
        left = (left + found | left - found) & every
    return len(prediction) - left.bit_count()
