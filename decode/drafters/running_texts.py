"""The running texts of a call's requests, with the target's own predictions (docs/how/calibrated-q.md)."""

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

CHUNK = 128  # positions of a prompt whose logits are computed at once
PROMPT = 4096  # the most positions at a prompt's end whose predictions are counted
# Positions per token to be decoded. More would not earn back their logits: on a processor, 0.7 ms each for V = 49,152.
PER_TOKEN = {"cpu": 1}
PER_TOKEN_ELSEWHERE = 8

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


def predicted_along_prompt(step: DraftStep, row: int, most: int | None = None) -> list[Predicted]:
    """In the first step, the predictions after the prompt's tokens except the last, in chunks; at most the last `most`
    (None: as many as decoding can earn back).
    """
    if most is None:
        most = min(PROMPT, PER_TOKEN.get(step.hidden.device.type, PER_TOKEN_ELSEWHERE) * step.room[row])
    if step.logits is None or not most:
        return []
    hidden = step.fresh[row][:-1][-most:]
    return [top_predictions(step.logits(chunk)) for chunk in hidden.split(CHUNK)] if len(hidden) else []


class RunningTexts:
    """One text per request, extended at the steps that draft.

    rejected  whether predictions after rejected nodes count
    prompt    positions at the prompt's end whose predictions count; None: as many as decoding can earn back

    With rejected=False and the whole prompt, a replay of a dump drafts the same.
    """

    def __init__(self, rescorer: CalibratedTrees, requests: int, *, prompt: int | None = None, rejected: bool = True):
        self.texts = [rescorer.text() for _ in range(requests)]
        self._soft = bool(rescorer.calibration.soft)
        self._prompt, self._rejected = prompt, rejected

    def read(self, step: DraftStep) -> None:
        """Reads all tokens added since the last call. The logits of steps in between are not known."""
        new = [
            np.ascontiguousarray(history[text.size :], np.int32) for history, text in zip(step.histories, self.texts)
        ]
        if not self._soft or not step.last:
            for text, tokens in zip(self.texts, new):
                text.extend(tokens)
            return
        # All texts at once: a loop shared between threads waits for the slowest.
        logits = [self._logits(last) for last in step.last]
        ids, p = top_predictions(*logits)
        stops = np.cumsum([len(one) for one in logits])
        for row, (text, tokens, stop) in enumerate(zip(self.texts, new, stops)):
            part = slice(stop - len(logits[row]), stop)
            if text.size:
                self._read_pass(text, tokens, step.last[row], (ids[part], p[part]))
            else:
                self._read_prompt(text, tokens, step, row, (ids[part], p[part]))

    def select(self, rows: Sequence[int]) -> None:
        self.texts = [self.texts[row] for row in rows]

    def _logits(self, last: LastPass) -> Tensor:
        """Logits after the root token and all nodes, or the accepted ones only."""
        return last.logits if self._rejected else last.logits[[0, *(1 + node for node in last.accepted)]]

    def _read_prompt(
        self, text: _core.ContextModel, tokens: NDArray[np.int32], step: DraftStep, row: int, predicted: Predicted
    ) -> None:
        """Reads a prompt, and the root token after it, which was `predicted`."""
        chunks = predicted_along_prompt(step, row, self._prompt)
        text.extend(tokens[: len(tokens) - 1 - sum(len(ids) for ids, _ in chunks)])
        for ids, p in chunks:
            text.extend(tokens[text.size : text.size + len(ids)], ids, p)
        text.extend(tokens[-1:], *predicted)

    def _read_pass(
        self, text: _core.ContextModel, tokens: NDArray[np.int32], last: LastPass, predicted: Predicted
    ) -> None:
        unseen = len(tokens) - 1 - len(last.accepted)
        text.extend(tokens[:unseen])
        if not self._rejected:
            text.extend(tokens[unseen:], *predicted)
            return
        accepted, tree = np.array(last.accepted, np.int32), last.tree
        _core.read_pass(text, tokens[unseen:], tree.tokens, tree.parents, accepted, *predicted)
