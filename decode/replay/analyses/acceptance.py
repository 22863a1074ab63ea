"""Acceptance by position: the share of drafts accepted up to slot t (docs/reference/measures.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.replay import Outcome, Replay
from rescore.decode.replay.run import replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.split import SplitPart


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Acceptance:
    """Acceptance counts of one drafter on one task, over the rows that its replay visits; int64 [T] each.

    drafts    drafts whose true continuation has a token in slot t
    accepted  drafts accepted up to slot t
    reached   drafts accepted up to slot t - 1, so that slot t is tested
    """

    task: str
    drafter: str
    drafts: NDArray[np.int64]
    accepted: NDArray[np.int64]
    reached: NDArray[np.int64]

    def to_json(self) -> dict[str, Any]:
        """share: accepted / drafts; conditional: accepted / reached; None where undefined."""
        return {
            "task": self.task,
            "drafter": self.drafter,
            "share": shares(self.accepted, self.drafts),
            "conditional": shares(self.accepted, self.reached),
        }


def acceptance_by_position(
    dump: Dump,
    drafters: Sequence[Replay],
    *,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> list[Acceptance]:
    """Replays a dump; returns acceptance counts for each task and drafter."""
    counts = AcceptanceCounts()
    replay_dump(dump, drafters, tasks=tasks, split=split, advance=advance, listeners=[counts.add])
    return counts.result()


class AcceptanceCounts:
    """Collects acceptance counts during a replay; `add` is the listener.

    slots: slots counted (None: the lattice's); names: drafters counted (None: all).
    """

    def __init__(self, slots: int | None = None, names: Collection[str] | None = None):
        self.slots, self.names = slots, names
        self._found: dict[tuple[str, str], NDArray[np.int64]] = {}

    def add(self, block: DumpBlock, outcomes: Mapping[str, Outcome]) -> None:
        has_token = block.truth(slots=self.slots) >= 0
        slot = np.arange(1, has_token.shape[1] + 1)
        for name, one in outcomes.items():
            if self.names is not None and name not in self.names:
                continue
            accepted = one.accepted[one.visited, None]
            known = has_token[one.visited]
            counts = [known.sum(0), (accepted >= slot).sum(0), (known & (accepted >= slot - 1)).sum(0)]
            self._found[block.task, name] = self._found.get((block.task, name), 0) + np.array(counts, np.int64)

    def result(self) -> list[Acceptance]:
        """Returns the counts for each task and drafter."""
        return [
            Acceptance(task=task, drafter=name, drafts=one[0], accepted=one[1], reached=one[2])
            for (task, name), one in self._found.items()
        ]


def shares(part: NDArray[np.int64], whole: NDArray[np.int64]) -> list[float | None]:
    return [int(a) / int(b) if b else None for a, b in zip(part, whole)]
