"""What a model makes of every position of a text: its last hidden state and its most probable next tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.loop.prompts import Prompt
from rescore.decode.models.block import Block
from rescore.decode.models.target import Target

CHUNK = 256  # positions whose logits are computed at once
LARGEST = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class States:
    """At n positions: hidden float16 [n, width], top_ids int32 and top_logp float16 [n, K], most probable first, of the
    softmax over all V tokens at temperature 1.
    """

    hidden: NDArray[np.float16]
    top_ids: NDArray[np.int32]
    top_logp: NDArray[np.float16]

    @classmethod
    def of(cls, hidden: Tensor, logits: Tensor, k: int) -> States:
        """Of hidden states [n, width] and their logits float32 [n, V]."""
        top, ids = logits.topk(min(k, logits.shape[-1]), dim=-1)
        logp = top - logits.logsumexp(dim=-1, keepdim=True)
        if not (hidden.abs() <= LARGEST).all() or not logp.isfinite().all():
            raise ValueError(
                f"expected hidden states within float16's {LARGEST:g} and finite logits, got others; "
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
        """Of position i alone."""
        return States(**{name: getattr(self, name)[i : i + 1] for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextStates:
    """tokens int32 [n], n >= 1, behind a prompt; position i of `states` is behind the prompt and tokens[:i]."""

    prompt: Prompt
    tokens: NDArray[np.int32]
    states: States


@torch.inference_mode()
def read_states(target: Target, prompts: Sequence[Prompt], *, top_k: int = 32, rows: int = 8) -> Iterator[TextStates]:
    """Along the references of the prompts, `rows` texts a pass, texts of about equal length together."""
    ordered = sorted(prompts, key=lambda one: len(one.tokens) + len(one.reference))
    for start in range(0, len(ordered), rows):
        batch = ordered[start : start + rows]
        ids = [one.text for one in batch]
        cache, firsts = target.open(ids, 1, max(map(len, ids)))
        hidden = target.read(Block.of_texts(firsts, [0] * len(batch), target.device), cache)
        for prompt, text, states in zip(batch, firsts, hidden):
            behind = states[len(prompt.tokens) - 1 : len(text) - 1]
            parts = [States.of(chunk, target.logits(chunk).float(), top_k) for chunk in behind.split(CHUNK)]
            yield TextStates(prompt=prompt, tokens=prompt.reference, states=States.joined(parts))
