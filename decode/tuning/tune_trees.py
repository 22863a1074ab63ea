"""Tunes the calibration of trees: maximum-likelihood fits, of head, alpha, prior and floor of every slot, and of the
running text's shares. Whether the text is read at all is chosen by block efficiency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from rescore.decode.draft.calibration import SHARES, Calibration, Share
from rescore.decode.draft.settings_parts import BLEND, HEADLESS_KINDS, KINDS, TreeWeights
from rescore.decode.tuning.fit import fit_calibration
from rescore.decode.tuning.fit_shares import fit_shares
from rescore.decode.tuning.trial_replays import TrialReplays, log_efficiency
from rescore.lm.ngram import NGram


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTuning:
    """weights  calibrations by kind: of closed and of open lattices and, as a control, of the n-grams without heads
                ("alone"); for a model without heads "blend"
    tried    for each kind, `log_efficiency` at 16 and 64 nodes of the calibrations that were tried
    """

    weights: dict[str, TreeWeights]
    tried: dict[str, dict[Calibration, float]]


def tune_trees(replays: TrialReplays, *, per_task: bool = False, advance: Callable[[str], None]) -> TreeTuning:
    """Tunes the calibrations of trees with the one model of the replays, or none. per_task: also one per task and kind,
    from the task's sequences only.
    """
    tasks, search = replays.tasks, _Search(replays, advance)
    kinds = KINDS if replays.dump.slots else (BLEND,)
    overall = {kind: search.tried(kind, tasks) for kind in kinds}
    by_task = {kind: {task: best(search.tried(kind, (task,))) for task in tasks} if per_task else {} for kind in kinds}
    weights = {kind: TreeWeights(overall=best(overall[kind]), by_task=by_task[kind]) for kind in kinds}
    return TreeTuning(weights=weights, tried=overall)


def best(tried: dict[Calibration, float]) -> Calibration:
    """The first of equal ones."""
    return max(tried, key=lambda one: tried[one])


class _Search:
    """Fits and replays. Closed and open lattices share each fit."""

    def __init__(self, replays: TrialReplays, advance: Callable[[str], None]):
        self.replays, self.advance = replays, advance
        self._model = next(iter(replays.models), None) or NGram.uniform(replays.dump.header.vocab_size)
        self._shares, self._fit = cache(self._fitted_shares), cache(self._fitted)

    def tried(self, kind: str, tasks: tuple[str, ...]) -> dict[Calibration, float]:
        of = f" of {', '.join(tasks)}" if len(tasks) < len(self.replays.dump.tasks) else ""
        found = {}
        # Without heads there is no draft without the text: the default shares, or fitted ones.
        for told, text in (
            ("default shares" if kind == BLEND else "without the running text", SHARES if kind == BLEND else None),
            ("fitted shares", self._shares(tasks)),
        ):
            self.advance(f"{kind} trees{of}, {told}")
            calibration = self._calibration(kind, tasks, text)
            result = self.replays.of_calibration(kind, calibration, tasks)
            found[calibration] = log_efficiency(result, result.names)
        return found

    def _calibration(self, kind: str, tasks: tuple[str, ...], text: tuple[Share, ...] | None) -> Calibration:
        if kind in HEADLESS_KINDS:
            return Calibration(text=text).without_heads()
        fitted = self._fit(tasks, text)
        weights = {name: getattr(fitted, name) for name in ("head", "alpha", "prior", "floor")}
        return Calibration(**weights, open=kind == "open", text=text)

    def _fitted_shares(self, tasks: Sequence[str]) -> tuple[Share, ...]:
        return fit_shares(self.replays.blocks(tasks), self._model)

    def _fitted(self, tasks: Sequence[str], text: tuple[Share, ...] | None) -> Calibration:
        replays = self.replays
        return fit_calibration(
            replays.blocks(tasks), replays.models[0], text=text, top_k=replays.top_k, workers=replays.threads
        )
