"""One sequence of a dump as a drafter reads it: tokens, and the target's prediction for each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.decode.rescoring.calibration import TOP
from rescore.lattice.dump_block import DumpBlock


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadSequence:
    """A prompt of m tokens and a continuation of n.

    tokens  int32 [m + n]
    ids, p  int32 and float32 [m + n, k], the target's candidates for each token and their probabilities, most probable
            first; ids -1 where unknown
    prompt  m
    """

    tokens: NDArray[np.int32]
    ids: NDArray[np.int32]
    p: NDArray[np.float32]
    prompt: int

    @classmethod
    def of_block(cls, block: DumpBlock, sequence: int) -> ReadSequence:
        prompts = slice(*block.prompt_offsets[sequence : sequence + 2].tolist())
        rows = slice(*block.offsets[sequence : sequence + 2].tolist())
        m = prompts.stop - prompts.start
        tokens = np.concatenate((block.prompt_tokens[prompts], block.tokens[rows])).astype(np.int32)
        k = min(TOP, block.topk_ids.shape[-1])
        ids, p = np.full((len(tokens), k), -1, np.int32), np.zeros((len(tokens), k), np.float32)
        ids[m:], p[m:] = block.topk_ids[rows, 0, :k], np.exp(block.topk_logp[rows, 0, :k].astype(np.float32))
        if block.prompt_topk_ids is not None and block.prompt_topk_logp is not None and m:
            # The prediction after the last prompt token is row 0 of the continuation.
            ids[1:m] = block.prompt_topk_ids[prompts][:-1, :k]
            p[1:m] = np.exp(block.prompt_topk_logp[prompts][:-1, :k].astype(np.float32))
        return cls(tokens=tokens, ids=ids, p=p, prompt=m)
