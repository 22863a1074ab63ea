"""Splits the sequences of a dump into a tuning part and a held-out part.

The first sequences of every task are the tuning part and the rest is held out, as in Kim et al., section 7. A split
belongs to one dump, identified by a digest: in another dump the same indices are other texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, to_builtins

from rescore.lattice.checked import Checked, Sha256

if TYPE_CHECKING:
    from rescore.lattice.dump import Dump, DumpHeader
    from rescore.lattice.dump_block import DumpBlock

PARTS = ("tune", "heldout", "all")
TUNED_ON = 100  # sequences per task, but at most half of them


class Split(Checked, frozen=True, kw_only=True):
    """A split of one dump.

    dump_sha256  digest of the dump's header
    tune         number of tuning sequences of each task, its first ones
    """

    dump_sha256: Sha256
    tune: dict[str, Annotated[int, Meta(ge=0)]]

    @classmethod
    def of_dump(cls, dump: Dump, sequences: int | None = None) -> Split:
        """Tunes on the first `sequences` of each task; by default 100, or half of the task if that is less.

        ValueError unless every task keeps at least one held-out sequence.
        """
        if sequences is not None and sequences < 0:
            raise ValueError(f"split: expected at least 0 sequences to tune on, got {sequences}")
        for task in dump.header.tasks:
            if sequences is not None and sequences >= task.sequences:
                raise ValueError(
                    f"split: task {task.name!r} of {dump.path}: expected fewer than its {task.sequences} sequences to "
                    f"tune on, got {sequences}: none would be held out"
                )
        tune = {
            task.name: min(TUNED_ON, task.sequences // 2) if sequences is None else sequences
            for task in dump.header.tasks
        }
        return cls(dump_sha256=digest(dump.header), tune=tune)

    def part(self, name: str) -> SplitPart:
        """Returns the part "tune", "heldout" or "all"."""
        return SplitPart(split=self, name=name)

    def check(self, dump: Dump) -> None:
        """Raises ValueError unless the split belongs to this dump."""
        if digest(dump.header) != self.dump_sha256:
            raise ValueError(
                f"split: expected a split of {dump.path}, got one of another dump: "
                "tune on this dump, or report on that one"
            )
        for task in dump.header.tasks:
            tuned = self.tune.get(task.name)
            if tuned is None or tuned > task.sequences:
                raise ValueError(
                    f"split: task {task.name!r}: expected 0 to {task.sequences} sequences to tune on, got {tuned}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPart:
    """One part of a split: "tune", "heldout", or "all", which is both."""

    split: Split
    name: str

    def __post_init__(self) -> None:
        if self.name not in PARTS:
            raise ValueError(f"part: expected one of {', '.join(PARTS)}, got {self.name!r}")

    def sequences(self, dump: Dump, task: str) -> range:
        """Returns the part's sequences of a task, numbered across its shards.

        ValueError if the split belongs to another dump.
        """
        self.split.check(dump)
        total = next(info.sequences for info in dump.header.tasks if info.name == task)
        tuned = self.split.tune[task]
        return {"tune": range(tuned), "heldout": range(tuned, total), "all": range(total)}[self.name]

    def blocks(self, dump: Dump, task: str) -> Iterator[DumpBlock]:
        """Yields the part's blocks of a task, as `Dump.blocks` does."""
        wanted = self.sequences(dump, task)
        first = 0  # the block's first sequence, numbered within the task
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
    """Yields blocks task by task, as `Dump.blocks` does.

    tasks: the tasks (None: all); split: the part of each (None: all of it); advance: called with the number of rows of
    each block after the caller is done with it.
    """
    for task in dump.tasks:
        if tasks is None or task in tasks:
            for block in dump.blocks(task) if split is None else split.blocks(dump, task):
                yield block
                advance(block.rows)


def digest(header: DumpHeader) -> str:
    """Returns the SHA-256 of a dump's header, which includes the checksums of its shards."""
    return hashlib.sha256(
        json.dumps(to_builtins(header), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    ).hexdigest()
