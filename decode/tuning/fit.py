"""Fits weights to text by maximum likelihood, slot by slot, with Newton's method.

Trees are drafted by q, so `fit_calibration` maximises the likelihood of the true tokens under q. Paths are ranked among
candidates, so `fit_weights` maximises the likelihood of choosing the truth among the candidates. Both condition on the
true tokens before the slot, as for a draft that is accepted up to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.calibration import DEFAULT, MAX_WEIGHT, Calibration, Share, counts_of
from rescore.decode.replay.recorded import parts_of
from rescore.decode.replay.run import side_by_side
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
    parts = [_evidence(block, s, model, calibration, stride) for block in blocks for s in range(block.sequences)]
    evidence, p = (np.concatenate(part) for part in zip(*parts))
    return tuple(tuple(share) for share in fit_gates(evidence, p).tolist())


def _evidence(
    block: DumpBlock, sequence: int, model: NGram, calibration: Calibration, stride: int
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """What the running text knew of each token of a sequence, [n, orders, 3], and its probability in the model [n]."""
    places, rows = parts_of(block, sequence)
    prompt, text = block.prompt_tokens[places].astype(np.int32), block.tokens[rows].astype(np.int32)
    counts = calibration.counts()
    counts.extend(prompt, prompt=True)
    p = np.exp(-model.walk(text, model.start(prompt)).cost.astype(np.float64))
    return counts.evidence(text)[::stride, :, FOLLOWED], p[::stride]


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
        passed = np.cumprod((1 - shares)[:, ::-1], axis=1)[
            :, ::-1
        ]  # the probability that a gate and all before it pass
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


RIDGE = 1e-3  # per observation: makes the optimum unique
ITERATIONS = 50
SMALLEST_STEP = 1e-6
CLOSE = 1e-12  # gain in likelihood at which to stop


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choices:
    """m choices among C alternatives with F features. Alternative c of row i is chosen with probability proportional to
    exp(features[i, c] @ weights + offset[i, c]).

    features  float64 [m, C, F], finite
    offset    float64 [m, C], -inf for missing alternatives
    chosen    int64 [m], the chosen alternative
    """

    features: NDArray[np.float64]
    offset: NDArray[np.float64]
    chosen: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.chosen)

    def rows(self, which: slice | NDArray[np.bool_]) -> Choices:
        return Choices(features=self.features[which], offset=self.offset[which], chosen=self.chosen[which])

    @classmethod
    def joined(cls, parts: Sequence[Choices]) -> Choices:
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__})


def fit_logit(choices: Choices, start: NDArray[np.float64], *, least: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the weights [F] of greatest penalised likelihood, none below `least` [F].

    start: [F], the centre of the ridge penalty.
    """
    free = np.ones(len(start), bool)
    weights = start.astype(np.float64).copy()
    while True:
        weights = newton(choices, weights, start, free)
        below = free & (weights < least)
        if not below.any():
            return weights
        # Fix the weight furthest below its bound at the bound, and refit the rest.
        worst = int(np.argmax(np.where(below, least - weights, -np.inf)))
        weights[worst], free[worst] = least[worst], False


