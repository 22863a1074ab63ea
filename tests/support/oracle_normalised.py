"""q of a lattice by enumeration: the weight of every path, and sums over paths with a common prefix."""

import itertools
import math

import numpy as np
from support.oracle import FIXED_ONE, Backoff, core_arguments, path_weight, step_weights

from rescore import _core


def normalise(lms, batch, alphas, histories, **options) -> _core.Normalised:
    return _core.Normalised(*core_arguments(lms, batch, alphas, histories), **options)


def strings(batch) -> tuple[list[list[tuple[int, ...]]], np.ndarray]:
    """All paths of every lattice as ranks, and as drafts [B, p, T], padded to the largest number of paths."""
    ranks = [list(itertools.product(*(range(len(slot)) for slot in sausage))) for sausage in batch]
    drafts = np.full((len(batch), max(map(len, ranks)), max(1, *map(len, batch))), -1, np.int32)
    for b, (sausage, every) in enumerate(zip(batch, ranks)):
        for i, string in enumerate(every):
            drafts[b, i, : len(string)] = [sausage[t][rank][0] for t, rank in enumerate(string)]
    return ranks, drafts


def log_sum(scores) -> float:
    most = max(scores)
    return most + math.log(math.fsum(math.exp(score - most) for score in scores))


class Enumerated:
    """ln q of every path, by its ranks."""

    def __init__(self, sausage, lms: list[Backoff], alphas, history, temperature: float):
        self.widths, histories = [len(slot) for slot in sausage], [history] * len(lms)
        unit = -FIXED_ONE * temperature
        score = {
            ranks: math.fsum(w / unit for w in step_weights(path_weight, sausage, ranks, lms, alphas, histories))
            for ranks in itertools.product(*map(range, self.widths))
        }
        self.largest = max(map(abs, score.values()))
        self.log_mass = log_sum(score.values())
        self.logq = {ranks: s - self.log_mass for ranks, s in score.items()}

    def log_mass_of(self, prefix) -> float:
        return log_sum([logq for ranks, logq in self.logq.items() if ranks[: len(prefix)] == tuple(prefix)])

    def row(self, prefix) -> np.ndarray:
        """q(. | prefix) by rank."""
        after = [self.log_mass_of((*prefix, rank)) for rank in range(self.widths[len(prefix)])]
        return np.exp(np.array(after) - self.log_mass_of(prefix))

    @property
    def rounding(self) -> float:
        """How far ln q in float64 may be off: 1e-12, or some roundings of the largest sum."""
        return max(1e-12, 32 * np.finfo(np.float64).eps * self.largest)
