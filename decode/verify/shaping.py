"""From the target's logits to the distribution to decode: processors, temperature, top-k, top-p.

Shaping precedes verification, so that drafts are verified against the distribution that the user chose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rescore.decode.verify.sampling import Sampling
from rescore.lattice.checked import real

if TYPE_CHECKING:
    from torch import Tensor

Processor = Callable[["Tensor", "Tensor"], "Tensor"]
"""(ids int64 [m, n] read so far, scores float32 [m, V]) -> scores [m, V], as Hugging Face's `LogitsProcessor`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """How logits become a distribution, in the order of Hugging Face's `generate`.

    repetition_penalty  divides the positive logits of tokens that occurred, multiplies the negative ones (CTRL, Keskar
                        et al. 2019)
    processors          in order, each called with the ids read so far, prompt included
    sampling            temperature, top-k and top-p; None decodes greedily
    """

    sampling: Sampling | None = None
    repetition_penalty: float = 1.0
    processors: tuple[Processor, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < real(self.repetition_penalty, "repetition_penalty") < math.inf:
            raise ValueError(
                f"repetition_penalty: expected a finite number above 0 (1 is none), got {self.repetition_penalty!r}"
            )

    def with_processors(self, processors: tuple[Processor, ...]) -> Shaping:
        """This shaping with more processors after its own."""
        return replace(self, processors=(*self.processors, *processors)) if processors else self

    @property
    def reads_text(self) -> bool:
        """Whether scores depend on previous tokens, beyond the logits."""
        return bool(self.processors) or self.repetition_penalty != 1.0

    def scores(self, logits: Tensor, texts: Sequence[NDArray[np.integer]]) -> Tensor:
        """Logits [m, V] after penalty and processors; texts: the ids that each row was computed from."""
        if not self.reads_text:
            return logits
        import torch

        rows = []
        for row, text in zip(logits.float(), texts):
            ids = torch.as_tensor(np.asarray(text, np.int64), device=logits.device)[None]
            scores = self._penalised(row[None], ids)
            for processor in self.processors:
                scores = processor(ids, scores)
            rows.append(scores)
        return torch.cat(rows)

    def probabilities(self, scores: Tensor) -> Tensor:
        """float64 [..., V], each row of sum 1; greedy decoding puts all mass on the first of the greatest scores."""
        import torch

        if self.sampling is None:
            return torch.nn.functional.one_hot(scores.argmax(dim=-1), scores.shape[-1]).double()
        return shaped_probabilities(scores, self.sampling)

    def _penalised(self, scores: Tensor, ids: Tensor) -> Tensor:
        if self.repetition_penalty == 1.0:
            return scores
        import torch

        seen = scores.gather(1, ids)
        return scores.scatter(
            1, ids, torch.where(seen < 0, seen * self.repetition_penalty, seen / self.repetition_penalty)
        )


def shaped_probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """`Sampling.distribution` on the device of the tensor: float64 [..., V] of logits [..., V]."""
    import torch

    z = logits.double()
    top = z.amax(dim=-1, keepdim=True)
    if not torch.isfinite(top).all():
        raise ValueError("logits: expected numbers or -inf, at least one number per row, got NaN, +inf or only -inf")
    probs = torch.exp((z - top) / sampling.temperature)
    by_rank = sampling.top_p < 1 or 0 < sampling.top_k < probs.shape[-1]
    probs = _kept(probs, sampling) if by_rank else probs
    return probs / probs.sum(dim=-1, keepdim=True)


def _kept(probs: Tensor, sampling: Sampling) -> Tensor:
    """`probs` outside the top_k (ties by id), and then outside the smallest set of mass top_p, set to 0."""
    import torch

    vocab_size = probs.shape[-1]
    most = min(sampling.top_k or vocab_size, vocab_size)
    # topk of a few tokens is fifty times faster than sorting a whole vocabulary.
    descending = probs.topk(most).values if most < vocab_size else probs.sort(dim=-1, descending=True).values
    count = torch.full_like(descending[..., :1], most, dtype=torch.int64)
    if sampling.top_p < 1:
        before = (descending / descending.sum(dim=-1, keepdim=True)).cumsum(dim=-1).roll(1, dims=-1)
        before[..., 0] = 0.0
        count = (before < sampling.top_p).sum(dim=-1, keepdim=True)
    least = descending.gather(-1, count - 1)
    above, equal = probs > least, probs == least
    missing = count - above.sum(dim=-1, keepdim=True)
    return torch.where(above | (equal & (equal.cumsum(dim=-1) <= missing)), probs, 0.0)