def newton(
    choices: Choices, weights: NDArray[np.float64], centre: NDArray[np.float64], free: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Returns the optimum over the free weights, starting from `weights`."""
    value, gradient, hessian = likelihood(choices, weights, centre)
    for _ in range(ITERATIONS if free.any() else 0):
        step = np.zeros(len(weights))
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        size = 1.0
        while (found := likelihood(choices, weights + size * step, centre))[0] < value and size > SMALLEST_STEP:
            size /= 2
        if found[0] <= value:
            break
        gained = found[0] - value
        weights, (value, gradient, hessian) = weights + size * step, found
        if gained < CLOSE:
            break
    return weights


def likelihood(
    choices: Choices, weights: NDArray[np.float64], centre: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Returns the mean ln probability of the choices minus the ridge penalty, its gradient [F] and its negated Hessian
    [F, F].
    """
    scores = choices.features @ weights + choices.offset
    scores -= scores.max(axis=1, keepdims=True)
    q = np.exp(scores)
    total = q.sum(axis=1, keepdims=True)
    q /= total
    m = np.arange(len(q))
    value = float(np.mean(scores[m, choices.chosen] - np.log(total[:, 0])))
    mean = np.einsum("mc,mcf->mf", q, choices.features)
    gradient = (choices.features[m, choices.chosen] - mean).mean(axis=0)
    second = np.einsum("mcf,mcg->fg", q[..., None] * choices.features, choices.features, optimize=True) / len(q)
    away = weights - centre
    hessian = second - mean.T @ mean / len(q) + RIDGE * np.eye(len(weights))
    return value - RIDGE / 2 * float(away @ away), gradient - RIDGE * away, hessian


LEAST_P = 1e-300
MOST_ROWS = 30_000  # per slot


class Thinned:
    """Choices of one slot, thinned to at most `most` rows: every row is kept, then every second, fourth, .. of all
    that were added.
    """

    def __init__(self, most: int = MOST_ROWS):
        self.most, self.stride, self.seen = most, 1, 0
        self._parts: list[Choices] = []

    def add(self, choices: Choices) -> None:
        self._parts.append(choices.rows(slice(-self.seen % self.stride, None, self.stride)))
        self.seen += len(choices)
        while sum(map(len, self._parts)) > self.most:
            self._parts = [Choices.joined(self._parts).rows(slice(None, None, 2))]
            self.stride *= 2

    def joined(self) -> Choices:
        return Choices.joined(self._parts)


def calibration_choices(
    block: DumpBlock,
    model: NGram,
    text: tuple[Share, ...] | None,
    top_k: int | None = None,
) -> list[Choices]:
    """Returns the choices of each of T slots: among the K candidates and, last, all other tokens together. The features
    are the factors of head, alpha, prior and floor in ln q (`Calibration`). Rows whose text ends before the slot are
    left out.
    """
    sausages, truth = block.sausages(k=top_k), block.truth()
    rows, slots, width = sausages.ids.shape
    listed = sausages.ids >= 0
    ids = np.where(listed, sausages.ids, 0)
    p = text_probabilities(block, model, text, ids)
    cost = np.where(listed, sausages.cost, np.inf).astype(np.float64)
    left = np.maximum(1 - np.exp(-cost).sum(axis=-1), _core.LEAST_MASS)
    features = np.zeros((rows, slots, width + 1, 4))
    features[..., :width, 0] = np.where(listed, -cost, 0)
    features[..., :width, 1] = np.log(np.maximum(p, LEAST_P))
    features[..., :width, 2] = np.minimum(model.distribution(0).astype(np.float64), _core.RAREST)[ids]
    features[..., width, 0] = -np.log((model.vocab_size - listed.sum(axis=-1)) / left)
    features[..., width, 3] = -1
    offset = np.zeros((rows, slots, width + 1))
    offset[..., :width] = np.where(listed, 0, -np.inf)
    offset[..., width] = np.log(np.maximum(1 - np.where(listed, p, 0).sum(axis=-1), _core.LEAST_MASS))
    hit = listed & (ids == truth[..., None])
    chosen = np.where(hit.any(axis=-1), hit.argmax(axis=-1), width)
    return of_slots(Choices(features=features, offset=offset, chosen=chosen), truth >= 0)


def path_choices(block: DumpBlock, models: Sequence[NGram], top_k: int | None = None) -> list[Choices]:
    """Returns the choices of each of T slots: among the K candidates, at rows where the truth is one of them. The
    features are the negated costs of the head and of each model, the factors of head and alpha.
    """
    sausages, truth = block.sausages(k=top_k), block.truth()
    listed = sausages.ids >= 0
    ids = np.where(listed, sausages.ids, 0)
    costs = [np.where(listed, sausages.cost, 0).astype(np.float64)]
    costs += [-np.log(np.maximum(model_probabilities(block, model, ids), LEAST_P)) for model in models]
    hit = listed & (ids == truth[..., None])
    whole = Choices(features=-np.stack(costs, axis=-1), offset=np.where(listed, 0, -np.inf), chosen=hit.argmax(axis=-1))
    return of_slots(whole, hit.any(axis=-1))


def of_slots(choices: Choices, kept: NDArray[np.bool_]) -> list[Choices]:
    """Splits choices [n, T, ..] into slots, each with its kept rows [n, T]."""
    return [
        Choices(
            features=choices.features[kept[:, t], t],
            offset=choices.offset[kept[:, t], t],
            chosen=choices.chosen[kept[:, t], t],
        )
        for t in range(kept.shape[1])
    ]


def text_probabilities(
    block: DumpBlock,
    model: NGram,
    text: tuple[Share, ...] | None,
    tokens: NDArray[np.int32],
) -> NDArray[np.float64]:
    """Returns p of `tokens` [n, T, K] in every slot given the true tokens before it, float64 [n, T, K].

    The model is mixed with the running text. Values past the end of the text are undefined.
    """
    p = model_probabilities(block, model, tokens)
    if text is None:
        return p
    truth = block.truth()
    for s in range(block.sequences):
        (prompt, rows), counts = parts_of(block, s), counts_of(text)
        counts.extend(block.prompt_tokens[prompt].astype(np.int32), prompt=True)
        for row in range(rows.start, rows.stop):
            counts.extend(block.tokens[row : row + 1].astype(np.int32))
            for t in range(int((truth[row] >= 0).sum())):
                share, rest = counts.mixture(truth[row, :t], tokens[row, t])
                p[row, t] = share + rest * p[row, t]
    return p


def model_probabilities(block: DumpBlock, model: NGram, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    rows, slots, width = tokens.shape
    states = np.empty(block.rows, np.uint32)  # before each token of the block
    for s in range(block.sequences):
        own = slice(int(block.offsets[s]), int(block.offsets[s + 1]))
        prompt = block.prompt_tokens[block.prompt_offsets[s] : block.prompt_offsets[s + 1]]
        states[own] = model.walk(block.tokens[own], model.start(prompt.astype(np.int32))).state
    ahead = np.minimum(np.arange(rows)[:, None] + np.arange(1, slots + 1), block.sequence_ends[:, None] - 1)
    of_token = np.repeat(states[ahead].ravel(), width)
    cost = model.core.score(tokens.ravel(), np.arange(tokens.size + 1), of_token)[0]
    return np.exp(-cost.reshape(tokens.shape).astype(np.float64))


START = np.array([0.5, 0.7, 0.0, -3.0])  # head, alpha, prior, floor; kept by slots without observations
LEAST = np.array([0.0, 0.0, -np.inf, -np.inf])
PATHS_HEAD, PATHS_ALPHA = 1.0, 0.5  # the start for paths; alpha is shared among the models


def fit_calibration(
    blocks: Iterable[DumpBlock],
    model: NGram,
    *,
    text: tuple[Share, ...] | None,
    top_k: int | None = None,
    workers: int = 1,
) -> Calibration:
    """Returns the calibration that maximises the likelihood of the blocks' tokens. Slots with more than 30,000 rows use
    every second, fourth, .. row.

    text: as in `Calibration`, not fitted (None: not used). Whether lattices are `open` does not change the fit, since q
    covers the whole vocabulary either way. workers: blocks, and then slots, processed concurrently. ValueError if there
    is no block.
    """
    slots = gathered(blocks, lambda block: calibration_choices(block, model, text, top_k), workers)
    weights = fitted(slots, START, LEAST, workers).clip(-MAX_WEIGHT, MAX_WEIGHT)
    head, alpha, prior, floor = (tuple(column.tolist()) for column in weights.T)
    return Calibration(head=head, alpha=alpha, prior=prior, floor=floor, text=text)


def fit_weights(
    blocks: Iterable[DumpBlock], models: Sequence[NGram], *, top_k: int | None = None, workers: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns head [T] and alpha [J, T] of a `Rescorer` that maximise the likelihood of the truth among the K
    candidates, over rows where it is one of them.

    Thinning and workers as in `fit_calibration`. ValueError if there is no block.
    """
    start = np.array([PATHS_HEAD, *[PATHS_ALPHA / max(len(models), 1)] * len(models)])
    slots = gathered(blocks, lambda block: path_choices(block, models, top_k), workers)
    weights = fitted(slots, start, np.zeros(len(start)), workers)
    return weights[:, 0].copy(), weights[:, 1:].T.copy()


def fitted(
    slots: Sequence[Choices], start: NDArray[np.float64], least: NDArray[np.float64], workers: int
) -> NDArray[np.float64]:
    """Fits the weights of every slot, [T, F]; slots without choices keep `start`."""

    def fit(choices: Choices) -> NDArray[np.float64]:
        return fit_logit(choices, start, least=least) if len(choices) else start

    return np.array(list(side_by_side(fit, slots, workers)))


def gathered(
    blocks: Iterable[DumpBlock], choices_of: Callable[[DumpBlock], list[Choices]], workers: int
) -> list[Choices]:
    """Collects the thinned choices of every slot, in one pass over the blocks."""
    slots: list[Thinned] = []
    for of_block in side_by_side(choices_of, blocks, workers):
        slots = slots or [Thinned() for _ in of_block]
        for thinned, choices in zip(slots, of_block):
            thinned.add(choices)
    if not slots:
        raise ValueError(
            "fit: expected at least one sequence to fit weights on, got none: tune on a larger part of the dump"
        )
    return [thinned.joined() for thinned in slots]
