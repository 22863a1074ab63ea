"""Generates a model's own answers to prompts, with its states along them, by continuous batching.

The text of a prompt does not depend on the rest of the batch, except for rounding in batched arithmetic: every position
of every prompt has its own random number (`Sampling.seeds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.loop.prompts import Prompt
from rescore.decode.models.slot_cache import SlotCache
from rescore.decode.models.target import Block, Target
from rescore.decode.verify.sampling import Sampling, uniform
from rescore.lattice.checked import Checked

CHUNK = 256  # positions whose logits are computed at once
LARGEST = float(np.finfo(np.float16).max)
STRETCH = 16  # prompts are sorted by length within this many batches, so that rows of a batch have similar lengths
REFILL = 8  # new prompts are read when at least one row in 8 is free


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


class TextOptions(Checked, frozen=True, kw_only=True):
    """Generation options.

    temperatures  assigned to prompts in turn; 0 is greedy
    max_tokens    per text, its end-of-text token included
    ends          ids that end a text
    top_k         next-token probabilities kept per position
    rows          texts generated at once
    tokens        total tokens after which no further text is started; None: all prompts
    """

    temperatures: Annotated[tuple[Annotated[float, Meta(ge=0, le=100)], ...], Meta(min_length=1)] = (0.0, 0.7)
    max_tokens: Annotated[int, Meta(ge=1)] = 256
    ends: tuple[int, ...]
    top_k: Annotated[int, Meta(ge=1)] = 32
    rows: Annotated[int, Meta(ge=1)] = 64
    tokens: int | None = None
    seed: int = 1

    def temperature(self, prompt: Prompt) -> float:
        return self.temperatures[prompt.number % len(self.temperatures)]


@torch.inference_mode()
def own_texts(target: Target, prompts: Sequence[Prompt], options: TextOptions) -> Iterator[TextStates]:
    """Yields texts as they end, in unspecified order; `options.rows` are generated at a time. A text includes the token
    that ends it.
    """
    waiting = _in_stretches(prompts, options.rows * STRETCH)
    rows = _Rows(target, options)
    written = 0
    while True:
        wanted = options.tokens is None or written + rows.underway < options.tokens
        free = options.rows - rows.busy
        batch = []
        if wanted and free * REFILL >= options.rows:
            batch, waiting = waiting[:free], waiting[free:]
        if not batch and not rows.busy:
            return
        for text in rows.begin(batch) if batch else rows.step():
            written += len(text.tokens)
            yield text


def _in_stretches(prompts: Sequence[Prompt], size: int) -> list[Prompt]:
    stretches = (prompts[start : start + size] for start in range(0, len(prompts), size))
    return [prompt for stretch in stretches for prompt in sorted(stretch, key=lambda one: len(one.tokens))]


class _Writing:
    """One unfinished text."""

    def __init__(self, prompt: Prompt, options: TextOptions):
        self.prompt = prompt
        self.temperature = options.temperature(prompt)
        sampling = Sampling(seed=options.seed)
        self.numbers = uniform(sampling.seeds(prompt.number, options.max_tokens))
        self.tokens: list[int] = []
        self.states: list[States] = []

    @property
    def held(self) -> int:
        """Tokens in the cache when the next pass begins: all but the last one written."""
        return len(self.prompt.tokens) + len(self.tokens) - 1


class _Rows:
    """The unfinished texts, each in one row of a shared cache. A finished text leaves its row empty."""

    def __init__(self, target: Target, options: TextOptions):
        self.target, self.options = target, options
        self.rows: list[_Writing | None] = []
        self.cache: SlotCache | None = None

    @property
    def busy(self) -> int:
        return sum(one is not None for one in self.rows)

    @property
    def underway(self) -> int:
        """Tokens of unfinished texts."""
        return sum(len(one.tokens) for one in self.rows if one)

    def begin(self, prompts: Sequence[Prompt]) -> Iterator[TextStates]:
        """Reads prompts into empty rows and generates their first tokens; yields texts that end."""
        new = [_Writing(prompt, self.options) for prompt in prompts]
        cache, firsts = self.target.open(
            [one.prompt.tokens.astype(np.int64) for one in new], 1, max(len(one.prompt.tokens) for one in new)
        )
        hidden = self.target.read(Block.of_texts(firsts, [0] * len(new), self.target.device), cache)
        last = hidden[torch.arange(len(new)), torch.tensor([len(one) - 1 for one in firsts])]
        if not self.busy:
            self.cache, self.rows = cache, [None] * len(new)
        assert self.cache is not None
        empty = [row for row, one in enumerate(self.rows) if one is None][: len(new)]
        if self.cache is not cache:
            self.cache.put(empty, cache)
        for row, one in zip(empty, new):
            self.rows[row] = one
        return self._write(empty, last)

    def step(self) -> Iterator[TextStates]:
        """Generates one more token of every text; yields texts that end."""
        assert self.cache is not None
        if 4 * self.busy <= 3 * len(self.rows):  # drop the empty rows: no prompts are left to fill them
            kept = [row for row, one in enumerate(self.rows) if one]
            self.cache.select(kept)
            self.rows = [self.rows[row] for row in kept]
        device = self.target.device
        last = torch.tensor([[one.tokens[-1] if one else 0] for one in self.rows], device=device)
        starts = [one.held if one else 0 for one in self.rows]
        block = Block.chain(last, torch.tensor(starts, device=device), max(starts) + 1)
        busy = [row for row, one in enumerate(self.rows) if one]
        return self._write(busy, self.target.read(block, self.cache)[busy, 0])

    def _write(self, rows: Sequence[int], hidden: Tensor) -> Iterator[TextStates]:
        """Appends the next token to the texts in these rows; yields texts that end."""
        these = [one for row in rows if (one := self.rows[row])]
        logits = self.target.logits(hidden).float()
        states = States.of(hidden, logits, self.options.top_k)
        for i, (row, one, token) in enumerate(zip(rows, these, _next_tokens(logits, these).tolist())):
            one.tokens.append(token)
            one.states.append(states.row(i))
            if token in self.options.ends or len(one.tokens) == self.options.max_tokens:
                self.rows[row] = None
                yield TextStates(
                    prompt=one.prompt, tokens=np.array(one.tokens, np.int32), states=States.joined(one.states)
                )


def _next_tokens(logits: Tensor, these: Sequence[_Writing]) -> Tensor:
    """Returns the next tokens int64 [n] from logits [n, V]: the argmax at temperature 0, otherwise the first id whose
    cumulative probability exceeds the position's random number.
    """
    best = logits.argmax(dim=-1)
    drawn = [row for row, one in enumerate(these) if one.temperature]
    if not drawn:
        return best
    temperature = torch.tensor([[these[row].temperature] for row in drawn], device=logits.device)
    number = torch.tensor([[these[row].numbers[len(these[row].tokens)]] for row in drawn], device=logits.device)
    cumulative = torch.softmax(logits[drawn] / temperature, dim=-1).cumsum(dim=-1)
    at = torch.searchsorted(cumulative, number.float() * cumulative[:, -1:], right=True)
    best[drawn] = at[:, 0].clamp(max=logits.shape[-1] - 1)
    return best
