"""Replays a dump: a drafter's own session drafts for the recorded sequences, which play the target's part.

A session is given each step as in `loop/generate.py`: the texts, the lattices of the heads, the target's predictions
along the text. A replay cannot know what the target would have predicted after rejected nodes, so it equals decoding
with `rejected=False` and predictions at the same positions of the prompts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.lab.replay.recorded import RecordedTexts
from rescore.decode.lab.replay.table import Lines
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import oracle_by_width
from rescore.lattice.tree import Drafts, TokenTree, Trees, accepted_by_size


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleReplay:
    """Replays the oracle, which verifies one draft.

    widths: k of each name, the number of candidates per slot it may choose from (None: all)
    slots: number of slots used, as if the model had slots + 1 heads (None: all)
    everywhere: as in `DrafterReplay`
    """

    widths: Mapping[str, int | None]
    slots: int | None = None
    everywhere: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.widths)

    def lines(self, block: DumpBlock) -> dict[str, Lines]:
        sausages = block.sausages().head(self.slots or block.slots)
        by_width, most = oracle_by_width(sausages, block.truth()), sausages.width
        return {name: self._lines(block, by_width[:, min(k or most, most) - 1]) for name, k in self.widths.items()}

    def _lines(self, block: DumpBlock, accepted: NDArray[np.int32]) -> Lines:
        visited = visited_rows(accepted, block.offsets)
        rows = rows_before_ends(block) if self.everywhere else visited
        drafted = np.full(len(rows), self.slots or block.slots, np.int32)
        return Lines.of_rows(
            block, rows, visited=np.isin(rows, visited), drafted=drafted, accepted=accepted[rows].astype(np.int32)
        )


def rows_before_ends(block: DumpBlock) -> NDArray[np.int64]:
    """All rows but that of each sequence's last token, after which nothing is left to draft."""
    return np.delete(np.arange(block.rows), block.offsets[1:] - 1)


