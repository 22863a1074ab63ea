"""Predictions of every head of a model along continuations of prompts.

Three kinds of continuation (docs/reference/concepts.md, dump rows): `forced` reads the references, `greedy` generates
the target's most probable tokens, `sampled` draws them with each position's own random number, in the sequence
numbered by the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.loop.prompts import Prompt
from rescore.decode.models.draft_step import DraftStep, DraftVocabulary, Heads, StatelessHeads, top_of_heads
from rescore.decode.models.request_text import RequestText
from rescore.decode.models.target import Block, Target
from rescore.decode.verify.sampling import Sampling
from rescore.lattice.checked import whole
from rescore.lattice.top import top_of_logits

Advance = Callable[[float], None]  # called with the share of the work that is done, in (0, 1]
KINDS = ("forced", "sampled", "greedy")
CHUNK = 64  # positions of a prompt whose logits are computed at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationOptions:
    """Options of `continuations`.

    kind           greedy, sampled or forced
    top_k          candidates kept per head
    max_tokens     of a continuation
    end_of_text    the id after which nothing follows
    rows           sequences read at once, a batch
    along_prompts  also keep head 1's predictions along the prompts, for models that read them token by token
    """

    kind: str
    top_k: int = 10
    max_tokens: int = 64
    end_of_text: int
    sampling: Sampling | None = None
    rows: int = 50
    along_prompts: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {self.kind!r}")
        if (self.kind == "sampled") != (self.sampling is not None):
            raise ValueError(
                f"sampling: a {self.kind} continuation "
                f"{'needs a Sampling' if self.kind == 'sampled' else 'draws nothing'}"
            )
        for name in ("top_k", "max_tokens", "rows"):
            whole(getattr(self, name), name, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Predictions of the heads at n positions: ids int32 and logp float32 [n, h, K], entropy float32 [n, h] in nats."""

    ids: NDArray[np.int32]
    logp: NDArray[np.float32]
    entropy: NDArray[np.float32]

    @classmethod
    def of_logits(
        cls, certain: Tensor, k: int, ahead: Tensor | None = None, vocabulary: DraftVocabulary | None = None
    ) -> Rows:
        """Rows from the target's logits [n, V] and its heads' [n, h - 1, D], for tokens of `vocabulary`."""
        parts = [top_of_logits(certain[:, None], k)]
        if ahead is not None:
            parts.append(top_of_heads(ahead, k, vocabulary))
        ids, logp, entropy = (np.concatenate(both, axis=1) for both in zip(*parts))
        return cls(ids=ids, logp=logp, entropy=entropy)

    @classmethod
    def joined(cls, parts: Sequence[Rows], join: Callable[[list[NDArray[Any]]], NDArray[Any]]) -> Rows:
        return cls(**{name: join([getattr(part, name) for part in parts]) for name in cls.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Continuation:
    """tokens int32 [n]; row i of `rows` is the prediction after the prompt and tokens[:i]; seeds uint64 [n] if sampled;
    row i of `prompt_rows`, of head 1 alone, is the prediction after i + 1 tokens of the prompt, or None if not kept.
    """

    prompt: Prompt
    tokens: NDArray[np.int32]
    rows: Rows
    seeds: NDArray[np.uint64] | None = None
    prompt_rows: Rows | None = None


def continuations(
    target: Target,
    heads: Heads,
    batch: Sequence[Prompt],
    options: ContinuationOptions,
    advance: Advance = lambda share: None,
) -> Iterator[Continuation]:
    """Continues the prompts of a batch, in order. Head 1 is the target's, 2..h are `heads`."""
    write = forced if options.kind == "forced" else generated
    return write(target, heads, batch, options, advance)


@torch.inference_mode()
def forced(
    target: Target, heads: Heads, batch: Sequence[Prompt], options: ContinuationOptions, advance: Advance
) -> Iterator[Continuation]:
    """One pass over prompts and references; a causal model predicts at every position at once."""
    references = [cut(prompt.reference[: options.max_tokens], options.end_of_text) for prompt in batch]
    cache, firsts = target.open(
        [prompt.tokens.astype(np.int64) for prompt in batch],
        1,
        max(len(p.tokens) + len(r) for p, r in zip(batch, references)),
    )
    texts = [np.concatenate((first, reference)).astype(np.int64) for first, reference in zip(firsts, references)]
    hidden = target.read(Block.of_texts([text[:-1] for text in texts], [0] * len(texts), target.device), cache)
    for done, (prompt, first, text, reference, states) in enumerate(zip(batch, firsts, texts, references, hidden), 1):
        rows = _along(target, heads, text, states[: len(text) - 1], len(first), options.top_k)
        along = _along_prompt(target, prompt, states[: len(first)], options)
        advance(done / len(batch))
        yield Continuation(prompt=prompt, tokens=reference.astype(np.int32), rows=rows, prompt_rows=along)


def _along(target: Target, heads: Heads, text: NDArray[np.int64], states: Tensor, first: int, k: int) -> Rows:
    """The rows of text[first:], from the hidden states of all tokens but the last."""
    hidden = states[first - 1 :]
    if isinstance(heads, StatelessHeads):
        ahead = heads.of_hidden(hidden, torch.from_numpy(text[first:]).to(hidden.device))
    else:
        session, steps, read = heads.open(1), [], RequestText(text[:first])
        for end in range(first, len(text)):
            fresh = states[0 if end == first else end - 1 : end]
            read.append(text[len(read.tokens) : end + 1])
            steps.append(session.logits(_step([read], [fresh], [len(text) - end])))
        ahead = torch.cat(steps)
    return Rows.of_logits(target.logits(hidden), k, ahead, heads.vocabulary)


def _along_prompt(target: Target, prompt: Prompt, states: Tensor, options: ContinuationOptions) -> Rows | None:
    """Rows from the hidden states of a prompt's tokens; None for an encoder-decoder."""
    if not options.along_prompts or len(states) != len(prompt.tokens):
        return None
    parts = [Rows.of_logits(target.logits(chunk), options.top_k) for chunk in states.split(CHUNK)]
    return Rows.joined(parts, np.concatenate)


@torch.inference_mode()
def generated(
    target: Target, heads: Heads, batch: Sequence[Prompt], options: ContinuationOptions, advance: Advance
) -> Iterator[Continuation]:
    """The model's own continuations, greedy or sampled, token by token with a cache."""
    most, sampling = options.max_tokens, options.sampling
    cache, firsts = target.open(
        [prompt.tokens.astype(np.int64) for prompt in batch], 1, max(len(prompt.tokens) for prompt in batch) + most
    )
    seeds = np.stack([(sampling or Sampling()).seeds(prompt.number, most) for prompt in batch])
    states = target.read(Block.of_texts(firsts, [0] * len(firsts), target.device), cache)
    fresh = [row[: len(first)] for row, first in zip(states, firsts)]
    along = [_along_prompt(target, prompt, states, options) for prompt, states in zip(batch, fresh)]
    texts = [RequestText(first, number=index, room=most) for index, first in enumerate(firsts)]
    steps: list[list[Rows]] = [[] for _ in batch]
    alive, session = list(range(len(batch))), heads.open(len(batch))
    for i in range(most):
        hidden = torch.stack([fresh[index][-1] for index in alive])
        certain = target.logits(hidden)
        chosen = (
            top_of_logits(certain[:, None], 1)[0][:, 0, 0]
            if sampling is None
            else sampling.draw(certain, seeds[alive, i])
        )
        for index, token in zip(alive, chosen.tolist()):
            texts[index].append([token])
        ahead = session.logits(
            _step([texts[index] for index in alive], [fresh[index] for index in alive], [most - i] * len(alive))
        )
        rows = Rows.of_logits(certain, options.top_k, ahead, heads.vocabulary)
        for row, index in enumerate(alive):
            steps[index].append(Rows(ids=rows.ids[row], logp=rows.logp[row], entropy=rows.entropy[row]))
        advance((i + 1) / most)
        alive = [index for index in alive if texts[index].tokens[-1] != options.end_of_text]
        if not alive or i + 1 == most:
            break
        # Rows that have ended read their last token again.
        roots, held = [text.tokens[-1:] for text in texts], [text.size - 1 for text in texts]
        fresh = list(target.read(Block.of_texts(roots, held, target.device), cache))
    advance(1.0)
    for prompt, text, parts, drawn, prompt_rows in zip(batch, texts, steps, seeds, along):
        yield Continuation(
            prompt=prompt,
            tokens=text.answer,
            rows=Rows.joined(parts, np.stack),
            seeds=None if sampling is None else drawn[: len(text.answer)],
            prompt_rows=prompt_rows,
        )


def _step(texts: list[RequestText], fresh: list[Tensor], room: list[int]) -> DraftStep:
    return DraftStep(texts=texts, states=lambda: fresh, room=room)


def cut(reference: NDArray[np.int32], end: int) -> NDArray[np.int32]:
    """The reference up to its first end-of-text."""
    found = np.flatnonzero(reference == end)
    return reference[: found[0] + 1] if len(found) else reference
