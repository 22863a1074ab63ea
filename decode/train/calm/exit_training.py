"""Fits exit heads, in closed form and by convex optimisation: deterministic, and done in seconds.

A translation is a ridge regression of the last layer's states on an exit's, shrunk towards the identity. Each
classifier is a separate logistic regression, as in the independent per-layer loss of Schuster et al. 2022 (arXiv
2207.07061), section 3. Classifiers are fitted on other states than the translations, on whose own training data tokens
would be right too often.

The training data are states at the exits along texts, and the last layer's states and tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.exit_heads import ExitForm, ExitHeads, scale_rms
from rescore.decode.models.target import Block
from rescore.decode.train.calm.early_exit import LayeredModel
from rescore.decode.train.calm.gates import ExitPass, untranslated

CHUNK = 256  # positions whose logits are computed at once
RIDGE = 0.01  # relative to the mean square of the states' coordinates
DECAY = 0.02  # weight decay of a classifier
STEPS = 200  # maximum L-BFGS iterations


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExitStates:
    """States at n positions, scaled to a root mean square of 1.

    exits   float16 [n, width] after each exit
    last    float16 [n, width] after the last layer
    tokens  int64 [n], the most probable tokens after the last layer
    """

    exits: dict[int, Tensor]
    last: Tensor
    tokens: Tensor

    @classmethod
    def joined(cls, parts: Iterable[ExitStates]) -> ExitStates:
        parts = list(parts)
        exits = {layers: torch.cat([part.exits[layers] for part in parts]) for layers in parts[0].exits}
        last, tokens = (torch.cat([getattr(part, name) for part in parts]) for name in ("last", "tokens"))
        return cls(exits=exits, last=last, tokens=tokens)


@torch.inference_mode()
def exit_states(
    layered: LayeredModel, exits: Sequence[int], texts: Iterable[tuple[NDArray[np.int64], NDArray[np.int32]]]
) -> Iterator[ExitStates]:
    """Yields the states of every text, a prompt [m] and its continuation [n], at the n positions that predict the
    continuation.
    """
    for prompt, text in texts:
        cache, (first,) = layered.target.open([prompt], 1, len(prompt) + len(text))
        ids = np.concatenate((first, text[:-1])).astype(np.int64)
        block = Block.of_texts([ids], [0], layered.target.device)
        recorder = _Recorder(len(text))
        watched = frozenset((*exits, layered.depth))
        started = ExitPass(block.ids.shape, layered.depth, watched, recorder, untranslated, block.ids.device)
        with layered.gated.running(started, cache):
            layered.target.read(block, cache)
        last = recorder.seen.pop(layered.depth)
        yield ExitStates(
            exits={layers: state.half().cpu() for layers, state in recorder.seen.items()},
            last=last.half().cpu(),
            tokens=best_tokens(layered, last),
        )


class _Recorder:
    """Never exits; records the states of the last n positions of a row."""

    def __init__(self, n: int):
        self.n = n
        self.seen: dict[int, Tensor] = {}

    def __call__(self, layers: int, state: Tensor, below: Tensor) -> Tensor:
        self.seen[layers] = scale_rms(state[0, -self.n :])
        return torch.zeros(state.shape[:-1], dtype=torch.bool, device=state.device)


def best_tokens(layered: LayeredModel, states: Tensor) -> Tensor:
    """Returns the most probable token after each of the states [n, width], int64 [n] on the CPU."""
    return torch.cat([layered.logits(chunk).argmax(dim=-1).cpu() for chunk in states.split(CHUNK)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitScore:
    """Scores of an exit on held-out texts.

    plain      share of positions whose token equals the last layer's, without translation
    agreement  the same, with translation
    accuracy   of the classifier at threshold 1/2
    area       area under its ROC curve: how often it ranks a right token above a wrong one
    """

    layers: int
    plain: float
    agreement: float
    accuracy: float
    area: float


@torch.inference_mode()
def fit_exits(
    layered: LayeredModel, exits: Sequence[int], translating: ExitStates, classifying: ExitStates
) -> ExitHeads:
    """Fits translations on the states `translating` and classifiers on the states `classifying`."""
    width = translating.last.shape[1]
    heads = ExitHeads(ExitForm(exits=tuple(exits), depth=layered.depth, width=width))
    for row, layers in enumerate(exits):
        weights = ridge(translating.exits[layers].float(), translating.last.float(), RIDGE)
        heads.translation[row], heads.offset[row] = weights[:-1], weights[-1]
        right = _right(layered, heads, layers, classifying)
        heads.classifier[row], heads.bias[row] = logistic(classifying.exits[layers].float(), right, DECAY)
    return heads


def score_exits(layered: LayeredModel, heads: ExitHeads, held_out: ExitStates) -> list[ExitScore]:
    return [_score(layered, heads, layers, held_out) for layers in heads.exits]


@torch.inference_mode()
def _score(layered: LayeredModel, heads: ExitHeads, layers: int, held_out: ExitStates) -> ExitScore:
    states = held_out.exits[layers].float()
    right, sure = _right(layered, heads, layers, held_out), heads(layers, states, states)
    return ExitScore(
        layers=layers,
        plain=float((best_tokens(layered, _cast(layered, states)) == held_out.tokens).float().mean()),
        agreement=float(right.mean()),
        accuracy=float(((sure >= 0.5) == right.bool()).float().mean()),
        area=area(sure, right),
    )


def ridge(states: Tensor, wanted: Tensor, shrink: float) -> Tensor:
    """Returns W and b, [width + 1, width], that minimise |x W + b - (y - x)|^2 + shrink |W|^2 over n rows x, y.

    shrink: relative to the mean square of x.
    """
    x = F.pad(states, (0, 1), value=1.0)
    gram = x.T @ x
    gram.diagonal().add_(shrink * gram.diagonal().mean())
    return torch.linalg.solve(gram, x.T @ (wanted - states))


def logistic(states: Tensor, right: Tensor, decay: float) -> tuple[Tensor, Tensor]:
    """Returns weights [width] and bias [] of the logistic regression of right, 0 or 1 [n], on states [n, width]."""
    with torch.inference_mode(False), torch.enable_grad():
        x, wanted = states.clone(), right.clone()
        weights, bias = (torch.zeros(shape, requires_grad=True) for shape in ((x.shape[1],), ()))
        optimizer = torch.optim.LBFGS([weights, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            total = F.binary_cross_entropy_with_logits(x @ weights + bias, wanted) + decay * weights.square().sum()
            total.backward()
            return total

        optimizer.step(loss)  # type: ignore[arg-type]
    return weights.detach(), bias.detach()


def area(scores: Tensor, right: Tensor) -> float:
    """Returns how often a right token outscores a wrong one; ties count half; 1/2 if one class is empty."""
    positive, negative = scores[right.bool()], scores[~right.bool()].sort().values
    if not len(positive) or not len(negative):
        return 0.5
    below = torch.searchsorted(negative, positive).double() + torch.searchsorted(negative, positive, right=True)
    return float(below.mean() / (2 * len(negative)))


def _right(layered: LayeredModel, heads: ExitHeads, layers: int, states: ExitStates) -> Tensor:
    """Returns 1 where the exit's token equals the last layer's, float32 [n]."""
    translated = heads.translate(layers, states.exits[layers].float())
    return (best_tokens(layered, _cast(layered, translated)) == states.tokens).float()


def _cast(layered: LayeredModel, states: Tensor) -> Tensor:
    return states.to(layered.target.device, layered.target.model.dtype)
