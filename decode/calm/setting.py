"""How tokens leave a model, in one value, and the LOSSY target that does so."""

from __future__ import annotations

from dataclasses import dataclass

from rescore.decode.calm.confidence import Confidence, Saturation, SoftmaxResponse
from rescore.decode.calm.early_exit import LayeredModel, LossyEarlyExitTarget
from rescore.decode.calm.threshold import Threshold
from rescore.decode.models.exit_heads import ExitHeads

CONFIDENCES = (SoftmaxResponse.name, Saturation.name, ExitHeads.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitSetting:
    """confidence  one of CONFIDENCES
    exits       layers behind which tokens may leave
    threshold   of the confidence, from which they do
    """

    confidence: str
    exits: tuple[int, ...]
    threshold: Threshold

    def __post_init__(self) -> None:
        if self.confidence not in CONFIDENCES:
            raise ValueError(f"confidence: expected {', '.join(CONFIDENCES)}, got {self.confidence!r:.40}")

    def target(self, layered: LayeredModel, heads: ExitHeads | None) -> LossyEarlyExitTarget:
        """heads: what was trained for the exits; None: states are read as they are."""
        translate = heads.translate if heads is not None else None
        return LossyEarlyExitTarget(layered, self._of(layered, heads), self.threshold, self.exits, translate)

    def _of(self, layered: LayeredModel, heads: ExitHeads | None) -> Confidence:
        if self.confidence == Saturation.name:
            return Saturation()
        if self.confidence == ExitHeads.name:
            if heads is None:
                raise ValueError("confidence: expected exit heads for a classifier, got none; rescore calm train")
            return heads
        if heads is None:
            return SoftmaxResponse(lambda layers, state: layered.logits(state))
        return SoftmaxResponse(lambda layers, state: layered.logits(heads.translate(layers, state)))


def usual_exits(depth: int) -> tuple[int, ...]:
    """Some five layers of the last third."""
    return tuple(range(max(1, 2 * depth // 3), depth, max(1, depth // 15)))
