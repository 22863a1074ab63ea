"""One prompt under way: its text, when it ends, what it has cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.decode.loop.stopping import Stopping
from rescore.decode.verify.shaping import Processor, Shaping
from rescore.lattice.short_repr import short_repr


class Finish(str, Enum):
    """Why a text ended."""

    STOP_TOKEN = "stop_token"
    STOP_STRING = "stop_string"
    CRITERION = "criterion"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """A prompt and what is its own.

    prompt      int [m], m >= 1
    max_tokens  None: that of the options
    sequence    which of the seed's sequences of random numbers it draws with; None: its place in the call
    seeds       uint64, one for each position, instead of those (for example a dump's)
    processors  run behind those of the options' shaping
    criterion   ends the text, besides what the options' stopping does
    """

    prompt: ArrayLike
    max_tokens: int | None = None
    sequence: int | None = None
    seeds: NDArray[np.uint64] | None = None
    processors: tuple[Processor, ...] = ()
    criterion: Callable[[NDArray[np.int32]], bool] | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            check_max_tokens(self.max_tokens)


def check_max_tokens(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"max_tokens: expected a positive integer, got {value!r}")


@dataclass(slots=True, kw_only=True)
class Statistics:
    """What a text has cost.

    accepted     draft tokens that each verifying pass confirmed, in order
    drafted      draft tokens (nodes) that each of them verified
    drafting_us, verifying_us  wall time of drafting and of the passes, a batch's divided by its requests
    opening_us   of drafting_us, that of the first drafts, before which a drafter reads the prompt
    prompt_us    of verifying_us, that of the prompt's pass
    """

    accepted: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    drafting_us: float = 0.0
    verifying_us: float = 0.0
    opening_us: float = 0.0
    prompt_us: float = 0.0

    @property
    def passes(self) -> int:
        """Forward passes of the target, the prompt's included."""
        return len(self.accepted) + 1

    def accepted_by_position(self) -> NDArray[np.int64]:
        """How many passes accepted at least 1, 2, .. tokens: int64 [longest acceptance]."""
        lengths = np.asarray(self.accepted, np.int64)
        return (lengths[:, None] >= np.arange(1, lengths.max(initial=0) + 1)).sum(axis=0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generation:
    """tokens int32 [n], the stop token included if that ended it; why it ended; what it cost."""

    tokens: NDArray[np.int32]
    finish: Finish
    statistics: Statistics

    __repr__ = short_repr

    @property
    def block_efficiency(self) -> float:
        """Generated tokens per pass."""
        return len(self.tokens) / self.statistics.passes

    def _repr_html_(self) -> str:
        """A row of figures, where notebooks show it."""
        cost = self.statistics
        figures = {
            "tokens": f"{len(self.tokens):,}",
            "finish": self.finish.value,
            "passes": f"{cost.passes:,}",
            "tokens per pass": f"{self.block_efficiency:.2f}",
            "accepted of drafted": f"{sum(cost.accepted):,} of {sum(cost.drafted):,}",
            "drafting": f"{cost.drafting_us / 1e3:.1f} ms",
            "passes' time": f"{cost.verifying_us / 1e3:.1f} ms",
        }
        rows = "".join(
            f"<tr>{''.join(f'<{tag}>{one}</{tag}>' for one in row)}</tr>"
            for tag, row in (("th", figures), ("td", figures.values()))
        )
        return f"<table>{rows}</table>"


class Running:
    """A request under way. `history` is the text that the target's decoder reads, `tokens` what was generated of it.

    shaping, stopping: those of the options with the request's own.
    """

    def __init__(
        self,
        index: int,
        first: NDArray[np.int64],
        max_tokens: int,
        seeds: NDArray[np.uint64],
        random: np.random.Generator,
        shaping: Shaping,
        stopping: Stopping,
    ):
        self.index = index
        self.shaping = shaping
        self.stopping = stopping
        self.seeds = seeds
        self.random = random
        self.max_tokens = max_tokens
        self.finish: Finish | None = None
        self.statistics = Statistics()
        self._text = np.empty(len(first) + max_tokens, np.int32)
        self._text[: len(first)] = first
        self._start = self._length = len(first)

    @property
    def history(self) -> NDArray[np.int32]:
        """int32 [n], a view that cannot be written through: drafters, processors and criteria are others' code."""
        view = self._text[: self._length]
        view.flags.writeable = False
        return view

    @property
    def tokens(self) -> NDArray[np.int32]:
        return self._text[self._start : self._length]

    @property
    def room(self) -> int:
        """Tokens that may still come."""
        return self.max_tokens - (self._length - self._start)

    def take(self, tokens: Sequence[int]) -> int:
        """Append tokens up to the first that ends the text, which sets `finish`; how many were taken."""
        for count, token in enumerate(tokens, 1):
            self._text[self._length] = token
            self._length += 1
            self.finish = self._ended(token)
            if self.finish:
                return count
        return len(tokens)

    def _ended(self, token: int) -> Finish | None:
        stopping = self.stopping
        if token in stopping.tokens:
            return Finish.STOP_TOKEN
        if stopping.strings and stopping.string_in(self.tokens):
            return Finish.STOP_STRING
        if stopping.criterion is not None and stopping.criterion(self.history):
            return Finish.CRITERION
        return None if self.room else Finish.LENGTH
