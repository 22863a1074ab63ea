"""Fitting a calibration to text: the weights under which q makes the tokens that came most likely.

q is a multinomial logit in head, alpha, prior and floor, so its likelihood is concave and Newton's method finds the best weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.decode.calibrated import CalibratedRescorer
from rescore.decode.calibration import Calibration
from rescore.decode.replays.calibrated import running_texts
from rescore.lattice.block import Block
from rescore.lm.ngram import NGram

LEAST_MASS = 1e-6  # as in csrc/open_tree.cc
RIDGE = 1e-3  # times the number of observations: decides what they leave open
ITERATIONS = 50
START = np.array([0.5, 0.7, 0.0, -3.0])  # head, alpha, prior, floor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choices:
    """Among what the tokens of one slot were chosen, given the true prefix, in m rows.

    features  float64 [m, K + 1, 4], what head, alpha, prior and floor multiply in ln q, for the candidates and, last, for all other
              tokens together; -inf in [.., 0] where there is no candidate
    offset    float64 [m], of the last alone
    chosen    int64 [m], the candidate that came, or K
    """

    features: NDArray[np.float64]
    offset: NDArray[np.float64]
    chosen: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[Choices]) -> Choices:
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__})


def fit_slot(choices: Choices, *, prior: bool = True) -> NDArray[np.float64]:
    """head, alpha, prior and floor [4] of one slot. Without `prior`, that is 0."""
    free = np.array([True, True, prior, True])
    weights = np.where(free, START, 0)
    value = _likelihood(choices, weights)[0]
    for _ in range(ITERATIONS):
        gradient, hessian = _likelihood(choices, weights)[1:]
        step = np.zeros(4)
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        size = 1.0
        while (better := _likelihood(choices, weights + size * step)[0]) < value and size > 1e-6:
            size /= 2
        weights = weights + size * step
        if better - value < 1e-9:
            break
        value = better
    return np.maximum(weights, [0, 0, -np.inf, -np.inf])


def _likelihood(choices: Choices, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Mean ln q of what came less the ridge, its gradient [4], its negated Hessian [4, 4]."""
    scores = choices.features @ weights
    scores[:, -1] += choices.offset
    scores -= scores.max(axis=1, keepdims=True)
    q = np.exp(scores)
    total = q.sum(axis=1, keepdims=True)
    q /= total
    m = np.arange(len(q))
    value = float(np.mean(scores[m, choices.chosen] - np.log(total[:, 0])))
    mean = np.einsum("mk,mkf->mf", q, choices.features)
    gradient = (choices.features[m, choices.chosen] - mean).mean(axis=0)
    second = np.einsum("mk,mkf,mkg->fg", q, choices.features, choices.features, optimize=True) / len(q)
    hessian = second - mean.T @ mean / len(q)
    away = weights - START
    return value - RIDGE / 2 * float(away @ away), gradient - RIDGE * away, hessian + RIDGE * np.eye(4)


def choices_of_block(block: Block, model: NGram, text: tuple[float, ...] | None, top_k: int | None = None) -> list[Choices]:
    """Of each of the block's T slots, in all rows whose text goes on that far."""
    sausages, truth = block.sausages(k=top_k), block.truth()
    rows, slots, width = sausages.ids.shape
    listed = sausages.ids >= 0
    ids = np.where(listed, sausages.ids, 0)
    p = probabilities(block, model, text, ids)
    head = np.where(listed, sausages.cost, np.inf).astype(np.float64)
    left = np.maximum(1 - np.exp(-head).sum(axis=-1), LEAST_MASS)
    features = np.zeros((rows, slots, width + 1, 4))
    features[..., :width, 0] = np.where(listed, -head, -1e9)
    features[..., :width, 1] = np.log(np.maximum(p, 1e-300))
    features[..., :width, 2] = model.distribution(0).astype(np.float64)[ids]
    features[..., width, 0] = -np.log((model.vocab_size - listed.sum(axis=-1)) / left)
    features[..., width, 3] = -1
    offset = np.log(np.maximum(1 - np.where(listed, p, 0).sum(axis=-1), LEAST_MASS))
    hit = listed & (ids == truth[..., None])
    chosen = np.where(hit.any(axis=-1), hit.argmax(axis=-1), width)
    known = truth >= 0
    return [Choices(features=features[known[:, t], t], offset=offset[known[:, t], t], chosen=chosen[known[:, t], t]) for t in range(slots)]


def probabilities(block: Block, model: NGram, text: tuple[float, ...] | None, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    """p of tokens [n, T, K] in every slot, after the true tokens before it: float64 [n, T, K]; 0 past the end of the text."""
    p = _model_probabilities(block, model, tokens)
    if text is None:
        return p
    rescorer = CalibratedRescorer(model, Calibration(text=text))
    truth, strength = block.truth(), np.array(text, np.float64)
    for rows, texts in running_texts(rescorer, block):
        for row, counts in zip(rows.tolist(), texts):
            for t in range(int((truth[row] >= 0).sum())):
                share, rest = counts.mixture(truth[row, :t], strength, tokens[row, t])
                p[row, t] = share + rest * p[row, t]
    return p


def _model_probabilities(block: Block, model: NGram, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    rows, slots, width = tokens.shape
    states = np.empty(block.rows + 1, np.uint32)  # before each token of the block
    for s in range(block.sequences):
        own = slice(int(block.offsets[s]), int(block.offsets[s + 1]))
        prompt = block.prompt_tokens[block.prompt_offsets[s] : block.prompt_offsets[s + 1]]
        states[own] = model.walk(block.tokens[own], model.start(prompt.astype(np.int32))).state
    ahead = np.minimum(np.arange(rows)[:, None] + np.arange(1, slots + 1), block.sequence_ends[:, None] - 1)
    of_token = np.repeat(states[ahead].ravel(), width)
    cost = model.core.score(tokens.ravel(), np.arange(tokens.size + 1), of_token)[0]
    return np.exp(-cost.reshape(tokens.shape).astype(np.float64)) * (block.truth() >= 0)[..., None]
