"""Fits the shares of the running text by maximum likelihood: how far the counts of each context are trusted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.calibration import DEFAULT, Calibration, Share
from rescore.lattice.dump_block import DumpBlock
from rescore.lm.model.ngram import NGram

MOST_POSITIONS = 100_000
FOLLOWED = 0  # of the counts of a context; a dump has no rejected drafts
STEPS = 200
LEAST_GAIN = 1e-6  # nats per token of a step, below which the fit ends
NEWTON_STEPS = 3  # of a gate in each step
WITTEN_BELL = np.array([0.0, 1.0, -1.0])
PULL = 1.0  # of each weight towards `WITTEN_BELL`, as a normal prior: for contexts that were hardly ever seen
LIMIT = 20.0  # of a weight's magnitude


def fit_shares(blocks: Sequence[DumpBlock], model: NGram, orders: int = len(DEFAULT.text or ())) -> tuple[Share, ...]:
    """Returns the shares for contexts of 0 to orders - 1 tokens that maximise the likelihood of the blocks' texts, each
    after its prompt, under the running text and the model. Of more than 100,000 positions, every second, third, ..
    counts. ValueError if there is no block.
    """
    if not blocks:
        raise ValueError("fit: expected at least one sequence to fit shares on, got none: tune on a larger part")
    calibration = Calibration(text=(tuple(WITTEN_BELL.tolist()),) * orders)
    stride = -(-sum(block.rows for block in blocks) // MOST_POSITIONS)
    parts = [_evidence(*text, model, calibration, stride) for block in blocks for text in block.texts]
    evidence, p = (np.concatenate(part) for part in zip(*parts))
    of_contexts = fit_gates(evidence, p)[:orders]  # the longest match's is not tuned
    return tuple(tuple(share) for share in of_contexts.tolist())


def _evidence(
    prompt: NDArray[np.int32], text: NDArray[np.int32], model: NGram, calibration: Calibration, stride: int
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """What the running text knew of each token of a continuation, [n, orders + 1, 3], and its p in the model [n]."""
    counts = calibration.counts()
    counts.extend(prompt, prompt=True)
    return counts.evidence(text)[::stride, :, FOLLOWED], p_of(model, prompt, text)[::stride]


def p_of(model: NGram, prompt: NDArray[np.int32], text: NDArray[np.int32]) -> NDArray[np.float64]:
    """The model's probability of each token of a continuation, [n]."""
    return np.exp(-model.walk(text, model.start(prompt)).cost.astype(np.float64))


def fit_gates(evidence: NDArray[np.float32], p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns weights [G, 3] of constant, ln total and ln distinct for each of a chain of gates, the last one first.

    evidence  count of the token, total and distinct of each gate's counts at n positions, [n, G, 3]; total 0: no gate
    p         the token's probability where all gates pass, [n]
    """
    count, total, distinct = np.moveaxis(evidence.astype(np.float64), -1, 0)
    here = total > 0
    features = np.stack([np.ones_like(total), np.log(np.where(here, total, 1)), np.log(np.maximum(distinct, 1))], -1)
    of_counts = count / np.where(here, total, 1)
    weights = np.tile(WITTEN_BELL, (evidence.shape[1], 1))
    before = -np.inf
    for _ in range(STEPS):
        shares = np.where(here, _logistic((features * weights).sum(axis=-1)), 0)
        # The probability that a gate and all before it pass.
        passed = np.cumprod((1 - shares)[:, ::-1], axis=1)[:, ::-1]
        reached = np.concatenate((passed[:, 1:], np.ones((len(p), 1))), axis=1)
        taken = reached * shares * of_counts
        rest = passed[:, 0] * p
        likelihood = np.maximum(rest + taken.sum(axis=1), np.finfo(float).tiny)
        now = np.log(likelihood).mean()
        if now - before < LEAST_GAIN:
            break
        before = now
        taken /= likelihood[:, None]
        later = np.cumsum(np.concatenate((rest[:, None] / likelihood[:, None], taken[:, :-1]), axis=1), axis=1)
        for gate in range(len(weights)):
            rows = here[:, gate]
            weights[gate] = _regression(weights[gate], features[rows, gate], taken[rows, gate], later[rows, gate])
    return weights


def _regression(
    weights: NDArray[np.float64],
    features: NDArray[np.float64],
    taken: NDArray[np.float64],
    passed: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Newton's steps of a logistic regression on fractional outcomes."""
    trials = taken + passed
    for _ in range(NEWTON_STEPS):
        shares = _logistic(features @ weights)
        slope = features.T @ (taken - trials * shares) - PULL * (weights - WITTEN_BELL)
        curvature = (features * (trials * shares * (1 - shares))[:, None]).T @ features + PULL * np.eye(3)
        weights = np.clip(weights + np.linalg.solve(curvature, slope), -LIMIT, LIMIT)
    return weights


def _logistic(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))
