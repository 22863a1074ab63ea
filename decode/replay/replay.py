"""Replays a dump: a drafter's own session drafts for the recorded sequences, which play the target's part.

A session is given each step as in `loop/generate.py`: the texts, the lattices of the heads, the target's predictions
along the text. A replay cannot know what the target would have predicted after rejected nodes, so it equals decoding
with `rejected=False` and predictions at the same positions of the prompts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.recorded import RecordedTexts, parts_of, text_of
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import oracle_by_width
from rescore.lattice.tree import Drafts, TokenTree, Trees, accepted_by_size


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleReplay:
    """Replays the oracle, which verifies one draft.

    widths: k of each name, the number of candidates per slot it may choose from (None: all)
    slots: number of slots used, as if the model had slots + 1 heads (None: all)
    """

    widths: Mapping[str, int | None]
    slots: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.widths)

    def outcomes(self, block: DumpBlock) -> dict[str, Outcome]:
        sausages = block.sausages().head(self.slots or block.slots)
        by_width = oracle_by_width(sausages, block.truth())
        verified = np.full(block.rows, sausages.slots, np.int32)
        most = sausages.width
        return {
            name: Outcome(accepted=accepted, verified=verified, visited=visited, evaluated=visited)
            for name, k in self.widths.items()
            for accepted in (by_width[:, min(k or most, most) - 1],)
            for visited in (visited_rows(accepted, block.offsets),)
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The drafts of one drafter, at one budget, for the n rows of a block.

    accepted   int32 [n], draft tokens accepted
    verified   int32 [n], draft tokens verified
    visited    int64 [steps], the rows whose drafts decoding verifies, ascending
    evaluated  int64 [m], the rows that were drafted for, ascending; all that are visited are among them
    drafts     the drafts [n, p, T] of drafters that propose paths
    seconds    float32 [n], of the row's share of a search, which budgets may share; None if not timed

    Rows for which nothing was drafted hold 0.
    """

    accepted: NDArray[np.int32]
    verified: NDArray[np.int32]
    visited: NDArray[np.int64]
    evaluated: NDArray[np.int64]
    drafts: Drafts | None = None
    seconds: NDArray[np.float32] | None = None


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

    def outcomes(self, block: DumpBlock) -> Mapping[str, Outcome]:
        """Replays a block under every name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Rows [R] drafted together, the proposal, and for each budget that it covers the accepted and verified tokens,
    int32 [R] each.

    seconds: of drafting
    """

    rows: NDArray[np.int64]
    proposed: Trees | Drafts
    found: Mapping[str, tuple[NDArray[np.int32], NDArray[np.int32]]]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterReplay:
    """A drafter at one or several budgets of which each is the beginning of the next: they share searches.

    budgets     nodes or paths of each name; None: as many as the drafter does by itself
    make        makes the drafter of a block, for its task and with `RecordedHeads`; its drafts must not be drawn, nor
                its size follow from measured times
    everywhere  drafts at every row, not only those that decoding visits, for comparisons row by row
    at_once     sequences whose session is open at once
    advance     called with the number of rows that sequences have advanced by
    """

    budgets: Mapping[str, int | None]
    make: Callable[[DumpBlock], Drafter]
    everywhere: bool = False
    at_once: int = 1 << 30
    advance: Callable[[int], None] = lambda rows: None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.budgets)

    def outcomes(self, block: DumpBlock) -> dict[str, Outcome]:
        """Each budget's outcome."""
        counts = {name: np.zeros((2, block.rows), np.int32) for name in self.budgets}
        seconds = np.zeros(block.rows, np.float32)
        paths: Drafts | None = None
        for visit in self.visits(block):
            seconds[visit.rows] = visit.seconds / len(visit.rows)
            for name, both in visit.found.items():
                counts[name][:, visit.rows] = both
            if isinstance(visit.proposed, Drafts):
                paths = paths or _no_drafts(block.rows, max(n or 1 for n in self.budgets.values()), block.slots)
                for mine, theirs in ((paths.tokens, visit.proposed.tokens), (paths.cost, visit.proposed.cost)):
                    mine[visit.rows, : theirs.shape[1]] = theirs
                paths.count[visit.rows] = visit.proposed.count
        found = {}
        for name, n in self.budgets.items():
            accepted, verified = counts[name]
            visited = visited_rows(accepted, block.offsets)
            evaluated = np.delete(np.arange(block.rows), block.offsets[1:] - 1) if self.everywhere else visited
            drafts = None if paths is None else _first(paths, n)
            found[name] = Outcome(
                accepted=accepted,
                verified=verified,
                visited=visited,
                evaluated=evaluated,
                drafts=drafts,
                seconds=seconds,
            )
        return found

    def visits(self, block: DumpBlock) -> Iterator[Visit]:
        """Drafts for every row that some budget's decoding visits, each sequence's rows in order."""
        for first in range(0, block.sequences, self.at_once):
            part = block.part(first, min(first + self.at_once, block.sequences))
            start = int(block.offsets[first])
            for visit in self._visits(part):
                yield Visit(rows=visit.rows + start, proposed=visit.proposed, found=visit.found, seconds=visit.seconds)

    def _visits(self, block: DumpBlock) -> Iterator[Visit]:
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
            found = _found(block, rows, proposed, own)
            due.go_on(sequences, {name: accepted for name, (accepted, _) in found.items()})
            yield Visit(rows=rows, proposed=proposed, found=found, seconds=seconds)
            self.advance(int((due.next[sequences] - rows).sum()))


