"""The calibrations of a report's trees, and their source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rescore.decode.draft.calibration import DEFAULT, HEADLESS, Calibration
from rescore.decode.draft.settings import Settings
from rescore.decode.replay.names import CALIBRATED_TREE, LM_AND_TEXT, OPEN_TREE
from rescore.decode.tuning.tune_trees import TreeTuning


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeCalibrations:
    """Calibrations of a report's trees.

    open    of open trees
    closed  of closed trees; None if not shown
    alone   of the control: model and running text without heads
    source  how they were obtained, as a phrase
    """

    open: Calibration = DEFAULT
    closed: Calibration | None = None
    alone: Calibration = HEADLESS
    source: str = "the default, not tuned"

    @classmethod
    def of_tuning(cls, tuned: TreeTuning) -> TreeCalibrations:
        return cls(
            open=tuned.open.overall,
            closed=tuned.closed.overall,
            alone=tuned.alone.overall,
            source="tuned on the tuning part of this dump",
        )

    @classmethod
    def of_settings(cls, settings: Settings, name: str) -> TreeCalibrations:
        """The calibrations in settings. ValueError if these have several models and thus no trees."""
        found = {kind: settings.calibration(kind) for kind in ("open", "closed", "alone")}
        return cls(**found, source=f"from the settings {name}")

    def rows(self) -> Iterator[tuple[str, Calibration]]:
        """Drafters' names without budget, and their calibrations."""
        if self.closed is not None:
            yield CALIBRATED_TREE, self.closed
        yield OPEN_TREE, self.open
        yield LM_AND_TEXT, self.alone

    def to_json(self) -> dict[str, Any]:
        return {"trees": self.source, **{f"{name}_trees": calibration.to_json() for name, calibration in self.rows()}}
