"""Replays trees of a small neural rescorer.

A neural model is too slow to rescore every row, so only the rows that decoding visits are rescored. Sequences of a
block advance in parallel, each from the row after its accepted tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rescore.decode.replay.worth import ReplayDrafter, Worth
from rescore.decode.rescoring.neural_rescorer import NeuralRescorer
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.tree import accepted_by_size


@dataclass(frozen=True, slots=True, kw_only=True)
class NeuralReplay:
    """Replays `NeuralRescorer.trees`; with one path a tree is the greedy draft. Unvisited rows hold 0.

    rows: rows of the model's cache in use at once, `rescorer.paths` per sequence
    advance: called with the number of rows that sequences have advanced by
    """

    name: str
    rescorer: NeuralRescorer
    top_k: int | None = None
    rows: int = 256
    advance: Callable[[int], None] = lambda rows: None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        accepted, verified = (np.zeros(block.rows, np.int32) for _ in range(2))
        began = time.perf_counter()
        batch = max(1, self.rows // self.rescorer.paths)
        for first in range(0, block.sequences, batch):
            sequences = range(first, min(first + batch, block.sequences))
            prompts = [
                block.prompt_tokens[block.prompt_offsets[s] : block.prompt_offsets[s + 1]].astype(np.int64)
                for s in sequences
            ]
            reader = self.rescorer.open(prompts, block.slots)
            at, ends = block.offsets[first : sequences.stop], block.offsets[first + 1 : sequences.stop + 1] - 1
            # The last token leaves nothing to draft.
            while (going := np.flatnonzero(at < ends)).size:
                if len(going) < len(at):
                    reader.select(going.tolist())
                    at, ends = at[going], ends[going]
                histories = [block.history(row, block.rows + len(block.prompt_tokens)) for row in at.tolist()]
                trees = self.rescorer.trees(reader, block.sausages(at, self.top_k), histories)
                accepted[at] = accepted_by_size(trees.tokens, trees.parents, block.truth(at))[:, -1]
                verified[at] = trees.count
                then = at + accepted[at] + 1
                self.advance(int((then - at).sum()))
                at = then
        return {self.name: Worth(accepted=accepted, verified=verified, seconds=time.perf_counter() - began)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedReplay:
    """Caches the results of a slow drafter, for several replays of one dump.

    The key of a block is its place in the dump's shards.
    """

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
