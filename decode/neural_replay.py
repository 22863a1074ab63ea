"""Replaying a dump with a small neural rescorer: the passes that its trees would have needed, exactly.

A neural model is far too slow to rescore every row as `replay.py` does, so only the rows that decoding would visit are:
all sequences of a block go on side by side, each from the row that follows what it accepted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.decode.neural import NeuralRescorer
from rescore.lattice.block import Block
from rescore.lattice.tree import accepted_by_size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NeuralReplay:
    """What the trees of a block's visited rows are worth (`NeuralRescorer.trees`; with one path a tree is its greedy draft).

    visited   int64 [steps], the rows whose trees are verified, ascending
    accepted  int32 [n], tokens of the truth that each visited row's tree gets accepted; 0 elsewhere
    verified  int32 [n], nodes that its pass verifies; 0 elsewhere
    seconds   wall time of rescoring, the reading of prompts included
    """

    visited: NDArray[np.int64]
    accepted: NDArray[np.int32]
    verified: NDArray[np.int32]
    seconds: float


def neural_replay(block: Block, rescorer: NeuralRescorer, *, top_k: int | None = None, rows: int = 256) -> NeuralReplay:
    """The replay of a block's sequences, of the first `top_k` candidates of each slot.

    rows: how many rows of the model's cache are at work together, `rescorer.paths` of them for a sequence.
    """
    accepted, verified = (np.zeros(block.rows, np.int32) for _ in range(2))
    began = time.perf_counter()
    visited = []
    batch = max(1, rows // rescorer.paths)
    for first in range(0, block.sequences, batch):
        sequences = range(first, min(first + batch, block.sequences))
        prompts = [block.prompt_tokens[block.prompt_offsets[s] : block.prompt_offsets[s + 1]].astype(np.int64) for s in sequences]
        reader = rescorer.open(prompts, block.slots)
        at, ends = block.offsets[first : sequences.stop], block.offsets[first + 1 : sequences.stop + 1] - 1
        # The last token leaves nothing to draft.
        while (going := np.flatnonzero(at < ends)).size:
            if len(going) < len(at):
                reader.select(going.tolist())
                at, ends = at[going], ends[going]
            histories = [block.history(row, block.rows + len(block.prompt_tokens)) for row in at.tolist()]
            trees = rescorer.trees(reader, block.sausages(at, top_k), histories)
            accepted[at] = accepted_by_size(trees.tokens, trees.parents, block.truth(at))[:, -1]
            verified[at] = trees.count
            visited.append(at)
            at = at + accepted[at] + 1
    seconds = time.perf_counter() - began
    return NeuralReplay(visited=np.sort(np.concatenate(visited)) if visited else np.zeros(0, np.int64), accepted=accepted, verified=verified, seconds=seconds)
