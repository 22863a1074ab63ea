"""Replays dumps: block efficiency and other measures of every drafter, task by task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.measures import Duel, Repetition, Tally, headroom_recovered
from rescore.decode.replay.replay import Outcome, Replay
from rescore.decode.replay.table import lines_of
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.short_repr import short_repr
from rescore.lattice.split import SplitPart, chosen_blocks

BLOCKS = 64  # whose tallies are joined at once, as they also have counts of one size for every block

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def side_by_side(work: Callable[[Item], Answer], items: Iterable[Item], workers: int = 1) -> Iterator[Answer]:
    """Yields `work` of every item, in order. One worker is lazy; several consume all items at once."""
    if workers == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(work, items)


# Called for each block with the block and the outcome of every drafter.
Listener = Callable[[DumpBlock, Mapping[str, Outcome]], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskResult:
    """The measures of one task of a dump.

    loop_share  share of continuations that loop
    tallies     one per drafter, in the order of the table
    repetition  of the base and the rescored draft, if replayed
    duel        the rescored against the base draft, None unless both were replayed
    """

    task: str
    loop_share: float
    tallies: dict[str, Tally]
    repetition: dict[str, Repetition]
    duel: Duel | None

    __repr__ = short_repr

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
    """Replays a dump with every drafter, one block in memory at a time.

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
    workers: int = 1,
    listeners: Iterable[Listener] = (),
) -> DumpResult:
    """Replays blocks of a dump of this kind, task by task.

    workers: blocks searched concurrently. With more than one, all blocks are held in memory, and search times include
    contention.
    """
    names = [name for drafter in drafters for name in drafter.names]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"drafters: expected unique names, got {twice!r} twice")

    def replayed(block: DumpBlock) -> tuple[DumpBlock, dict[str, Outcome]]:
        return block, {name: one for drafter in drafters for name, one in drafter.outcomes(block).items()}

    builders: dict[str, _Builder] = {}
    lattices = 0
    for block, outcomes in side_by_side(replayed, blocks, workers):
        builders.setdefault(block.task, _Builder(block.task)).add(block, {name: outcomes[name] for name in names})
        lattices += block.rows
        for listener in listeners:
            listener(block, outcomes)
    results = [builder.result() for builder in builders.values()]
    return DumpResult(kind=kind, tasks=results, lattices=lattices)


@dataclass(slots=True)
class _Builder:
    """Accumulates the blocks of a task."""

    task: str
    sequences: int = 0
    loops: int = 0
    parts: list[dict[str, Tally]] = field(default_factory=list)
    repetition: dict[str, Repetition] = field(default_factory=dict)
    duel: Duel | None = None

    def add(self, block: DumpBlock, outcomes: Mapping[str, Outcome]) -> None:
        self.sequences += block.sequences
        self.loops += block.loops
        self.parts.append({name: Tally.of_lines(lines_of(block, one)) for name, one in outcomes.items()})
        if len(self.parts) == BLOCKS:
            self.parts = [self.joined()]
        best = {
            name: one.drafts.tokens[:, 0]
            for name in ("base", "rescored")
            if name in outcomes and (one := outcomes[name]).drafts
        }
        for name, drafts in best.items():
            self.repetition.setdefault(name, Repetition()).add(drafts[outcomes[name].visited])
        if len(best) == 2:
            self.duel, steps = self.duel or Duel(), outcomes["base"].visited
            base, rescored = (outcomes[name].accepted[steps] for name in ("base", "rescored"))
            self.duel.add(base, rescored, best["base"][steps], best["rescored"][steps])

    def joined(self) -> dict[str, Tally]:
        return {name: Tally.joined([part[name] for part in self.parts]) for name in self.parts[0]}

    def result(self) -> TaskResult:
        return TaskResult(
            task=self.task,
            loop_share=self.loops / self.sequences,
            tallies=self.joined(),
            repetition=self.repetition,
            duel=self.duel,
        )


def mean_over_tasks(tasks: Sequence[dict[str, Any]], measure: str) -> dict[str, float]:
    """Returns every drafter's mean over tasks; tasks where its value is undefined (None) are left out."""
    names = dict.fromkeys(name for task in tasks for name in task[measure])
    values = {name: [task[measure][name] for task in tasks if task[measure].get(name) is not None] for name in names}
    return {name: float(np.mean(value)) for name, value in values.items() if value}
