"""Chooses the draft vocabulary: the tokens that heads predict, the most frequent ones of the model's own texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rescore.decode.training.lessons import Lessons

ROWS = 1 << 16  # positions counted at once


def choose_vocabulary(lessons: Lessons, vocab_size: int, size: int) -> NDArray[np.int32]:
    """Returns the ids [D], ascending, of the `size` tokens with the greatest expected counts under the model's own
    distributions along the training texts; fewer if fewer have any mass. Ties go to the smaller id.
    """
    expected = np.zeros(vocab_size)
    for ids, logp in lessons.distributions():
        for start in range(0, len(ids), ROWS):
            part = slice(start, start + ROWS)
            weight = np.exp(logp[part].astype(np.float32)).ravel()
            expected += np.bincount(ids[part].ravel(), weight, minlength=vocab_size)
    best = np.argsort(-expected, kind="stable")[: min(size, int((expected > 0).sum()))]
    return np.sort(best).astype(np.int32)


def lost_share(lessons: Lessons, ids: NDArray[np.integer]) -> float:
    """Returns the share of held-out tokens outside the vocabulary; 0 without held-out texts."""
    lost = [~np.isin(tokens, ids) for tokens in lessons.tokens(held_out=True)]
    return float(np.concatenate(lost).mean()) if any(map(len, lost)) else 0.0
