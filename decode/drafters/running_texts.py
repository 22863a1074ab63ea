"""The running texts of a call's requests, with the target's predictions after rejected drafts
(docs/how/calibrated-q.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore import _core
from rescore.decode.models.heads import DraftStep, LastPass
from rescore.decode.rescoring.calibrated import CalibratedTrees
from rescore.decode.rescoring.calibration import TOP
from rescore.lattice.logit_rows import logit_rows

Predicted = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Ids int32 [m, TOP] and probabilities float32 [m, TOP], most probable first."""


def top_predictions(*logits: Tensor) -> Predicted:
    """The most probable tokens of logits [m, V], of several tensors one after another."""
    k = min(TOP, logits[0].shape[-1])
    if logits[0].device.type == "cpu":
        return _core.top_predictions([logit_rows(one) for one in logits], k, torch.get_num_threads())
    scores = torch.cat(logits).float()
    top = scores.topk(k, dim=-1)
    p = (top.values - scores.logsumexp(dim=-1, keepdim=True)).exp()
    both = torch.cat((top.indices.int().view(torch.float32), p), dim=-1).cpu().numpy()  # a single copy from the device
    ids, shares = np.split(both, 2, axis=-1)
    return np.ascontiguousarray(ids).view(np.int32), np.clip(shares, 0, 1)


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
        new = [
            np.ascontiguousarray(history[text.size :], np.int32) for history, text in zip(step.histories, self.texts)
        ]
        if not step.last or not self._rejected or not any(last.tree.size for last in step.last):
            for text, tokens in zip(self.texts, new):
                _extend(text, tokens)
            return
        # All texts at once: a loop shared between threads waits for the slowest.
        ids, p = top_predictions(*(last.logits[1:] for last in step.last))
        stops = np.cumsum([last.tree.size for last in step.last])
        for text, tokens, last, stop in zip(self.texts, new, step.last, stops):
            nodes = slice(stop - last.tree.size, stop)
            _read_pass(text, tokens, last, (ids[nodes], p[nodes]))

    def select(self, rows: Sequence[int]) -> None:
        self.texts = [self.texts[row] for row in rows]


def _extend(text: _core.ContextModel, tokens: NDArray[np.int32]) -> None:
    """Appends tokens; the first ones are the prompt's, and the root token after it."""
    if text.size:
        text.extend(tokens)
    else:
        text.extend(tokens[:-1], prompt=True)
        text.extend(tokens[-1:])


def _read_pass(text: _core.ContextModel, tokens: NDArray[np.int32], last: LastPass, predicted: Predicted) -> None:
    tree, accepted = last.tree, np.array(last.accepted, np.int32)
    before = len(tokens) - 1 - len(accepted)  # tokens of the steps that did not draft
    text.extend(tokens[:before])
    _core.foresee_rejected(text, tree.tokens, tree.parents, accepted, *predicted)
    text.extend(tokens[before:])