def accepted_of_drafts(drafts: NDArray[np.int32], truth: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the longest prefix of the truth [B, T] among the drafts [B, p, T], int32 [B]. Padding is -1 in both."""
    return lengths_of_drafts(drafts, truth).max(axis=-1, initial=0)


def lengths_of_drafts(drafts: NDArray[np.int32], truth: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the accepted length of every draft, int32 [B, p]. Arguments as in `accepted_of_drafts`."""
    same = (drafts == truth[:, None, :]) & (truth[:, None, :] >= 0)
    return np.minimum.accumulate(same, axis=-1).sum(axis=-1).astype(np.int32)


def visited_rows(accepted: NDArray[np.int32], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the rows whose drafts a replay verifies, ascending, int64 [steps].

    accepted [n]; offsets [S + 1]. The row of a sequence's last token is never visited, since nothing is left to draft.
    """
    rows = offsets[:-1].copy()
    ends = offsets[1:] - 1
    out = []
    while (open_ := rows < ends).any():
        rows, ends = rows[open_], ends[open_]
        out.append(rows)
        rows = rows + accepted[rows] + 1
    return np.sort(np.concatenate(out)) if out else np.zeros(0, np.int64)


class Replay(Protocol):
    """Rows of a table: a drafter at several budgets, or the oracle."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its table rows, in order."""

    def lines(self, block: DumpBlock) -> Mapping[str, Lines]:
        """Replays a block under every name."""


class Found(NamedTuple):
    """What one budget finds at rows [R].

    visited             bool, whether its decoding visits them
    accepted, verified  int32, draft tokens
    """

    visited: NDArray[np.bool_]
    accepted: NDArray[np.int32]
    verified: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Rows [R] drafted together, the proposal, and what each budget that it covers finds. seconds: of drafting"""

    rows: NDArray[np.int64]
    proposed: Trees | Drafts
    found: Mapping[str, Found]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterReplay:
    """A drafter at one or several budgets of which each is the beginning of the next: they share searches.

    budgets     nodes or paths of each name; None: as many as the drafter does by itself
    make        makes the drafter of a block, with `RecordedHeads`; its drafts must not be drawn, nor its size follow
                from measured times
    everywhere  drafts at every row, not only those that decoding visits, for comparisons row by row
    at_once     sequences whose session is open at once
    advance     called with the number of rows that sequences have advanced by
    keep        the name whose trees stay with its lines, as paths do; "" none
    """

    budgets: Mapping[str, int | None]
    make: Callable[[DumpBlock], Drafter]
    everywhere: bool = False
    at_once: int = 1 << 30
    advance: Callable[[int], None] = lambda rows: None
    keep: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.budgets)

    def lines(self, block: DumpBlock) -> dict[str, Lines]:
        """The lines of each budget."""
        found = {name: Found(*np.zeros((3, block.rows), np.int32)) for name in self.budgets}
        seconds = np.zeros(block.rows, np.float32)
        kept: Drafts | Trees | None = None
        for visit in self.visits(block):
            seconds[visit.rows] = visit.seconds / len(visit.rows)
            for name, here in visit.found.items():
                for whole, column in zip(found[name], here):
                    whole[visit.rows] = column
            if isinstance(visit.proposed, Drafts) or self.keep in visit.found:
                largest = max(n or 1 for name, n in self.budgets.items() if self.keep in ("", name))
                kept = kept or _padding(visit.proposed, block.rows, largest)
                for name, column in asdict(visit.proposed).items():
                    if column.ndim > 1:
                        getattr(kept, name)[visit.rows, : column.shape[1]] = column[:, :largest]
                    else:
                        getattr(kept, name)[visit.rows] = column
        lines = {}
        for name, n in self.budgets.items():
            visited, accepted, verified = found[name]
            rows = rows_before_ends(block) if self.everywhere else np.flatnonzero(visited)
            lines[name] = Lines.of_rows(
                block,
                rows,
                visited=visited[rows] > 0,
                drafted=verified[rows],
                accepted=accepted[rows],
                seconds=seconds[rows],
                drafts=_first(kept, rows, n) if kept and self.keep in ("", name) else None,
            )
        return lines

    def visits(self, block: DumpBlock) -> Iterator[Visit]:
        """Drafts for every row that some budget's decoding visits, each sequence's rows in order."""
        for first in range(0, block.sequences, self.at_once):
            part = block.part(first, min(first + self.at_once, block.sequences))
            yield from self._visits(part, int(block.offsets[first]))

    def _visits(self, block: DumpBlock, start: int) -> Iterator[Visit]:
        """start: the first row of the sequences among all."""
        texts, drafter, due = RecordedTexts(block), self.make(block), _Due(self.budgets, block, self.everywhere)
        session = drafter.open(texts.prompts, Shaping())
        active = np.arange(block.sequences)
        while True:
            active = active[due.going(active)]
            if not len(active):
                return
            sizes = due.sizes(active)
            size = int(np.bincount(sizes).argmax())  # what most sequences need: the others wait for a larger batch
            sequences = active[sizes == size]
            rows = due.next[sequences]
            own = {name: n for name, n in self.budgets.items() if (n or 1) <= size}
            step = texts.step(sequences, rows, None if None in own.values() else size)
            began = time.perf_counter()
            proposed = session.propose(step)
            seconds = time.perf_counter() - began
            if not isinstance(proposed, Trees | Drafts):
                raise ValueError(
                    f"{', '.join(self.names)}: expected drafts that a replay can repeat, got those of "
                    f"{type(drafter).__name__}, which are drawn or sized by measured times; give a number of nodes"
                )
            found = _found(block, rows, proposed, own, dict(zip(self.budgets, due.visited(sequences))))
            due.go_on(sequences, found)
            yield Visit(rows=rows + start, proposed=proposed, found=found, seconds=seconds)
            self.advance(int((due.next[sequences] - rows).sum()))


class _Due:
    """The next row that each sequence is drafted for, and by budget the next one that decoding visits. everywhere:
    every row is drafted for, with every budget.
    """

    def __init__(self, budgets: Mapping[str, int | None], block: DumpBlock, everywhere: bool):
        self._place = {name: place for place, name in enumerate(budgets)}
        self._sizes = np.array([n or 1 for n in budgets.values()])[:, None]
        self._rows = np.tile(block.offsets[:-1], (len(budgets), 1))
        self._ends = block.offsets[1:] - 1  # after the last token nothing is left to draft
        self._everywhere = everywhere
        self.next = self._rows[0].copy()

    def going(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self.next[sequences] < self._ends[sequences]

    def visited(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each budget's decoding visits the sequences' next rows, [budgets, n]."""
        return self._rows[:, sequences] == self.next[sequences]

    def sizes(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """The largest budget that visits each sequence's next row."""
        return np.where(self.visited(sequences) | self._everywhere, self._sizes, 0).max(axis=0)

    def go_on(self, sequences: NDArray[np.int64], found: Mapping[str, Found]) -> None:
        """Ends the visit of the sequences' next rows."""
        for name, (here, accepted, _) in found.items():
            self._rows[self._place[name], sequences[here]] += accepted[here] + 1
        self.next[sequences] = self.next[sequences] + 1 if self._everywhere else self._rows[:, sequences].min(axis=0)


def _found(
    block: DumpBlock,
    rows: NDArray[np.int64],
    proposed: Trees | Drafts,
    budgets: Mapping[str, int | None],
    visited: Mapping[str, NDArray[np.bool_]],
) -> dict[str, Found]:
    """What the first nodes or paths of a proposal find, by name."""
    if isinstance(proposed, Trees):
        truth = block.truth(rows, slots=int(proposed.depths.max(initial=1)))
        lengths = accepted_by_size(proposed.tokens, proposed.parents, truth)
        each = 1
    else:
        truth = block.truth(rows)
        lengths = np.maximum.accumulate(lengths_of_drafts(proposed.tokens, truth), axis=1)
        each = truth.shape[1]
    most = lengths.shape[1]
    nothing = np.zeros(len(rows), np.int32)
    return {
        name: Found(
            visited[name],
            lengths[:, min(n or most, most) - 1] if most else nothing,
            np.minimum(proposed.count, np.int32(n or most)) * np.int32(each),
        )
        for name, n in budgets.items()
    }


def tree_at(rescorer: Rescorer, block: DumpBlock, row: int, n: int, *, top_k: int | None = None) -> TokenTree:
    """The tree of n nodes, within the heads' slots, that a replay of the rescorer drafts at a row."""
    sausages, sequence = block.sausages([row], top_k), int(block.sequence_of[row])
    prompt, answer = block.texts[sequence]
    answer = answer[: row - int(block.offsets[sequence]) + 1]
    if not rescorer.reads_text:
        return rescorer.trees(sausages, np.concatenate((prompt, answer))[None], n, depth=block.slots)[0]
    text = rescorer.text(prompt)
    text.append(answer)
    return rescorer.trees(sausages, [text], n, depth=block.slots)[0]


PADDING = {"tokens": -1, "cost": np.inf, "parents": -1, "depths": 0, "logq": -np.inf, "count": 0}


def _padding(drafts: Drafts | Trees, rows: int, n: int) -> Drafts | Trees:
    """Drafts of so many rows, of n paths or nodes, without any."""
    columns = {
        name: np.full((rows, n, *column.shape[2:])[: column.ndim], PADDING[name], column.dtype)
        for name, column in asdict(drafts).items()
    }
    return type(drafts)(**columns)


def _first(drafts: Drafts | Trees, rows: NDArray[np.int64], n: int | None) -> Drafts | Trees:
    """Those of rows, the first n paths or nodes."""
    columns = {name: (column[rows, :n] if column.ndim > 1 else column[rows]) for name, column in asdict(drafts).items()}
    count = columns["count"]
    return type(drafts)(**(columns | {"count": np.minimum(count, np.int32(n)) if n else count}))
