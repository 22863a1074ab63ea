"""From the target's logits to the distribution to decode: processors, temperature, top-k, top-p.

Shaping precedes verification, so that drafts are verified against the distribution that the user chose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.decode.verify.sampling import Sampling, sample
from rescore.lattice.checked import real

if TYPE_CHECKING:
    from torch import Tensor

Processor = Callable[["Tensor", "Tensor"], "Tensor"]
"""(ids int64 [m, n] read so far, scores float32 [m, V]) -> scores [m, V], as Hugging Face's `LogitsProcessor`."""
NUCLEUS = 1024  # most probable tokens among which the last of top-p is looked for first, instead of sorting V
ROWS = 64  # that tokens are drawn of at once: a batch's distributions in float64 may be gigabytes
INVALID, UNDECIDED = -1, -2


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
                if scores.shape != (1, len(row)):
                    got = list(scores.shape)
                    raise ValueError(f"processor {processor}: expected scores [1, {len(row)}], got {got}")
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
    kept = _Kept.of(logits, sampling, NUCLEUS)
    if not kept.valid.all():
        raise ValueError("logits: expected numbers or -inf, at least one number per row, got NaN, +inf or only -inf")
    if not kept.decided.all():
        kept = _Kept.of(logits, sampling, logits.shape[-1])
    return kept.probabilities


@dataclass(frozen=True, slots=True)
class Drawing:
    """Draws tokens as `Matching` does, on the device of the logits, without reading a value on the host. Equal ones are
    captured once. sampling: its seed is not used.
    """

    sampling: Sampling

    @classmethod
    def of(cls, sampling: Sampling) -> Drawing:
        return cls(replace(sampling, seed=0))

    def __call__(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """The tokens int64 [...] at numbers float64 [...] in [0, 1), of logits [..., V]; INVALID where these are NaN,
        +inf or only -inf, UNDECIDED where top-p keeps more than the `NUCLEUS` most probable tokens.
        """
        import torch

        parts = zip(logits.flatten(0, -2).split(ROWS), uniform.flatten().split(ROWS))
        return torch.cat([self._drawn(*part) for part in parts]).view(uniform.shape)

    def _drawn(self, logits: Tensor, uniform: Tensor) -> Tensor:
        kept = _Kept.of(logits, self.sampling, NUCLEUS)
        drawn: Tensor = sample(kept.probabilities, uniform).masked_fill(~kept.decided, UNDECIDED)
        return drawn.masked_fill(~kept.valid, INVALID)


class _Kept(NamedTuple):
    """probabilities float64 [..., V], where the logits are valid and it is decided what is kept, bool [...]."""

    probabilities: Tensor
    valid: Tensor
    decided: Tensor

    @classmethod
    def of(cls, logits: Tensor, sampling: Sampling, most: int) -> _Kept:
        """most: of the most probable tokens, among which the last one that top-p keeps is looked for."""
        import torch

        # In place, since rows of large vocabularies take longer to allocate than to compute.
        probs, vocab_size = logits.to(torch.float64, copy=True), logits.shape[-1]
        top = probs.amax(dim=-1, keepdim=True)
        valid = top.isfinite()
        probs.sub_(top.masked_fill(~valid, 0.0)).div_(sampling.temperature).exp_()
        by_rank = 0 < sampling.top_k < vocab_size
        decided = torch.ones_like(valid)
        if by_rank or sampling.top_p < 1:
            descending = probs.topk(sampling.top_k if by_rank else min(most, vocab_size)).values
            probs = probs.masked_fill_(probs < descending[..., -1:], 0.0) if by_rank else probs
        if sampling.top_p < 1:
            mass, wanted = descending.cumsum(dim=-1), sampling.top_p * probs.sum(dim=-1, keepdim=True)
            before, size = (mass < wanted).sum(dim=-1, keepdim=True), descending.shape[-1]
            least = descending.gather(-1, before.clamp(max=size - 1))
            # Past the top_k all are as probable as the last of them, which is 0 where few logits are finite.
            further = ((wanted - mass[..., -1:]).clamp(min=0) / descending[..., -1:].clamp(min=1e-300)).ceil()
            dropped = (probs >= least).sum(dim=-1, keepdim=True) - (before + 1).clamp(max=size) - further
            equal = probs == least
            probs.masked_fill_((probs < least) | (equal & (equal.cumsum(dim=-1) <= dropped)), 0.0)
            if not by_rank and size < vocab_size:
                decided = before < size
        if sampling.min_p:
            probs.masked_fill_(probs < sampling.min_p, 0.0)  # the greatest is 1
        return cls(probs.div_(probs.sum(dim=-1, keepdim=True)), valid[..., 0], decided[..., 0])
