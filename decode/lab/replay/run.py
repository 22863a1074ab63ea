"""Replays dumps: block efficiency and other measures of every drafter, task by task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.lab.replay.measures import Duel, Repetition, Tally, headroom_recovered
from rescore.decode.lab.replay.recorded import joined
from rescore.decode.lab.replay.replay import Replay
from rescore.decode.lab.replay.table import Lines
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.in_batches import in_batches
from rescore.lattice.short_repr import short_repr
from rescore.lattice.split import SplitPart, chosen_blocks
from rescore.lattice.tree import Drafts

ROWS = 1 << 14  # drafted for together, if blocks are smaller


# Called for each block with the block and the lines of every drafter.
Listener = Callable[[DumpBlock, Mapping[str, Lines]], None]


@dataclass(slots=True, kw_only=True, eq=False)
class TaskResult:
    """The measures of one task of a dump.

    sequences, loops  continuations, and those that loop
    tallies           one per drafter, in the order of the table
    repetition        of the base and the rescored draft, if replayed
    duel              the rescored against the base draft, None unless both were replayed
    """

    task: str
    sequences: int = 0
    loops: int = 0
    tallies: dict[str, Tally] = field(default_factory=dict)
    repetition: dict[str, Repetition] = field(default_factory=dict)
    duel: Duel | None = None

    __repr__ = short_repr

    def add(self, block: DumpBlock, lines: Mapping[str, Lines]) -> None:
        """Adds a block. The base and the rescored draft are compared if they were drafted at the same rows."""
        self.sequences += block.sequences
        self.loops += block.loops
        for name, own in lines.items():
            self.tallies.setdefault(name, Tally()).add(own)
        first = {
            name: drafts.tokens[:, 0]
            for name in ("base", "rescored")
            if name in lines and isinstance(drafts := lines[name].drafts, Drafts)
        }
        for name, tokens in first.items():
            self.repetition.setdefault(name, Repetition()).add(tokens[lines[name].made])
        if len(first) == 2 and np.array_equal(lines["base"].position, lines["rescored"].position):
            self.duel, steps = self.duel or Duel(), lines["base"].made
            lengths = (lines[name].accepted[lines[name].position >= 0][steps] for name in first)
            self.duel.add(*lengths, *(tokens[steps] for tokens in first.values()))

    @property
    def loop_share(self) -> float:
        return self.loops / max(self.sequences, 1)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """Tokens of each sequence, int32 [S]."""
        return next(iter(self.tallies.values())).tokens

    @property
    def passes(self) -> dict[str, NDArray[np.int32]]:
        """Target passes of each sequence, int32 [S], by drafter."""
        return {name: tally.passes for name, tally in self.tallies.items()}

    def to_json(self) -> dict[str, Any]:
        efficiency = {name: tally.block_efficiency for name, tally in self.tallies.items()}
        out: dict[str, Any] = {
            "task": self.task,
            "sequences": len(self.tokens),
            "tokens": int(self.tokens.sum()),
            "loop_share": self.loop_share,
            "block_efficiency": efficiency,
            "headroom_recovered": headroom_of(efficiency),
            "verified_per_pass": {name: tally.verified_per_pass for name, tally in self.tallies.items()},
            "accepted_per_verified": {name: tally.accepted_per_verified for name, tally in self.tallies.items()},
            "acceptance_length": {name: tally.acceptance_length for name, tally in self.tallies.items()},
            "repetition": {
                name: {"consecutive": value.consecutive, "max_run": value.max_run}
                for name, value in self.repetition.items()
            },
        }
        if self.duel:
            out["rescored_against_base"] = {
                name: getattr(self.duel, name) for name in ("wins", "ties", "losses", "repairs", "regressions")
            }
        return out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DumpResult:
    """The results of all tasks of a dump. lattices: number of rows."""

    kind: str
    tasks: list[TaskResult]
    lattices: int

    __repr__ = short_repr

    @property
    def names(self) -> list[str]:
        """The drafters, in the order of the table."""
        return list(self.tasks[0].tallies)

    def ms_per_lattice(self, name: str) -> float:
        """A drafter's wall time for a draft in milliseconds, 0 if it was not timed."""
        tallies = [task.tallies[name] for task in self.tasks]
        return 1000 * sum(one.seconds for one in tallies) / max(sum(one.timed for one in tallies), 1)

    def of(self, names: Collection[str]) -> DumpResult:
        """The results of these drafters."""
        tallies = ({name: task.tallies[name] for name in task.tallies if name in names} for task in self.tasks)
        tasks = [replace(task, tallies=own) for task, own in zip(self.tasks, tallies)]
        return replace(self, tasks=tasks)


def headroom_of(efficiency: Mapping[str, float]) -> dict[str, float | None]:
    """Returns headroom recovered by every drafter except base and oracle; empty unless both are present."""
    if not {"base", "oracle"} <= set(efficiency):
        return {}
    base, oracle = efficiency["base"], efficiency["oracle"]
    return {
        name: headroom_recovered(value, base, oracle)
        for name, value in efficiency.items()
        if name not in ("base", "oracle")
    }


def replay_dump(
    dump: Dump,
    drafters: Sequence[Replay],
    *,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
    listeners: Iterable[Listener] = (),
) -> DumpResult:
    """Replays a dump with every drafter, blocks of some 16,000 rows in memory at a time.

    tasks: the tasks to replay (None: all). split: the part of each task to replay (None: all); tasks without a sequence
    in it are left out. advance: called with the number of rows done, for a progress bar. ValueError if two drafters
    share a name, or if there is no sequence to replay.
    """
    blocks = chosen_blocks(dump, tasks, split, advance)
    result = replay_blocks(blocks, drafters, kind=dump.header.kind, listeners=listeners)
    if not result.tasks:
        raise ValueError(
            f"{dump.path}: expected a sequence to replay, got none: "
            f"{'no task was chosen' if split is None else f'the part {split.name!r} is empty'}"
        )
    return result


def replay_blocks(
    blocks: Iterable[DumpBlock],
    drafters: Sequence[Replay],
    *,
    kind: str,
    listeners: Iterable[Listener] = (),
) -> DumpResult:
    """Replays blocks of a dump of this kind, task by task; small ones together."""
    names = [name for drafter in drafters for name in drafter.names]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"drafters: expected unique names, got {twice!r} twice")
    tasks: dict[str, TaskResult] = {}

    def replay(together: list[DumpBlock]) -> int:
        whole, first = joined(together), 0
        found = {name: lines for drafter in drafters for name, lines in drafter.lines(whole).items()}
        for block in together:
            lines = {name: own.part(first, first + block.sequences) for name, own in found.items()}
            tasks.setdefault(block.task, TaskResult(task=block.task)).add(block, lines)
            for listener in listeners:
                listener(block, lines)
            first += block.sequences
        return whole.rows

    lattices = sum(map(replay, in_batches(blocks, lambda block: block.rows, ROWS)))
    return DumpResult(kind=kind, tasks=[*tasks.values()], lattices=lattices)


def mean_over_tasks(tasks: Sequence[dict[str, Any]], measure: str) -> dict[str, float]:
    """Returns every drafter's mean over tasks; tasks where its value is undefined (None) are left out."""
    names = dict.fromkeys(name for task in tasks for name in task[measure])
    values = {name: [task[measure][name] for task in tasks if task[measure].get(name) is not None] for name in names}
    return {name: float(np.mean(value)) for name, value in values.items() if value}
