"""A small neural rescorer in a report. Does not need PyTorch; `open_neural.py` opens the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.replay.run import DumpResult
from rescore.decode.replay.worth import ReplayDrafter


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
    drafters: Sequence[ReplayDrafter]
    alpha: float
    paths: int
    machine: str
    shape: ModelShape | None = None

    @property
    def names(self) -> list[str]:
        return [name for drafter in self.drafters for name in drafter.names]


def milliseconds(result: DumpResult, name: str) -> float:
    """Wall-clock milliseconds per lattice of a drafter that drafts only the rows that decoding visits."""
    lattices = sum(task.tallies[name].steps for task in result.tasks)
    return 1000 * result.seconds.get(name, 0.0) / max(lattices, 1)
