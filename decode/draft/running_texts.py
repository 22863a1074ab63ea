"""The running texts of a call's requests, with the target's predictions after rejected drafts
(docs/how/calibrated-q.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.calibrated import CalibratedTrees
from rescore.decode.draft.calibration import TOP
from rescore.decode.models.draft_step import DraftStep, LastPass, Read


class RunningTexts:
    """One text per request, extended at the steps that draft.

    rejected  whether predictions after rejected nodes count. Without them, a replay of a dump drafts the same.
    """

    def __init__(self, rescorer: CalibratedTrees, requests: int, *, rejected: bool = True):
        self.texts = [rescorer.text() for _ in range(requests)]
        self._rejected = rejected

    def read(self, step: DraftStep) -> None:
        """Reads all tokens added since the last call, and what was predicted after the nodes rejected in the last pass.
        The drafts of passes in between are not known.
        """
        texts = [self.texts[request] for request in step.requests]
        new = [np.ascontiguousarray(history[text.size :], np.int32) for history, text in zip(step.histories, texts)]
        if step.predictions is None or not self._rejected or not any(last.tree.size for last in step.last):
            for text, tokens in zip(texts, new):
                _extend(text, tokens)
            return
        for text, tokens, last, read in zip(texts, new, step.last, step.predictions(TOP)):
            _read_pass(text, tokens, last, read)

    def select(self, rows: Sequence[int]) -> None:
        self.texts = [self.texts[row] for row in rows]


def _extend(text: _core.ContextModel, tokens: NDArray[np.int32]) -> None:
    """Appends tokens; the first ones are the prompt's, and the root token after it."""
    if text.size:
        text.extend(tokens)
    else:
        text.extend(tokens[:-1], prompt=True)
        text.extend(tokens[-1:])


def _read_pass(text: _core.ContextModel, tokens: NDArray[np.int32], last: LastPass, read: Read) -> None:
    tree, accepted = last.tree, np.array(last.accepted, np.int32)
    before = len(tokens) - 1 - len(accepted)  # tokens of the steps that did not draft
    text.extend(tokens[:before])
    _core.foresee_rejected(text, tree.tokens, tree.parents, accepted, read.ids[1:], read.p[1:])
    text.extend(tokens[before:])
