"""What a pass has read, with the target's most probable tokens after it, for drafters that learn from these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore import _core
from rescore.decode.models.draft_step import LastPass, Read
from rescore.decode.models.target import Target
from rescore.lattice.tensors import logit_rows

CHUNK = 128  # positions of a prompt whose logits are computed at once
MAX_POSITIONS = 4096  # positions at a prompt's end whose predictions are computed


def top_predictions(k: int, *logits: Tensor) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The k most probable tokens of logits [m, V], of several tensors one after another, and their probabilities: int32
    and float32 [m, k], most probable first.
    """
    k = min(k, logits[0].shape[-1])
    if logits[0].device.type == "cpu":  # all at once: a loop shared between threads waits for the slowest
        return _core.top_predictions([logit_rows(one) for one in logits], k, torch.get_num_threads())
    scores = torch.cat(logits).float()
    top = scores.topk(k, dim=-1)
    p = (top.values - scores.logsumexp(dim=-1, keepdim=True)).exp()
    both = torch.cat((top.indices.int().view(torch.float32), p), dim=-1).cpu().numpy()  # a single copy from the device
    ids, shares = np.split(both, 2, axis=-1)
    return np.ascontiguousarray(ids).view(np.int32), np.clip(shares, 0, 1)


def of_passes(k: int, roots: Sequence[int], last: Sequence[LastPass], logits: Sequence[Tensor]) -> list[Read]:
    """What the last pass read for each request: its root token and the n nodes of its draft. logits: [1 + n, V] each,
    after these.
    """
    ids, p = top_predictions(k, *logits)
    stops = np.cumsum([len(rows) for rows in logits])
    tokens = [np.append(root, one.tree.tokens).astype(np.int32) for root, one in zip(roots, last)]
    return [Read(one, ids[stop - len(one) : stop], p[stop - len(one) : stop]) for one, stop in zip(tokens, stops)]


def of_prompt(k: int, target: Target, prompt: NDArray[np.int32], fresh: Tensor, logits: Tensor) -> Read:
    """A prompt [m], with the predictions that the target can still tell.

    fresh: hidden states of its last tokens; logits: [1, V], after the prompt.
    """
    fresh = fresh[:-1][-MAX_POSITIONS:] if target.reads_back else fresh[:0]
    parts = [top_predictions(k, target.logits(part)) for part in fresh.split(CHUNK) if len(part)]
    ids, p = (np.concatenate(part) for part in zip(*parts, top_predictions(k, logits)))
    unknown = ((len(prompt) - len(ids), 0), (0, 0))
    return Read(prompt, np.pad(ids, unknown, constant_values=-1), np.pad(p, unknown))
