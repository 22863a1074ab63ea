"""Texts that are expected, such as the file that is edited: the target's own text is likely to copy most of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.decode.models.draft_step import DraftStep
from rescore.lattice.tree import text_ids

ARCS = (0.02, 0.02, 0.001, 0.02, 0.02, 0.02)
"""Weights of arcs that replace a token, insert one, leave the text, remove one more, jump behind an equal pair; and the
probability that a token which is not copied is taken to have."""
SHARE = (1.54, 0.84)
"""(a, b): where the best place has weight m, copies have the share 1 / (1 + exp(-(a + b ln m))). Fitted to
edits made by script (docs/how/predictions.md)."""


def edit_model(prediction: ArrayLike) -> _core.EditModel:
    """The automaton of edits of a text, int [n], which begins where the answer does (docs/how/predictions.md)."""
    return _core.EditModel(text_ids(prediction, "prediction"), arcs=ARCS, share=SHARE)


class ExpectedText:
    """The automaton of one prediction, which reads along with a text. start: tokens of the text before the answer."""

    def __init__(self, prediction: NDArray[np.int32], start: int):
        self.prediction, self.model = prediction, edit_model(prediction)
        self._read = start

    def after(self, history: NDArray[np.int32]) -> _core.EditModel:
        """The automaton after the whole text, of which it reads what is new."""
        self.model.extend(np.ascontiguousarray(history[self._read :], np.int32))
        self._read = len(history)
        return self.model


class ExpectedTexts:
    """What a call's requests expect, for those that expect a text; read along at the steps that draft."""

    def __init__(self) -> None:
        self._texts: list[ExpectedText | None] | None = None

    def read(self, step: DraftStep) -> None:
        """Reads all tokens since the last call; in the first, the root token, with which the answer begins."""
        if not step.expected:
            return
        if self._texts is None:
            self._texts = [
                None if text is None else ExpectedText(text, len(history) - 1)
                for text, history in zip(step.expected, step.histories)
            ]
        for request, history in zip(step.requests, step.histories):
            if text := self._texts[request]:
                text.after(history)

    def of(self, requests: Sequence[int]) -> list[_core.EditModel | None]:
        texts = [self._texts[request] for request in requests] if self._texts else []
        return [text.model if text else None for text in texts]

    def select(self, rows: Sequence[int]) -> None:
        if self._texts:
            self._texts = [self._texts[row] for row in rows]


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