class _Due:
    """The next row that each sequence visits, by budget. everywhere: every row is visited with every budget."""

    def __init__(self, budgets: Mapping[str, int | None], block: DumpBlock, everywhere: bool):
        self._place = {name: place for place, name in enumerate(budgets)}
        self._sizes = np.array([n or 1 for n in budgets.values()])[:, None]
        self._rows = np.tile(block.offsets[:-1], (len(budgets), 1))
        self._ends = block.offsets[1:] - 1  # after the last token nothing is left to draft
        self._everywhere = everywhere
        self.next = self._rows[0].copy()

    def going(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self.next[sequences] < self._ends[sequences]

    def sizes(self, sequences: NDArray[np.int64]) -> NDArray[np.int64]:
        """The largest budget that visits each sequence's next row."""
        here = (self._rows[:, sequences] == self.next[sequences]) | self._everywhere
        return np.where(here, self._sizes, 0).max(axis=0)

    def go_on(self, sequences: NDArray[np.int64], accepted: Mapping[str, NDArray[np.int32]]) -> None:
        """Ends the visit of the sequences' next rows, at which these lengths were accepted."""
        if self._everywhere:
            self._rows[:, sequences] += 1
        else:
            for name, lengths in accepted.items():
                rows = self._rows[self._place[name]]
                here = rows[sequences] == self.next[sequences]
                rows[sequences[here]] += lengths[here] + 1
        self.next[sequences] = self._rows[:, sequences].min(axis=0)


def _found(
    block: DumpBlock, rows: NDArray[np.int64], proposed: Trees | Drafts, budgets: Mapping[str, int | None]
) -> dict[str, tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """The accepted and verified tokens of the first nodes or paths of a proposal, by name."""
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
        name: (
            lengths[:, min(n or most, most) - 1] if most else nothing,
            np.minimum(proposed.count, np.int32(n or most)) * np.int32(each),
        )
        for name, n in budgets.items()
    }


def tree_at(rescorer: Rescorer, block: DumpBlock, row: int, n: int, *, top_k: int | None = None) -> TokenTree:
    """The tree of n nodes, within the heads' slots, that a replay of the rescorer drafts at a row."""
    sausages, sequence = block.sausages([row], top_k), int(block.sequence_of[row])
    prompt, rows = parts_of(block, sequence)
    tokens = text_of(block, sequence)[: prompt.stop - prompt.start + row - rows.start + 1]
    if not rescorer.reads_text:
        return rescorer.trees(sausages, tokens[None], n, depth=block.slots)[0]
    text = rescorer.text(tokens[: prompt.stop - prompt.start])
    text.append(tokens[prompt.stop - prompt.start :])
    return rescorer.trees(sausages, [text], n, depth=block.slots)[0]


def _no_drafts(rows: int, p: int, slots: int) -> Drafts:
    return Drafts(
        tokens=np.full((rows, p, slots), -1, np.int32),
        cost=np.full((rows, p), np.inf, np.float32),
        count=np.zeros(rows, np.int32),
    )


def _first(paths: Drafts, p: int | None) -> Drafts:
    p = p or paths.tokens.shape[1]
    return Drafts(tokens=paths.tokens[:, :p], cost=paths.cost[:, :p], count=np.minimum(paths.count, np.int32(p)))
