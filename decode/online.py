"""Decoding a blockwise model for real: draft, verify in one pass, accept, go on.

The output is the target's own text whatever is drafted: its greedy continuation, or the continuation that the
positions' own random numbers draw from it (`sampling.py`). Drafts only change the number of passes. The passes are
counted as a replay of a dump counts them, so both give the same block efficiency.

What is guaranteed: equal arithmetic gives equal tokens. One pass over p drafts of T tokens and T passes over one token
each agree to about 1e-6 of a logit, not bit for bit; two tokens whose logits are that close, or a random number
that close to a border, may turn out differently, as they may between any two batch sizes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.lattice.sausage import Sausage
from rescore.lattice.top import top_of_logits

from .blockwise import BlockwiseTransformer
from .sampling import Sampling

Propose = Callable[[Sausage, NDArray[np.int32]], NDArray[np.int32]]
"""(sausage [T, K] of heads 2..h, history int32 [n], the certain token last) -> drafts int32 [p, T], padding -1."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How to decode: candidates kept per slot (K), the most drafts a pass verifies (p), when to stop, and sampling.

    `sampling` None is greedy. Log-probabilities are rounded to `logp_dtype`, that of dumps, so that a drafter sees
    online what it sees in a dump.
    """

    top_k: int = 10
    paths: int = 1
    max_tokens: int = 64
    end_of_text: int | None = None
    sampling: Sampling | None = None
    logp_dtype: str = "float16"

    def __post_init__(self) -> None:
        for name in ("top_k", "paths", "max_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: expected a positive integer, got {value!r}")
        if self.logp_dtype not in ("float16", "float32"):
            raise ValueError(f"logp_dtype: expected 'float16' or 'float32', got {self.logp_dtype!r}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoded:
    """tokens int32 [n]; accepted int32 [passes - 1], the drafted tokens that each verifying pass confirmed."""

    tokens: NDArray[np.int32]
    accepted: NDArray[np.int32]

    @property
    def passes(self) -> int:
        """Forward passes of the target, the prompt's included."""
        return len(self.accepted) + 1

    @property
    def block_efficiency(self) -> float:
        """Generated tokens per pass."""
        return len(self.tokens) / self.passes


@torch.inference_mode()
def decode(
    model: BlockwiseTransformer,
    prompt: NDArray[np.integer],
    propose: Propose,
    options: Decoding,
    seeds: NDArray[np.uint64] | None = None,
) -> Decoded:
    """The continuation of `prompt` int [m], verified draft by draft; `propose` is called once per pass.

    seeds: uint64, at least max_tokens of them, one per position, if and only if sampling is asked for
    (`Sampling.seeds`, or those of a dump). The last token is end-of-text unless max_tokens came first.
    """
    prompt = _checked_prompt(model, prompt, options)
    _check_seeds(options, seeds)
    cache = model.new_cache(options.paths, len(prompt) + options.max_tokens)

    # The prompt's pass: head 1 gives the first token for certain, heads 2..h the first lattice.
    hidden = model(torch.from_numpy(prompt)[None], torch.arange(len(prompt))[None], cache)[0, -1]
    cache.share(0, 0, len(prompt))
    tokens = _target(model, hidden[None, None], options, seeds, 0)[0].tolist()
    accepted: list[int] = []

    while len(tokens) < options.max_tokens and tokens[-1] != options.end_of_text:
        room = options.max_tokens - len(tokens)
        history = np.concatenate((prompt, tokens)).astype(np.int32)
        drafts = _checked_drafts(propose(_lattice(model, hidden, options), history), model, options)[:, :room]

        # [p, 1 + T]: the certain token, which has not been read yet, then the draft.
        block = np.concatenate((np.full((len(drafts), 1), tokens[-1]), drafts), axis=1)
        start = len(history) - 1
        ids = torch.from_numpy(block.clip(min=0).astype(np.int64))[:, : room]
        states = model(ids, torch.arange(start, start + ids.shape[1])[None], cache)

        # truth[i, t] is the target's token after draft i's first t tokens: right as long as those are.
        truth = _target(model, states, options, seeds, len(tokens))
        lengths = np.cumprod(drafts[:, : truth.shape[1]] == truth[:, : drafts.shape[1]], axis=1).sum(axis=1)
        best = int(lengths.argmax())
        n = int(lengths[best])
        new = truth[best, : n + 1].tolist()
        if options.end_of_text in new:
            new = new[: new.index(options.end_of_text) + 1]
        accepted.append(min(n, len(new)))
        tokens += new
        if n < states.shape[1]:
            # Reading on at an earlier position is the roll-back; what lies behind it is never seen.
            cache.share(best, start, start + n + 1)
            hidden = states[best, n]

    return Decoded(tokens=np.array(tokens, np.int32), accepted=np.array(accepted, np.int32))


