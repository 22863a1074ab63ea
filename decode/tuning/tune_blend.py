"""Tunes the weight of the running text in drafts for a model without heads.

Maximum likelihood would weigh the running text more than is best for block efficiency. So strengths and shares are
tuned one at a time by coordinate ascent on block efficiency, measured by replaying the tuning part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rescore.decode.replay.drafters.headless import blend
from rescore.decode.replay.drafters.standard import fitted_models
from rescore.decode.replay.split import Split
from rescore.decode.replay.worth import ReplayDrafter
from rescore.decode.rescoring.calibration import HEADLESS, Calibration
from rescore.decode.tuning.line_search import Trials, climb
from rescore.decode.tuning.trial_replays import SIZES, TrialReplays, log_efficiency
from rescore.decode.tuning.tune import tuning_part
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

BLEND = "blend"  # the kind of its trees in settings
OBJECTIVE_OF_BLEND = "ln of block efficiency, mean over tasks and over 16 and 64 nodes"
START = replace(HEADLESS, soft=tuple(HEADLESS.shares.tolist()))
SWEEPS = ((2.0, 0.2), (1.4, 0.1))  # per sweep, the factor between strengths and the difference between shares
REACH = 3  # grid steps on either side of the current weight


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedBlend:
    """The result of `tune_blend`. tried: `log_efficiency` at 16 and 64 nodes of every calibration tried, in order; the
    first is the default.
    """

    calibration: Calibration
    tried: dict[Calibration, float]
    split: Split


def tune_blend(
    dump: Dump,
    model: NGram | None = None,
    *,
    split: Split | None = None,
    threads: int = 1,
    advance: Callable[[str], None] = lambda trial: None,
) -> TunedBlend:
    """Finds the strengths and shares of the running text that maximise block efficiency on the tuning part of a dump
    without heads, with an n-gram model or none. The held-out part is not read.

    split, advance: as in `tune`. ValueError for a dump with heads, for a model with another vocabulary or tokenizer, or
    if the tuning part is empty.
    """
    if dump.header.heads > 1:
        raise ValueError(
            f"tune_blend: expected a dump without heads, got {dump.path} with {dump.header.heads}: use tune"
        )
    models = fitted_models(dump, [model] if model else [])
    part = tuning_part(dump, split)
    search = _Search(TrialReplays(dump, models, part, threads=threads), advance)
    for factor, difference in SWEEPS:
        for order in range(len(START.shares)):
            search.strength(order, factor)
        for order in range(1, len(START.shares)):  # unigram counts are never soft
            search.share(order, difference)
    return TunedBlend(calibration=search.best, tried=search.tried, split=part.split)


class _Search:
    """Coordinate ascent. best: the best calibration so far, in which the next weight is varied."""

    def __init__(self, replays: TrialReplays, advance: Callable[[str], None]):
        self.replays, self.advance = replays, advance
        self.tried: dict[Calibration, float] = {}
        self.best = START

    def strength(self, order: int, factor: float) -> None:
        best = self.best
        assert (text := best.text), "a blend reads the text"
        grid = [float(f"{text[order] * factor**step:.3g}") for step in range(-REACH, REACH + 1)]
        self._climb(
            f"strength of {order}", grid, text[order], lambda one: replace(best, text=changed(text, order, one))
        )

    def share(self, order: int, difference: float) -> None:
        best = self.best
        grid = [round(best.soft[order] + difference * step, 3) for step in range(-REACH, REACH + 1)]
        self._climb(
            f"share of {order}",
            [one for one in grid if 0 <= one <= 1],
            best.soft[order],
            lambda one: replace(best, soft=changed(best.soft, order, one)),
        )

    def _climb(self, name: str, grid: Sequence[float], now: float, with_: Callable[[float], Calibration]) -> None:
        trials = Trials(lambda number: self._value(f"{name} tokens {number:g}", with_(number)))
        found = climb(trials, grid, grid.index(now))
        if trials(found) > trials(now):  # on ties the current weight is kept
            self.best = with_(found)

    def _value(self, name: str, calibration: Calibration) -> float:
        if calibration not in self.tried:
            self.advance(f"trial {len(self.tried) + 1}: {name}")
            result = self.replays.replay(lambda threads: self._drafter(calibration, threads))
            self.tried[calibration] = log_efficiency(result, result.names)
        return self.tried[calibration]

    def _drafter(self, calibration: Calibration, threads: int) -> ReplayDrafter:
        model = next(iter(self.replays.models), None)
        return blend(self.replays.dump, model, calibration, {str(n): n for n in SIZES}, threads)


def changed(values: tuple[float, ...], place: int, value: float) -> tuple[float, ...]:
    return (*values[:place], value, *values[place + 1 :])
