"""One sequence of a dump as a drafter reads it: tokens, and the target's prediction for each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rescore.decode.rescoring.calibration import TOP
from rescore.lattice.dump_block import DumpBlock


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadSequence:
    """A prompt of m tokens and a continuation of n.

    tokens  int32 [m + n]
    prompt  m
    block, sequence  where it is from
    """

    tokens: NDArray[np.int32]
    prompt: int
    block: DumpBlock = field(repr=False)
    sequence: int

    @classmethod
    def of_block(cls, block: DumpBlock, sequence: int) -> ReadSequence:
        prompt, text = _parts(block, sequence)
        tokens = np.concatenate((block.prompt_tokens[prompt], block.tokens[text])).astype(np.int32)
        return cls(tokens=tokens, prompt=prompt.stop - prompt.start, block=block, sequence=sequence)

    def predictions(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The target's candidates for each token and their probabilities, int32 and float32 [m + n, k], most probable
        first; ids -1 where unknown.
        """
        block, m = self.block, self.prompt
        prompt, rows = _parts(block, self.sequence)
        k = min(TOP, block.topk_ids.shape[-1])
        ids, p = np.full((len(self.tokens), k), -1, np.int32), np.zeros((len(self.tokens), k), np.float32)
        ids[m:], p[m:] = block.topk_ids[rows, 0, :k], np.exp(block.topk_logp[rows, 0, :k].astype(np.float32))
        if block.prompt_topk_ids is not None and block.prompt_topk_logp is not None and m:
            # The prediction after the last prompt token is row 0 of the continuation.
            ids[1:m] = block.prompt_topk_ids[prompt][:-1, :k]
            p[1:m] = np.exp(block.prompt_topk_logp[prompt][:-1, :k].astype(np.float32))
        return ids, p


def _parts(block: DumpBlock, sequence: int) -> tuple[slice, slice]:
    """The places of prompt and continuation in the block's arrays."""
    prompt = slice(*block.prompt_offsets[sequence : sequence + 2].tolist())
    return prompt, slice(*block.offsets[sequence : sequence + 2].tolist())
