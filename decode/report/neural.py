"""A small neural rescorer in a report. Does not need PyTorch; `open_neural.py` opens the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.replay.replay import Replay


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Neural:
    """name      of the model
    drafters  NEURAL and, with more than one path, NEURAL_BEAM; each runs once per block
    alpha     the model's weight
    paths     of the beam
    machine   that ran it
    shape     of the model, for the cost of its passes; None if unknown
    """

    name: str
    drafters: Sequence[Replay]
    alpha: float
    paths: int
    machine: str
    shape: ModelShape | None = None

    @property
    def names(self) -> list[str]:
        return [name for drafter in self.drafters for name in drafter.names]
