"""The oracle of the heads' lattice: the ceiling of rescoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rescore.decode.replay.outcome import Outcome, visited_rows
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
