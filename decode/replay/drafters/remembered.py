"""A slow drafter in more than one replay of a dump: asked once for each block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rescore.decode.replay.worth import ReplayDrafter, Worth
from rescore.lattice.dump_block import DumpBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedReplay:
    """What `drafter` said of each block, of one dump alone: a block is known by its place in the dump's shards."""

    drafter: ReplayDrafter
    said: dict[tuple[str, int, int], Mapping[str, Worth]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return self.drafter.names

    def worth(self, block: DumpBlock) -> Mapping[str, Worth]:
        place = (block.file, block.first_row, block.rows)
        if place not in self.said:
            self.said[place] = self.drafter.worth(block)
        return self.said[place]
