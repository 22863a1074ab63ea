"""Fitting weights to text: those under which the tokens that came are most likely, slot by slot, by Newton's method.

What trees are drafted by is q itself, so its likelihood is fitted (`fit_calibration`). Strings are ranked among
candidates, so theirs is the choice of the truth among the candidates (`fit_weights`). Both are given the true tokens
before the slot, as a draft that is still being accepted is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.side_by_side import side_by_side
from rescore.decode.rescoring.calibration import MOST, Calibration
from rescore.decode.tuning.choices import Thinned, calibration_choices, path_choices
from rescore.decode.tuning.logit import Choices, fit_logit
from rescore.lattice.dump_block import DumpBlock
from rescore.lm.ngram import NGram

START = np.array([0.5, 0.7, 0.0, -3.0])  # head, alpha, prior, floor: what a slot without observations keeps
LEAST = np.array([0.0, 0.0, -np.inf, -np.inf])
PATHS_HEAD, PATHS_ALPHA = 1.0, 0.5  # the same of paths, alpha shared among the models


def fit_calibration(
    blocks: Iterable[DumpBlock],
    model: NGram,
    *,
    text: tuple[float, ...] | None,
    soft: tuple[float, ...] = (),
    top_k: int | None = None,
    open: bool = True,
    workers: int = 1,
) -> Calibration:
    """The calibration of greatest likelihood of the blocks' tokens; of more than 30,000 rows of a slot every second,
    fourth, ..

    text, soft: strengths and shares of the running text, which are not fitted (None: it is not used). open: what is set
    in the result; q sums over the whole vocabulary either way, so the weights are the same. workers: how many blocks,
    and then slots, are worked on side by side. ValueError if there is no block.
    """
    slots = gathered(blocks, lambda block: calibration_choices(block, model, text, top_k, soft), workers)
    weights = fitted(slots, START, LEAST, workers).clip(-MOST, MOST)
    head, alpha, prior, floor = (tuple(column.tolist()) for column in weights.T)
    return Calibration(head=head, alpha=alpha, prior=prior, floor=floor, open=open, text=text, soft=soft)


def fit_weights(
    blocks: Iterable[DumpBlock], models: Sequence[NGram], *, top_k: int | None = None, workers: int = 1
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """head [T] and alpha [J, T] of a `Rescorer` under which the truth is most likely among the K candidates, where it
    is one of them.

    Rows and workers as in `fit_calibration`. ValueError if there is no block.
    """
    start = np.array([PATHS_HEAD, *[PATHS_ALPHA / max(len(models), 1)] * len(models)])
    slots = gathered(blocks, lambda block: path_choices(block, models, top_k), workers)
    weights = fitted(slots, start, np.zeros(len(start)), workers)
    return weights[:, 0].copy(), weights[:, 1:].T.copy()


def fitted(
    slots: Sequence[Choices], start: NDArray[np.float64], least: NDArray[np.float64], workers: int
) -> NDArray[np.float64]:
    """The weights [T, F] of every slot; those of one without choices are `start`."""

    def fit(choices: Choices) -> NDArray[np.float64]:
        return fit_logit(choices, start, least=least) if len(choices) else start

    return np.array(list(side_by_side(fit, slots, workers)))


def gathered(
    blocks: Iterable[DumpBlock], choices_of: Callable[[DumpBlock], list[Choices]], workers: int
) -> list[Choices]:
    """The thinned choices of every slot, in one pass over the blocks."""
    slots: list[Thinned] = []
    for of_block in side_by_side(choices_of, blocks, workers):
        slots = slots or [Thinned() for _ in of_block]
        for thinned, choices in zip(slots, of_block):
            thinned.add(choices)
    if not slots:
        raise ValueError(
            "fit: expected at least one sequence to fit weights to, got none: tune on a larger part of the dump"
        )
    return [thinned.joined() for thinned in slots]
