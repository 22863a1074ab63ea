"""Counts the target passes that a drafter would need on a dump. The count is exact.

The continuation does not depend on the drafts. So the accepted length of every row's draft is computed first, for all
rows at once, and the passes are counted afterwards by jumping from row to row (docs/reference/concepts.md, dump rows):
the prompt's pass yields one token; a pass that verifies the draft of row i accepts n tokens and yields n + 1, and row
i + n + 1 comes next.
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
    """The accepted and verified lengths of one drafter's drafts for all n rows of a block.

    accepted  int32 [n], draft tokens accepted
    verified  int32 [n], draft tokens verified
    drafts    the drafts [n, p, T] of drafters that propose paths
    seconds   wall time of the search of all n rows (extrapolated if fewer were searched); drafters that share a search
              report the same time

    Rows that the replay does not visit may hold 0.
    """

    accepted: NDArray[np.int32]
    verified: NDArray[np.int32]
    drafts: Drafts | None = None
    seconds: float | None = None


class ReplayDrafter(Protocol):
    """The interface of a drafter in a replay. It may have several budgets, each with its own name and table row."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its table rows, in order."""

    def worth(self, block: DumpBlock) -> Mapping[str, Worth]:
        """Drafts for all rows of a block; returns the worth of the drafts under every name."""


def worth_of_drafts(
    drafts: Drafts, truth: NDArray[np.int32], budgets: Mapping[str, int], seconds: float | None = None
) -> dict[str, Worth]:
    """Returns for each name and its p the worth of every row's first p drafts [n, >= p, T], verified as a batch."""
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
    """Returns for each name and its n the worth of the first n nodes of every row's tree."""
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
    """Returns the longest prefix of the truth [B, T] among the drafts [B, p, T], int32 [B]. Padding is -1 in both."""
    same = (drafts == truth[:, None, :]) & (truth[:, None, :] >= 0)
    return np.minimum.accumulate(same, axis=-1).sum(axis=-1).max(axis=-1).astype(np.int32)


def visited_rows(accepted: NDArray[np.int32], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the rows whose drafts a replay verifies, ascending, int64 [steps].

    accepted [n]; offsets [S + 1]. A sequence takes one pass for its prompt and one per visited row. The row of its last
    token is never visited, since nothing is left to draft.
    """
    rows = offsets[:-1].copy()
    ends = offsets[1:] - 1
    out = []
    while (open_ := rows < ends).any():
        rows, ends = rows[open_], ends[open_]
        out.append(rows)
        rows = rows + accepted[rows] + 1
    return np.sort(np.concatenate(out)) if out else np.zeros(0, np.int64)