def base_draft(sausage: Sausage, history: NDArray[np.int32]) -> NDArray[np.int32]:
    """The best token of each head, int32 [1, T]: the draft that rescoring improves on."""
    return sausage.ids[None, :, 0]


def no_draft(sausage: Sausage, history: NDArray[np.int32]) -> NDArray[np.int32]:
    """Nothing, int32 [1, 0]: plain autoregressive decoding."""
    return np.empty((1, 0), np.int32)


def _target(model: BlockwiseTransformer, hidden: Tensor, options: Decoding, seeds: NDArray[np.uint64] | None, first: int) -> NDArray[np.int32]:
    """The target's own tokens int32 [p, L] after hidden states [p, L, width], for positions first..first+L-1."""
    logits = model.logits(hidden, 1)
    if options.sampling is None:
        return logits.argmax(dim=-1).numpy().astype(np.int32)
    assert seeds is not None
    return options.sampling.draw(logits, np.broadcast_to(seeds[first : first + logits.shape[1]], logits.shape[:2]))


def _lattice(model: BlockwiseTransformer, hidden: Tensor, options: Decoding) -> Sausage:
    """The sausage [T, K] of heads 2..h at one hidden state [width]."""
    ids, logp, _ = top_of_logits(model.all_logits(hidden)[1:], options.top_k)
    return Sausage.from_topk(ids, logp.astype(options.logp_dtype))


def _checked_prompt(model: BlockwiseTransformer, prompt: NDArray, options: Decoding) -> NDArray[np.int64]:
    prompt = np.asarray(prompt)
    if prompt.dtype.kind not in "iu" or prompt.ndim != 1 or not len(prompt):
        raise TypeError(f"prompt: expected integers of shape [m], m >= 1, got {prompt.dtype} {list(prompt.shape)}")
    prompt = prompt.astype(np.int64)
    if prompt.min() < 0 or prompt.max() >= model.config.vocab_size:
        raise ValueError(f"prompt: expected ids in [0, {model.config.vocab_size}), got {prompt.min()}..{prompt.max()}; was another tokenizer used?")
    if len(prompt) + options.max_tokens > model.config.context:
        raise ValueError(
            f"prompt of {len(prompt)} tokens and max_tokens {options.max_tokens}: expected at most {model.config.context} together, "
            "the model's context; shorten one of them"
        )
    return prompt


def _check_seeds(options: Decoding, seeds: NDArray[np.uint64] | None) -> None:
    if (seeds is None) != (options.sampling is None):
        raise ValueError(f"seeds: expected {'none for greedy decoding' if options.sampling is None else 'one per position for sampling'}, got {'none' if seeds is None else 'some'}")
    if seeds is not None and len(seeds) < options.max_tokens:
        raise ValueError(f"seeds: expected at least max_tokens = {options.max_tokens}, got {len(seeds)}")


def _checked_drafts(drafts: NDArray, model: BlockwiseTransformer, options: Decoding) -> NDArray:
    drafts = np.asarray(drafts)
    if drafts.ndim != 2 or drafts.dtype.kind not in "iu" or not 1 <= len(drafts) <= options.paths:
        raise ValueError(f"drafts: expected integers of shape [p, T], 1 <= p <= paths = {options.paths}, got {drafts.dtype} {list(drafts.shape)}")
    if drafts.size and (drafts.min() < -1 or drafts.max() >= model.config.vocab_size):
        raise ValueError(f"drafts: expected ids in [0, {model.config.vocab_size}) or the padding -1, got {drafts.min()}..{drafts.max()}")
    return drafts
