"""Replaying a dump: how many target passes a drafter would have needed, exactly.

The continuation does not depend on the drafts, so what every row's draft is worth can be found first, for all rows
at once, and the passes counted afterwards by jumping from row to row (docs/reference/concepts.md, dump rows): the
prompt's pass yields one token; a pass that verifies the draft of row i accepts n tokens and yields n + 1, and row
i + n + 1 is next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.drafts import Drafts
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.tree import accepted_by_size
from rescore.lattice.trees import Trees


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Worth:
    """What one drafter's drafts of all n rows of a block are worth.

    accepted  int32 [n], tokens of the truth that the row's draft gets accepted
    verified  int32 [n], draft tokens that the pass verifies
    drafts    the strings themselves, [n, p, T], of drafters that propose strings
    seconds   wall time of searching all n rows (of fewer, in proportion); drafters that share one search tell the same

    Rows that no replay of these lengths visits may hold 0.
    """

    accepted: NDArray[np.int32]
    verified: NDArray[np.int32]
    drafts: Drafts | None = None
    seconds: float | None = None


class ReplayDrafter(Protocol):
    """One way to draft, perhaps at several budgets, which are rows of a table."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its rows, in the order of the table."""

    def worth(self, block: DumpBlock) -> Mapping[str, Worth]:
        """The worth of every name's drafts of all rows of a block."""


def worth_of_drafts(
    drafts: Drafts, truth: NDArray[np.int32], budgets: Mapping[str, int], seconds: float | None = None
) -> dict[str, Worth]:
    """For each name and p, what the first p drafts [n, >= p, T] of every row are worth, verified as a batch."""
    out = {}
    for name, p in budgets.items():
        first = Drafts(
            tokens=drafts.tokens[:, :p], cost=drafts.cost[:, :p], count=np.minimum(drafts.count, np.int32(p))
        )
        verified = first.count * np.int32(truth.shape[1])
        out[name] = Worth(
            accepted=accepted_of_drafts(first.tokens, truth), verified=verified, drafts=first, seconds=seconds
        )
    return out


def worth_of_trees(
    trees: Trees, truth: NDArray[np.int32], budgets: Mapping[str, int], seconds: float | None = None
) -> dict[str, Worth]:
    """For each name and n, what the first n nodes of every row's tree are worth."""
    by_size = accepted_by_size(trees.tokens, trees.parents, truth)
    return {
        name: Worth(
            accepted=by_size[:, min(n, by_size.shape[1]) - 1],
            verified=np.minimum(trees.count, np.int32(n)),
            seconds=seconds,
        )
        for name, n in budgets.items()
    }


def accepted_of_drafts(drafts: NDArray[np.int32], truth: NDArray[np.int32]) -> NDArray[np.int32]:
    """Longest prefix of the truth [B, T] among the drafts [B, p, T] of a lattice: int32 [B]. Padding is -1 in both."""
    same = (drafts == truth[:, None, :]) & (truth[:, None, :] >= 0)
    return np.minimum.accumulate(same, axis=-1).sum(axis=-1).max(axis=-1).astype(np.int32)


def visited_rows(accepted: NDArray[np.int32], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows whose drafts are verified in a replay, ascending: int64 [steps].

    accepted [n]; offsets [S + 1]. A sequence of L tokens takes 1 + its visited rows passes; the last token leaves
    nothing to draft, so its row is never visited.
    """
    rows = offsets[:-1].copy()
    ends = offsets[1:] - 1
    out = []
    while (open_ := rows < ends).any():
        rows, ends = rows[open_], ends[open_]
        out.append(rows)
        rows = rows + accepted[rows] + 1
    return np.sort(np.concatenate(out)) if out else np.zeros(0, np.int64)
