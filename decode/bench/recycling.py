"""Token Recycling as a drafter, for comparison: the published static tree, with predictions of rejected nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.drafters.running_texts import Predicted, top_predictions
from rescore.decode.models.heads import DraftStep
from rescore.decode.rescoring.token_recycling import TokenRecycling
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping

CHUNK = 128  # positions of a prompt whose logits are computed at once
PROMPT = 4096  # the most positions at a prompt's end whose predictions are recorded


class RecyclingDrafter:
    """Drafts the published static tree of 80 nodes for every request."""

    drawn = 0

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> _RecyclingSession:
        return _RecyclingSession(len(prompts))


class _RecyclingSession:
    def __init__(self, requests: int):
        self._matrices = [TokenRecycling() for _ in range(requests)]
        self._begun = False

    def propose(self, step: DraftStep) -> list[Draft]:
        trees = []
        for row, matrix in enumerate(self._matrices):
            history, last = step.histories[row].tolist(), step.last[row]
            if not self._begun:
                chunks = predicted_along_prompt(step, row)
                read = sum(len(ids) for ids, _ in chunks)
                see(matrix, history[len(history) - 2 - read : -2], chunks)
            # The last pass read its root token and all nodes of its tree.
            see(matrix, [history[-2 - len(last.accepted)], *last.tree.tokens], [top_predictions(last.logits)])
            trees.append(matrix.static_tree(history[-1]).within(step.room[row]))
        self._begun = True
        return [Draft(tree=tree) for tree in trees]

    def select(self, rows: Sequence[int]) -> None:
        self._matrices = [self._matrices[row] for row in rows]


def predicted_along_prompt(step: DraftStep, row: int) -> list[Predicted]:
    """In the first step, the predictions after the prompt's tokens except the last, in chunks."""
    hidden = step.fresh[row][:-1][-PROMPT:]
    if step.logits is None or not len(hidden):
        return []
    return [top_predictions(step.logits(chunk)) for chunk in hidden.split(CHUNK)]


def see(matrix: TokenRecycling, tokens: Sequence[int], predicted: Sequence[Predicted]) -> None:
    """Records tokens and the predictions after them, which come in chunks."""
    for token, ids, p in zip(tokens, *(np.concatenate(part) for part in zip(*predicted))):
        matrix.see(int(token), ids, p)
