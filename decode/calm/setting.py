"""The settings of early exits, and the LOSSY target that they describe."""

from __future__ import annotations

from dataclasses import dataclass

from rescore.decode.calm.confidence import Confidence, Saturation, SoftmaxResponse
from rescore.decode.calm.early_exit import LayeredModel, LossyEarlyExitTarget
from rescore.decode.calm.threshold import Threshold
from rescore.decode.models.exit_heads import ExitHeads

CONFIDENCES = (SoftmaxResponse.name, Saturation.name, ExitHeads.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitSetting:
    """Settings of early exits.

    confidence  one of CONFIDENCES
    exits       numbers of layers after which tokens may exit
    threshold   the confidence required to exit
    """

    confidence: str
    exits: tuple[int, ...]
    threshold: Threshold

    def __post_init__(self) -> None:
        if self.confidence not in CONFIDENCES:
            raise ValueError(f"confidence: expected {', '.join(CONFIDENCES)}, got {self.confidence!r:.40}")

    def target(self, layered: LayeredModel, heads: ExitHeads | None) -> LossyEarlyExitTarget:
        """Makes the target. heads: trained exit heads; None: states are not translated."""
        translate = heads.translate if heads is not None else None
        return LossyEarlyExitTarget(layered, self._of(layered, heads), self.threshold, self.exits, translate)

    def _of(self, layered: LayeredModel, heads: ExitHeads | None) -> Confidence:
        if self.confidence == Saturation.name:
            return Saturation()
        if self.confidence == ExitHeads.name:
            if heads is None:
                raise ValueError(
                    "confidence: expected exit heads for a classifier, got none; train them with rescore calm train"
                )
            return heads
        if heads is None:
            return SoftmaxResponse(lambda layers, state: layered.logits(state))
        return SoftmaxResponse(lambda layers, state: layered.logits(heads.translate(layers, state)))


def usual_exits(depth: int) -> tuple[int, ...]:
    """Returns about five exits in the last third of the layers."""
    return tuple(range(max(1, 2 * depth // 3), depth, max(1, depth // 15)))
