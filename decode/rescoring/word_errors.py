"""Word errors against a reference, and weights that make fewest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from rescore import _core
from rescore.decode.rescoring.rescorer import MAX_WEIGHT, LatticeRescorer, Weights
from rescore.lattice.word_lattice import WordLattice

SCALES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # times the acoustic weight that was given
PENALTIES = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)  # nats more than were given


def word_errors(words: Sequence[str], reference: Sequence[str]) -> int:
    """The least number of words that are replaced, left out or put in."""
    row = np.arange(len(reference) + 1)
    for place, word in enumerate(words, 1):
        step = np.minimum(row[1:] + 1, row[:-1] + np.array([word != other for other in reference], int))
        # An insertion to the left costs one more than what it starts from.
        row = np.minimum.accumulate(np.append(place, step) - np.arange(len(row))) + np.arange(len(row))
    return int(row[-1])


def tuned(
    rescorer: LatticeRescorer, lattices: Sequence[WordLattice], references: Sequence[Sequence[str]]
) -> tuple[Weights, int]:
    """The acoustic weight and word penalty whose best strings have the fewest word errors, and these: of SCALES and
    PENALTIES around those of the rescorer, the first of equal ones from the middle. Scales at which an arc would weigh
    too much are left out.
    """
    acoustic, _, penalty = rescorer.weights.of(lattices[0])
    heaviest = max(float(abs(one.costs[:, 0]).max(initial=0)) for one in lattices)
    most = min(MAX_WEIGHT, _core.MAX_WEIGHT / 2 / max(heaviest, 1.0))  # half of it, since an arc has other costs too
    scales = [scale for scale in SCALES if scale <= 1 or acoustic * scale <= most]
    tried = sorted(product(scales, PENALTIES), key=lambda one: abs(np.log(one[0])) + abs(one[1]))
    best: tuple[Weights, int] | None = None
    for scale, more in tried:
        weights = replace(rescorer.weights, acoustic=acoustic * scale, word_penalty=penalty + more)
        found = rescorer.weighed(weights).paths_of(lattices, 1)
        errors = sum(word_errors(one.words[0] if len(one) else [], ref) for one, ref in zip(found, references))
        if best is None or errors < best[1]:
            best = weights, errors
    assert best is not None
    return best
