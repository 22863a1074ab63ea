"""A model's last hidden state and most probable next tokens at every position of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.loop.prompts import Prompt
from rescore.decode.models.target import Block, Target

CHUNK = 256  # positions whose logits are computed at once
LARGEST = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class States:
    """Data at n positions.

    hidden             float16 [n, width], the last hidden state
    top_ids, top_logp  int32 and float16 [n, K], the most probable next tokens, most probable first, with logp of the
                       softmax over all V tokens at temperature 1
    """

    hidden: NDArray[np.float16]
    top_ids: NDArray[np.int32]
    top_logp: NDArray[np.float16]

    @classmethod
    def of(cls, hidden: Tensor, logits: Tensor, k: int) -> States:
        """Makes states from hidden states [n, width] and their logits float32 [n, V]."""
        top, ids = logits.topk(min(k, logits.shape[-1]), dim=-1)
        logp = top - logits.logsumexp(dim=-1, keepdim=True)
        if not (hidden.abs() <= LARGEST).all() or not logp.isfinite().all():
            raise ValueError(
                f"expected hidden states within the float16 range ({LARGEST:g}) and finite logits, got others; "
                "the model is broken, or its last layer has no norm"
            )
        return cls(
            hidden=hidden.half().cpu().numpy(),
            top_ids=ids.int().cpu().numpy(),
            top_logp=logp.half().cpu().numpy(),
        )

    @classmethod
    def joined(cls, parts: Sequence[States]) -> States:
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__})

    def row(self, i: int) -> States:
        """Returns the states of position i only."""
        return States(**{name: getattr(self, name)[i : i + 1] for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextStates:
    """A text, tokens int32 [n], n >= 1, after its prompt. Position i of `states` follows the prompt and tokens[:i]."""

    prompt: Prompt
    tokens: NDArray[np.int32]
    states: States


@torch.inference_mode()
def read_states(target: Target, prompts: Sequence[Prompt], *, top_k: int = 32, rows: int = 8) -> Iterator[TextStates]:
    """Yields the states along the prompts' references, `rows` texts per pass, batched by length."""
    ordered = sorted(prompts, key=lambda one: len(one.tokens) + len(one.reference))
    for start in range(0, len(ordered), rows):
        batch = ordered[start : start + rows]
        ids = [one.text for one in batch]
        cache, firsts = target.open(ids, 1, max(map(len, ids)))
        hidden = target.read(Block.of_texts(firsts, [0] * len(batch), target.device), cache)
        for prompt, text, states in zip(batch, firsts, hidden):
            own = states[len(prompt.tokens) - 1 : len(text) - 1]
            parts = [States.of(chunk, target.logits(chunk).float(), top_k) for chunk in own.split(CHUNK)]
            yield TextStates(prompt=prompt, tokens=prompt.reference, states=States.joined(parts))
