"""What a dump says of the weights: for each slot, the choice of the true token among the alternatives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.calibration import Share, counts_of
from rescore.decode.lab.replay.recorded import parts_of
from rescore.decode.lab.tuning.logit import Choices
from rescore.lattice.dump_block import DumpBlock
from rescore.lm.model.ngram import NGram

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
        prompt, own = parts_of(block, s)
        start = model.start(block.prompt_tokens[prompt].astype(np.int32))
        states[own] = model.walk(block.tokens[own], start).state
    ahead = np.minimum(np.arange(rows)[:, None] + np.arange(1, slots + 1), block.sequence_ends[:, None] - 1)
    of_token = np.repeat(states[ahead].ravel(), width)
    cost = model.core.score(tokens.ravel(), np.arange(tokens.size + 1), of_token)[0]
    return np.exp(-cost.reshape(tokens.shape).astype(np.float64))
