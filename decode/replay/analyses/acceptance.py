"""Acceptance by position: how many of the verified drafts are accepted up to slot t (docs/reference/measures.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.run import replay_dump
from rescore.decode.replay.split import SplitPart
from rescore.decode.replay.worth import ReplayDrafter, Worth
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Acceptance:
    """Of one drafter on one task, over the rows that its own replay visits; int64 [T] each.

    drafts    drafts for which the text has a token in slot t
    accepted  those accepted up to slot t
    reached   those accepted up to slot t - 1, so that slot t decides
    """

    task: str
    drafter: str
    drafts: NDArray[np.int64]
    accepted: NDArray[np.int64]
    reached: NDArray[np.int64]

    def to_json(self) -> dict[str, Any]:
        """share: accepted / drafts; conditional: accepted / reached; None where there is none."""
        return {
            "task": self.task,
            "drafter": self.drafter,
            "share": shares(self.accepted, self.drafts),
            "conditional": shares(self.accepted, self.reached),
        }


def acceptance_by_position(
    dump: Dump,
    drafters: Sequence[ReplayDrafter],
    *,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> list[Acceptance]:
    """For each task, and each drafter in it."""
    counts = AcceptanceCounts()
    replay_dump(dump, drafters, tasks=tasks, split=split, advance=advance, listeners=[counts.add])
    return counts.result()


class AcceptanceCounts:
    """Counts along a replay, of which `add` is a listener.

    slots: of the drafts (None: those of the lattices); names: of the drafters (None: all).
    """

    def __init__(self, slots: int | None = None, names: Collection[str] | None = None):
        self.slots, self.names = slots, names
        self._found: dict[tuple[str, str], NDArray[np.int64]] = {}

    def add(self, block: DumpBlock, worth: Mapping[str, Worth], visited: Mapping[str, NDArray[np.int64]]) -> None:
        there = block.truth(slots=self.slots) >= 0
        slot = np.arange(1, there.shape[1] + 1)
        for name, rows in visited.items():
            if self.names is not None and name not in self.names:
                continue
            accepted = worth[name].accepted[rows, None]
            counts = [there[rows].sum(0), (accepted >= slot).sum(0), (there[rows] & (accepted >= slot - 1)).sum(0)]
            self._found[block.task, name] = self._found.get((block.task, name), 0) + np.array(counts, np.int64)

    def result(self) -> list[Acceptance]:
        """For each task, and each drafter in it."""
        return [
            Acceptance(task=task, drafter=name, drafts=one[0], accepted=one[1], reached=one[2])
            for (task, name), one in self._found.items()
        ]


def shares(part: NDArray[np.int64], whole: NDArray[np.int64]) -> list[float | None]:
    return [int(a) / int(b) if b else None for a, b in zip(part, whole)]
