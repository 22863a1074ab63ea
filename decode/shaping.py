"""From the target's logits to the distribution that is decoded from: processors, temperature, top-k, top-p.

All of it happens before verification, so that what is verified is the distribution that the user asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .sampling import Sampling

Processor = Callable[[Tensor, Tensor], Tensor]
"""(ids int64 [m, n] read so far, scores float32 [m, V]) -> scores [m, V], as Hugging Face's `LogitsProcessor`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """How logits become a distribution, in the order of Hugging Face's `generate`.

    repetition_penalty  divides the positive logits of tokens that occurred, multiplies the negative ones (CTRL, Keskar et al. 2019)
    processors          in order, each given the ids read so far, prompt included
    sampling            temperature, top-k and top-p; None decodes greedily
    """

    sampling: Sampling | None = None
    repetition_penalty: float = 1.0
    processors: tuple[Processor, ...] = ()

    def __post_init__(self) -> None:
        if not self.repetition_penalty > 0:
            raise ValueError(f"repetition_penalty: expected a number above 0 (1 is none), got {self.repetition_penalty!r}")

    def with_processors(self, processors: tuple[Processor, ...]) -> Shaping:
        """This shaping with more processors behind its own."""
        return replace(self, processors=(*self.processors, *processors)) if processors else self

    @property
    def reads_text(self) -> bool:
        """Whether scores depend on the tokens before, beyond the logits."""
        return bool(self.processors) or self.repetition_penalty != 1.0

    def scores(self, logits: Tensor, texts: Sequence[NDArray[np.integer]]) -> Tensor:
        """Logits [m, V] after the penalty and the processors; texts: the ids that each row was computed from."""
        if not self.reads_text:
            return logits
        rows = []
        for row, text in zip(logits.float(), texts):
            ids = torch.as_tensor(np.asarray(text, np.int64), device=logits.device)[None]
            scores = self._penalised(row[None], ids)
            for processor in self.processors:
                scores = processor(ids, scores)
            rows.append(scores)
        return torch.cat(rows)

    def probabilities(self, scores: Tensor) -> Tensor:
        """float64 [..., V], each row of sum 1; greedy decoding has all mass on the first of the greatest scores."""
        if self.sampling is None:
            return torch.nn.functional.one_hot(scores.argmax(dim=-1), scores.shape[-1]).double()
        return probabilities(scores, self.sampling)

    def _penalised(self, scores: Tensor, ids: Tensor) -> Tensor:
        if self.repetition_penalty == 1.0:
            return scores
        seen = scores.gather(1, ids)
        return scores.scatter(1, ids, torch.where(seen < 0, seen * self.repetition_penalty, seen / self.repetition_penalty))


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """`Sampling.distribution` on the device of the tensor: float64 [..., V] of logits [..., V]."""
    z = logits.double()
    top = z.amax(dim=-1, keepdim=True)
    if not torch.isfinite(top).all():
        raise ValueError("logits: expected numbers or -inf, at least one number per row, got NaN, +inf or only -inf")
    probs = torch.exp((z - top) / sampling.temperature)
    vocab_size = probs.shape[-1]
    if 0 < sampling.top_k < vocab_size:
        probs = _kept(probs, torch.arange(vocab_size, device=z.device) < sampling.top_k)
    if sampling.top_p < 1:
        probs = probs / probs.sum(dim=-1, keepdim=True)
        descending = probs.sort(dim=-1, descending=True, stable=True).values
        before = descending.cumsum(dim=-1).roll(1, dims=-1)
        before[..., 0] = 0.0
        probs = _kept(probs, before < sampling.top_p)
    return probs / probs.sum(dim=-1, keepdim=True)


def draw(probs: Tensor, uniforms: Tensor) -> Tensor:
    """Tokens int64 [m]: per row of probs [m, V] the first id whose cumulative probability exceeds uniforms [m] in [0, 1)."""
    cumulative = probs.cumsum(dim=-1)
    total = cumulative[:, -1]
    # Rounding must not carry the target to the very end, past the last token that has mass.
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return (cumulative <= target[:, None]).sum(dim=-1)


def _kept(probs: Tensor, kept: Tensor) -> Tensor:
    """Zeros outside the ranks (most probable first, ties by id) where `kept` [V] or [..., V] holds."""
    order = probs.sort(dim=-1, descending=True, stable=True).indices
    mask = torch.zeros_like(probs, dtype=torch.bool).scatter(-1, order, kept.expand(probs.shape))
    return torch.where(mask, probs, 0.0)
