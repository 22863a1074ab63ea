"""When a text ends: stop tokens, stop strings, criteria."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """What ends a text; checked after every token, also within an accepted draft.

    tokens     ids that end it
    strings    strings that end it; the token that completes one is the last
    decode     ids -> text, needed for strings
    criterion  called with the whole text, prompt included; true ends it
    """

    tokens: frozenset[int] = frozenset()
    strings: tuple[str, ...] = ()
    decode: Callable[[Sequence[int]], str] | None = None
    criterion: Callable[[NDArray[np.int32]], bool] | None = None

    def __post_init__(self) -> None:
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
