"""Tunes the calibration of trees.

Head, alpha, prior and floor of every slot are maximum-likelihood fits. The strengths of the running text are not:
likelihood would weigh it more than is best for block efficiency, so their scale is chosen by block efficiency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rescore.decode.rescoring.calibration import HEADLESS, Calibration
from rescore.decode.tuning.fit import fit_calibration
from rescore.decode.tuning.line_search import Trials, climb
from rescore.decode.tuning.trial_replays import TrialReplays, log_efficiency

# Factors of the strengths for models without heads; the larger, the less the running text weighs.
SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
FIRST = SCALES.index(2.0)
NO_TEXT = 0.0  # the scale that means no running text
KINDS = ("closed", "open", "alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeWeights:
    """One calibration for all tasks, and one per task."""

    overall: Calibration
    by_task: dict[str, Calibration] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTuning:
    """The calibrations of closed lattices, of open lattices and, as a control, of the n-grams without heads (alone).

    scales: for each kind, `log_efficiency` at 16 and 64 nodes by the scale of the text's strengths (0: no text).
    """

    closed: TreeWeights
    open: TreeWeights
    alone: TreeWeights
    scales: dict[str, dict[float, float]]


def tune_trees(replays: TrialReplays, *, per_task: bool = False, advance: Callable[[str], None]) -> TreeTuning:
    """Tunes the calibrations of trees with the one model of the replays. per_task: also one per task and kind, from the
    task's sequences only.
    """
    tasks, search = replays.tasks, _Search(replays, advance)
    overall = {kind: search.best(kind, tasks) for kind in KINDS}
    by_task = {kind: {task: search.best(kind, [task])[0] for task in tasks} if per_task else {} for kind in KINDS}
    weights = {kind: TreeWeights(overall=overall[kind][0], by_task=by_task[kind]) for kind in KINDS}
    return TreeTuning(**weights, scales={kind: overall[kind][1] for kind in KINDS})


class _Search:
    """Searches the scale of the text's strengths. Closed and open lattices share each fit."""

    def __init__(self, replays: TrialReplays, advance: Callable[[str], None]):
        self.replays, self.advance = replays, advance
        self._fits: dict[tuple[tuple[str, ...], float], Calibration] = {}

    def best(self, kind: str, tasks: Sequence[str]) -> tuple[Calibration, dict[float, float]]:
        trials = Trials(lambda scale: self._value(kind, tasks, scale))
        trials(NO_TEXT)
        climb(trials, SCALES, FIRST)
        return self._calibration(kind, tasks, trials.best), trials.values

    def _value(self, kind: str, tasks: Sequence[str], scale: float) -> float:
        of = f" of {', '.join(tasks)}" if len(tasks) < len(self.replays.dump.tasks) else ""
        self.advance(f"{kind} trees{of}, " + (f"running text x {scale:g}" if scale else "no running text"))
        result = self.replays.of_calibration(kind, self._calibration(kind, tasks, scale), tasks)
        return log_efficiency(result, result.names)

    def _calibration(self, kind: str, tasks: Sequence[str], scale: float) -> Calibration:
        text, soft = read_text(scale)
        if kind == "alone":
            return Calibration(text=text, soft=soft).without_heads()
        key = tuple(tasks), scale
        if key not in self._fits:
            replays = self.replays
            self._fits[key] = fit_calibration(
                replays.blocks(tasks),
                replays.models[0],
                text=text,
                soft=soft,
                top_k=replays.top_k,
                workers=replays.threads,
            )
        fitted = self._fits[key]
        weights = {name: getattr(fitted, name) for name in ("head", "alpha", "prior", "floor")}
        return Calibration(**weights, open=kind == "open", text=text, soft=soft)


def read_text(scale: float) -> tuple[tuple[float, ...] | None, tuple[float, ...]]:
    """Returns strengths of the running text (`HEADLESS`, times `scale`) and its shares; none at scale 0."""
    if not scale:
        return None, ()
    assert HEADLESS.text is not None
    return tuple(scale * strength for strength in HEADLESS.text), HEADLESS.soft
