"""Fits weights to text by maximum likelihood, slot by slot, with Newton's method.

Trees are drafted by q, so `fit_calibration` maximises the likelihood of the true tokens under q. Paths are ranked among
candidates, so `fit_weights` maximises the likelihood of choosing the truth among the candidates. Both condition on the
true tokens before the slot, as for a draft that is accepted up to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.calibration import MAX_WEIGHT, Calibration, Share
from rescore.decode.lab.tuning.choices import Thinned, calibration_choices, path_choices
from rescore.decode.lab.tuning.logit import Choices, fit_logit
from rescore.lattice.dump_block import DumpBlock
from rescore.lm.model.columns import Columns, in_order
from rescore.lm.model.ngram import NGram

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

    return np.array(list(in_order(Columns(workers), fit, zip(slots))))


def gathered(
    blocks: Iterable[DumpBlock], choices_of: Callable[[DumpBlock], list[Choices]], workers: int
) -> list[Choices]:
    """Collects the thinned choices of every slot, in one pass over the blocks."""
    slots: list[Thinned] = []
    for of_block in in_order(Columns(workers), choices_of, zip(blocks)):
        slots = slots or [Thinned() for _ in of_block]
        for thinned, choices in zip(slots, of_block):
            thinned.add(choices)
    if not slots:
        raise ValueError(
            "fit: expected at least one sequence to fit weights on, got none: tune on a larger part of the dump"
        )
    return [thinned.joined() for thinned in slots]
