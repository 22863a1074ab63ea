"""A small neural model in a report, beside the n-gram models. Nothing here needs PyTorch: `open_neural.py` opens the
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.replay.run import DumpResult
from rescore.decode.replay.worth import ReplayDrafter


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Neural:
    """drafters: NEURAL and, with more than one path, NEURAL_BEAM, each asked once for a block. name: of the model;
    alpha: its weight; paths: of the beam; machine: where it ran; shape: what a pass of it costs, None where that is not
    known.
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
    """Wall milliseconds for a lattice of a drafter that drafts the rows alone that decoding would visit."""
    lattices = sum(task.tallies[name].steps for task in result.tasks)
    return 1000 * result.seconds.get(name, 0.0) / max(lattices, 1)
