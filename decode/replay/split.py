"""Which sequences of a dump settings are tuned on, and which they are reported on.

The first sequences of every task are the tuning part and the rest is held out, as in Kim et al., section 7. A split
belongs to one dump, which it names by a digest: on another dump the same numbers would be other texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.dump_header import DumpHeader

PARTS = ("tune", "heldout", "all")
TUNED_ON = 100  # sequences of a task, at most half of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """dump_sha256: the digest of a dump's header. tune: how many sequences of each task, the first, are the tuning
    part.
    """

    dump_sha256: str
    tune: dict[str, int]

    @classmethod
    def of_dump(cls, dump: Dump, sequences: int | None = None) -> Split:
        """The first `sequences` of each task to tune on; by default 100, or half of the task if that is less.

        ValueError unless at least one sequence of every task remains to report on.
        """
        if sequences is not None and sequences < 0:
            raise ValueError(f"split: expected at least 0 sequences to tune on, got {sequences}")
        for task in dump.header.tasks:
            if sequences is not None and sequences >= task.sequences:
                raise ValueError(
                    f"split: {sequences} sequences to tune on leave none of task {task.name!r} to report on: "
                    f"{dump.path} has {task.sequences} of it"
                )
        tune = {
            task.name: min(TUNED_ON, task.sequences // 2) if sequences is None else sequences
            for task in dump.header.tasks
        }
        return cls(dump_sha256=digest(dump.header), tune=tune)

    def part(self, name: str) -> SplitPart:
        """The part "tune", "heldout" or "all"."""
        return SplitPart(split=self, name=name)

    def check(self, dump: Dump) -> None:
        """ValueError unless the split is of this dump."""
        if digest(dump.header) != self.dump_sha256:
            raise ValueError(
                f"split: made of another dump than {dump.path}, so its held-out part is not known here: "
                "tune on this dump, or report on that one"
            )
        for task in dump.header.tasks:
            tuned = self.tune.get(task.name)
            if tuned is None or tuned > task.sequences:
                raise ValueError(
                    f"split: task {task.name!r}: expected 0 to {task.sequences} sequences to tune on, got {tuned}"
                )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Split:
        """What `to_json` gave. ValueError names what is wrong with any other value."""
        if not isinstance(value, dict) or set(value) != {"dump_sha256", "tune"}:
            raise ValueError("split: expected an object with the keys dump_sha256 and tune")
        sha256, tune = value["dump_sha256"], value["tune"]
        if not isinstance(sha256, str) or len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
            raise ValueError("split: dump_sha256: expected 64 hexadecimal digits in lower case")
        if not isinstance(tune, dict) or any(type(n) is not int or n < 0 for n in tune.values()):
            raise ValueError("split: tune: expected a number of sequences, at least 0, for each task")
        return cls(dump_sha256=sha256, tune=dict(tune))


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPart:
    """One part of a split: "tune", "heldout", or "all", which is both."""

    split: Split
    name: str

    def __post_init__(self) -> None:
        if self.name not in PARTS:
            raise ValueError(f"part: expected one of {', '.join(PARTS)}, got {self.name!r}")

    def sequences(self, dump: Dump, task: str) -> range:
        """The part's sequences of a task, counted over all of its shards.

        ValueError if the split is of another dump.
        """
        self.split.check(dump)
        total = next(info.sequences for info in dump.header.tasks if info.name == task)
        tuned = self.split.tune[task]
        return {"tune": range(tuned), "heldout": range(tuned, total), "all": range(total)}[self.name]

    def blocks(self, dump: Dump, task: str) -> Iterator[DumpBlock]:
        """The part's blocks of a task, as `Dump.blocks`."""
        wanted = self.sequences(dump, task)
        first = 0  # sequence of the task with which the block begins
        for block in dump.blocks(task):
            if first >= wanted.stop:
                return
            begin, end = max(wanted.start - first, 0), min(wanted.stop - first, block.sequences)
            if begin < end:
                yield block.part(begin, end)
            first += block.sequences


def chosen_blocks(
    dump: Dump,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Iterator[DumpBlock]:
    """The blocks of some tasks (None: all) and of a part of each (None: all of it), task by task, as `Dump.blocks`.

    advance: called with the number of rows of each block, once it is done with.
    """
    for task in dump.tasks:
        if tasks is None or task in tasks:
            for block in dump.blocks(task) if split is None else split.blocks(dump, task):
                yield block
                advance(block.rows)


def digest(header: DumpHeader) -> str:
    """SHA-256 of what tells a dump from others: all of its header, checksums of its shards included."""
    return hashlib.sha256(
        json.dumps(asdict(header), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    ).hexdigest()
