"""One request: its prompt, its text, when it ends (stop tokens, stop strings, criteria), its cost."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.decode.draft.prediction import count_copied, edit_model
from rescore.decode.models.request_text import RequestText
from rescore.decode.models.target import Seeing, Switching, Target
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Processor, Shaping
from rescore.lattice.checked import text_ids, token_ids, whole
from rescore.lattice.short_repr import short_repr
from rescore.lattice.structure import Continued, Structure, begin

if TYPE_CHECKING:
    from torch import Tensor

    from rescore.decode.draft.text_memory import TextMemory
    from rescore.lm.model.ngram import NGram


class Finish(str, Enum):
    """Why a text ended."""

    STOP_TOKEN = "stop_token"
    STOP_STRING = "stop_string"
    CRITERION = "criterion"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """What ends a text; checked after every token, also within an accepted draft.

    tokens     ids that end it; those of a tensor or a list are taken too
    strings    strings that end it; the token that completes one is the last
    decode     ids -> text, needed for strings
    criterion  called with the whole text, prompt included; true ends it
    """

    tokens: frozenset[int] = frozenset()
    strings: tuple[str, ...] = ()
    decode: Callable[[Sequence[int]], str] | None = None
    criterion: Callable[[NDArray[np.int32]], bool] | None = None

    def __post_init__(self) -> None:
        given = [*self.tokens] if isinstance(self.tokens, (set, frozenset)) else self.tokens
        if (tokens := token_ids(given, "stop tokens")).ndim != 1:
            raise TypeError(f"stop tokens: expected several ids, got {self.tokens!r:.60}; put one into brackets")
        object.__setattr__(self, "tokens", frozenset(tokens.tolist()))
        if isinstance(self.strings, str):
            raise TypeError(
                f"stop strings: expected several, got {self.strings!r:.60}, of which each character would be one; "
                "put it into brackets"
            )
        if self.strings and self.decode is None:
            raise ValueError(
                "stop strings: expected a `decode` that turns ids into text, got none; give the tokenizer's"
            )
        if not all(self.strings):
            raise ValueError("stop strings: expected text, got an empty string, which every text contains")

    def with_criterion(self, criterion: Callable[[NDArray[np.int32]], bool] | None) -> Stopping:
        """This, with another criterion after its own."""
        own = self.criterion
        if own is None or criterion is None:
            return self if criterion is None else replace(self, criterion=criterion)
        return replace(self, criterion=lambda text: own(text) or criterion(text))

    def string_in(self, tokens: NDArray[np.int32]) -> bool:
        """Whether the last one of `tokens` completes a stop string.

        The decoded tail grows until its text exceeds the longest stop string by what a token may hold back (part of a
        character).
        """
        assert self.decode is not None
        longest = max(len(string) for string in self.strings)
        ids: list[int] = tokens.tolist()
        last = len(self.decode(ids[-1:]))
        size = 8
        while True:
            text = self.decode(ids[-size:])
            if size >= len(ids) or len(text) >= longest + last + 8:
                return any(string in text for string in self.strings)
            size *= 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """A prompt with its own settings.

    prompt      int [m], m >= 1
    max_tokens  None: the options'
    sequence    number of its sequence of random numbers under the seed; None: its index in the call
    seeds       uint64, one per position, instead of such a sequence (for example a dump's)
    processors  run after those of the options' shaping
    criterion   ends the text, in addition to the options' stopping
    structure   bounds the text; None: the options'
    prediction  int [m], what the text is likely to copy most of, such as the file that it edits; None: the options'
    memory      earlier texts of whoever asks, to which this one is added when it ends; None: those of the drafter
    lm          n-gram model of whoever asks, opened (`rescore.load`); None: that of the drafter
    group       requests of a call with equal groups draft from each other's texts; None: those with the same prompt
    """

    prompt: ArrayLike
    max_tokens: int | None = None
    sequence: int | None = None
    seeds: NDArray[np.uint64] | None = None
    processors: tuple[Processor, ...] = ()
    criterion: Callable[[NDArray[np.int32]], bool] | None = None
    structure: Structure | None = None
    prediction: ArrayLike | None = None
    memory: TextMemory | None = None
    lm: NGram | None = None
    group: Hashable = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            object.__setattr__(self, "max_tokens", whole(self.max_tokens, "max_tokens", 1))


@dataclass(slots=True, kw_only=True)
class Statistics:
    """The cost of a text.

    accepted     accepted draft tokens of each verifying pass, in order
    drafted      draft tokens (nodes) that each of these passes verified
    drafting_us, verifying_us  wall time of drafting and of passes; a batch's divided by its requests
    opening_us   share of drafting_us for the first drafts, when a drafter reads the prompt
    prompt_us    share of verifying_us for the prompt's pass
    pass_us      wall time of every pass with its drafting, the prompt's first; empty where it was not measured
    plain_us     of verifying_us, every pass in which no request drafted anything, the prompt's excluded
    rested       passes without a draft because a plain one was expected to be faster (`Draft.rested`)
    begun        tokens with which a structure lets every text begin, which the prompt's pass read too
    predicted    of an ended text, tokens of its prediction that it copied, and that it did not (OpenAI's accepted and
                 rejected prediction tokens); None without a prediction
    """

    accepted: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    drafting_us: float = 0.0
    verifying_us: float = 0.0
    opening_us: float = 0.0
    prompt_us: float = 0.0
    pass_us: list[float] = field(default_factory=list)
    plain_us: list[float] = field(default_factory=list)
    rested: int = 0
    begun: int = 0
    predicted: tuple[int, int] | None = None

    def add(self, later: Statistics) -> None:
        """Adds the cost of a later part of the text, whose reading again counts as one more pass."""
        self.accepted += [later.begun, *later.accepted] if self.prompt_us else later.accepted
        self.begun = self.begun if self.prompt_us else later.begun
        self.drafted += [0, *later.drafted] if self.prompt_us else later.drafted
        self.drafting_us += later.drafting_us
        self.verifying_us += later.verifying_us
        self.opening_us = self.opening_us or later.opening_us
        self.prompt_us = self.prompt_us or later.prompt_us
        self.pass_us += later.pass_us
        self.plain_us += later.plain_us
        self.rested += later.rested
        self.predicted = later.predicted

    @property
    def passes(self) -> int:
        """Forward passes of the target, the prompt's included."""
        return len(self.accepted) + 1


def accepted_by_position(accepted: Sequence[int]) -> NDArray[np.int64]:
    """How many passes accepted at least 1, 2, .. tokens, of the accepted tokens of each: int64 [longest acceptance]."""
    lengths = np.asarray(accepted, np.int64)
    passes: NDArray[np.int64] = (lengths[:, None] >= np.arange(1, lengths.max(initial=0) + 1)).sum(axis=0)
    return passes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generation:
    """tokens int32 [n], including a stop token that ended them; why the text ended; its cost."""

    tokens: NDArray[np.int32]
    finish: Finish
    statistics: Statistics

    __repr__ = short_repr

    @property
    def block_efficiency(self) -> float:
        """Generated tokens per pass."""
        return len(self.tokens) / self.statistics.passes


class ActiveRequest:
    """An active request, and the text of the target's decoder.

    request: with the options' settings where it has none; first: the prompt as the decoder reads it; shaping, stopping:
    the options', to which the request's own are added. switch: the target's (`Switching`).
    """

    def __init__(
        self,
        index: int,
        request: Request,
        first: NDArray[np.int64],
        target: Target,
        shaping: Shaping,
        stopping: Stopping,
    ):
        assert request.max_tokens is not None
        self.index, self.max_tokens = index, request.max_tokens
        self.switch = target.switch if isinstance(target, Switching) else None
        context = target.longest if isinstance(target, Switching) and self.switch is not None else target.context
        if context is not None and len(first) + self.max_tokens > context:
            raise ValueError(
                f"request {index}: {len(first)} tokens and max_tokens {self.max_tokens}: expected at most {context} "
                "together, the model's context; shorten one of them"
            )
        self.seeds, random = self._numbers(request, shaping.sampling)
        self.text = RequestText(first, number=index, room=self.max_tokens, random=random)
        self.text.memory, self.text.group = request.memory, request.group
        self.text.placeholders = target.placeholders if isinstance(target, Seeing) else ()
        if isinstance(request.lm, (str, os.PathLike)):
            raise TypeError(
                f"request {index}: lm: expected an n-gram model, got the name of a file; open it for all requests, "
                f"rescore.load({os.fspath(request.lm)!r})"
            )
        if request.lm is not None:
            request.lm.require_tokens()
            self.text.lm = request.lm.widened(target.vocab_size)
        self.shaping = shaping.with_processors(request.processors)
        self.stopping = stopping.with_criterion(request.criterion)
        self._blocked: dict[bytes, str] = {}  # texts after which a processor leaves no token, and its name
        self.permits: Callable[[Sequence[int], int], bool] | None = None  # as in `ScoredDraft`
        self._begun = isinstance(request.structure, Continued) and len(request.structure.tokens) > 0
        if request.structure is not None:
            if not self.stopping.tokens:
                raise ValueError(
                    f"request {index}: structure: expected stop tokens, with which the text can end, got none"
                )
            self.text.state = begin(request.structure, target.vocab_size, self.stopping.tokens, self.text.tokens)
            if shaping.sampling is None and not self.shaping.reads_text:
                self.permits = self._permits
            self._processed = bool(self.shaping.processors)
            self.shaping = replace(self.shaping, processors=(partial(self._bounded, self.shaping.processors),))
        self.prediction: NDArray[np.int32] | None = None
        if request.prediction is not None:
            self.prediction = text_ids(request.prediction, f"request {index}: prediction", target.vocab_size)
            self.text.expect(edit_model(self.prediction), len(first))
        if request.memory is not None:
            request.memory.check(target.vocab_size)
        self.finish: Finish | None = None
        self.statistics = Statistics()

    def _numbers(self, request: Request, sampling: Sampling | None) -> tuple[NDArray[np.uint64], np.random.Generator]:
        """The random number of every position, none for greedy decoding, and a generator of more."""
        sequence = self.index if request.sequence is None else request.sequence
        seeds = np.empty(0, np.uint64)
        if request.seeds is not None:
            seeds = np.asarray(request.seeds)
            if sampling is None or seeds.dtype != np.uint64 or seeds.ndim != 1 or len(seeds) < self.max_tokens:
                raise ValueError(
                    f"request {self.index}: seeds: expected uint64 [max_tokens = {self.max_tokens}] and sampling, "
                    f"got {seeds.dtype} {list(seeds.shape)}{'' if sampling else ' and greedy decoding'}"
                )
        elif sampling is not None:
            seeds = sampling.seeds(sequence, self.max_tokens)
        # The upper half of the counter separates these numbers from those of the positions.
        key = np.array([sampling.seed if sampling else 0, sequence], np.uint64)
        return seeds, np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, 1]))

    @property
    def history(self) -> NDArray[np.int32]:
        """The whole text, int32 [n]."""
        return self.text.tokens

    @property
    def tokens(self) -> NDArray[np.int32]:
        """The generated ones, int32 [m]."""
        return self.text.answer

    @property
    def room(self) -> int:
        """Tokens that may still be generated."""
        return self.max_tokens - (self.text.size - self.text.prompt)

    @property
    def ahead(self) -> int:
        """Tokens that the next pass may add: it goes at most one past the switch."""
        if self.switch is None or self.text.size > self.switch:
            return self.room
        return min(self.room, self.switch + 1 - self.text.size)

    @property
    def switches(self) -> bool:
        """Whether the text has just become longer than the switch, where a pass ends unless it reads the prompt."""
        return self.switch is not None and self.text.size == self.switch + 1 > self.text.prompt

    def _permits(self, drafted: Sequence[int], token: int) -> bool:
        assert self.text.state is not None
        try:
            state = self.text.state.after(drafted)
        except ValueError:  # not a text of the structure: nothing is left out
            return True
        return state.ended or state.allows(token)

    def _bounded(self, processors: Sequence[Processor], ids: Tensor, scores: Tensor) -> Tensor:
        """Scores after processors, without the tokens that the structure does not allow after the history and some
        drafted tokens, of which those after a token that is not allowed cannot be accepted.

        The mask comes before all that ranks tokens, and after all that may force one. Where nothing is left, the text
        ends: a stop token alone is.
        """
        import torch

        hidden = self._hidden(ids, scores)
        stages = [scores.masked_fill(hidden, -math.inf)]
        for processor in processors:
            stages.append(processor(ids, stages[-1].clone()).masked_fill(hidden, -math.inf))
        if stages[-1].amax() > -math.inf or not stages[0].amax() > -math.inf:
            return stages[-1]
        blocking = processors[[bool(stage.amax() > -math.inf) for stage in stages].index(False) - 1]
        name = getattr(blocking, "__name__", type(blocking).__name__)
        if not len(self.tokens) and not self._begun:
            raise ValueError(
                f"request {self.index}: expected a token that its structure allows and its processors leave after "
                f"{ids.shape[1]} tokens, got none after {name}; leave that out, or the structure"
            )
        self._blocked[ids[0].cpu().numpy().astype(np.int32).tobytes()] = name
        end = torch.tensor([min(self.stopping.tokens)], device=scores.device)
        return torch.full_like(scores, -math.inf).index_fill(1, end, 0)

    def _hidden(self, ids: Tensor, scores: Tensor) -> Tensor:
        """The tokens that the structure does not allow, bool [V]; none after a text that is not its own."""
        import torch

        assert self.text.state is not None
        try:
            state = self.text.state.after(ids[0, self.text.size :].tolist())
        except ValueError:
            return torch.zeros_like(scores[0], dtype=torch.bool)
        if state.ended or state.free:
            return torch.zeros_like(scores[0], dtype=torch.bool)
        allowed = state.mask()
        if not allowed.any():
            raise ValueError(
                f"request {self.index}: structure: expected a token that may follow {ids.shape[1]} tokens of text, "
                "got none, and no stop token"
            )
        return torch.from_numpy(~allowed).to(scores.device)

    def begin(self) -> None:
        """Appends the tokens with which the structure lets every text begin, unless something else may end the text
        among them or leave them out.
        """
        stopping = self.stopping
        if self.text.state is not None and not (self._processed or stopping.strings or stopping.criterion):
            self.statistics.begun = self.take(self.text.state.run[: max(self.ahead - 1, 0)])

    def take(self, tokens: Sequence[int]) -> int:
        """Appends tokens up to the first that ends the text and sets `finish`; returns how many were appended."""
        for count, token in enumerate(tokens, 1):
            blocking = self._blocked.get(self.history.tobytes()) if self._blocked else None
            if blocking:
                message = (
                    f"ended at token {len(self.tokens)}, where {blocking} leaves no token that its structure allows"
                )
                warnings.warn(f"request {self.index}: {message}; leave that out", stacklevel=2)
            elif self.text.state:
                self.text.state = self.text.state.step(token)
            self.text.append([token])
            self.finish = self._ended(token)
            if self.finish:
                if self.prediction is not None:
                    used = count_copied(self.prediction, self.tokens)
                    self.statistics.predicted = used, len(self.prediction) - used
                return count
        return len(tokens)

    def _ended(self, token: int) -> Finish | None:
        stopping = self.stopping
        held = stopping.criterion is not None and stopping.criterion(self.history)  # asked once for every token
        if token in stopping.tokens:
            return Finish.STOP_TOKEN
        if stopping.strings and stopping.string_in(self.tokens):
            return Finish.STOP_STRING
        if held:
            return Finish.CRITERION
        return None if self.room else Finish.LENGTH
