"""Tokens per pass as a function of text length: whether drafts improve as the text grows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.replay import Outcome
from rescore.lattice.dump_block import DumpBlock

MOST_BITS = 48  # of a length


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AlongText:
    """Counts of one drafter on one task, over the rows that its replay visits; int64 [MOST_BITS] each. Bin b holds
    passes after 2^b to 2^(b + 1) - 1 tokens.

    generated, generated_tokens  passes and the tokens they yield, binned by tokens generated before the pass
    read, read_tokens            the same, binned by all tokens before the pass, prompt included
    """

    task: str
    drafter: str
    generated: NDArray[np.int64]
    generated_tokens: NDArray[np.int64]
    read: NDArray[np.int64]
    read_tokens: NDArray[np.int64]


class AlongTexts:
    """Collects the counts during a replay; `add` is the listener. names: drafters counted (None: all)."""

    def __init__(self, names: Collection[str] | None = None) -> None:
        self.names = names
        self._found: dict[tuple[str, str], NDArray[np.int64]] = {}

    def add(self, block: DumpBlock, outcomes: Mapping[str, Outcome]) -> None:
        prompts = np.diff(block.prompt_offsets)[block.sequence_of]
        generated = np.arange(block.rows) - block.offsets[block.sequence_of] + 1  # the root token included
        for name, one in outcomes.items():
            if self.names is not None and name not in self.names:
                continue
            rows = one.visited
            tokens = np.minimum(one.accepted[rows] + 1, block.sequence_ends[rows] - rows - 1)
            counts = [
                np.bincount(bins, weights=weights, minlength=MOST_BITS)
                for before in (generated[rows], (generated + prompts)[rows])
                for bins in [np.floor(np.log2(before)).astype(np.int64)]
                for weights in (None, tokens)
            ]
            key = block.task, name
            self._found[key] = self._found.get(key, 0) + np.array(counts).astype(np.int64)

    def result(self) -> list[AlongText]:
        """Returns the counts for each task and drafter."""
        return [
            AlongText(
                task=task, drafter=name, generated=one[0], generated_tokens=one[1], read=one[2], read_tokens=one[3]
            )
            for (task, name), one in self._found.items()
        ]
