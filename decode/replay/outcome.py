"""What drafts gain on a dump. The count is exact.

The continuation does not depend on the drafts. A sequence takes one pass for its prompt, which yields one token; a pass
that verifies the draft of row i accepts n tokens and yields n + 1, and row i + n + 1 comes next
(docs/reference/concepts.md, dump rows).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.drafts import Drafts
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.oracle import oracle_by_width


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
            name: Outcome(accepted=accepted, verified=verified, visited=visited_rows(accepted, block.offsets))
            for name, k in self.widths.items()
            for accepted in (by_width[:, min(k or most, most) - 1],)
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """The drafts of one drafter, at one budget, for the n rows of a block.

    accepted  int32 [n], draft tokens accepted
    verified  int32 [n], draft tokens verified
    visited   int64 [steps], the rows whose drafts decoding verifies, ascending
    drafts    the drafts [n, p, T] of drafters that propose paths
    seconds   wall time of the search of all n rows (extrapolated if fewer were searched); budgets that share a search
              report the same time

    Rows for which nothing was drafted hold 0.
    """

    accepted: NDArray[np.int32]
    verified: NDArray[np.int32]
    visited: NDArray[np.int64]
    drafts: Drafts | None = None
    seconds: float | None = None


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
