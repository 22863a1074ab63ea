"""A bounded store of texts, such as those of earlier requests, which all drafters of a process may share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.decode.draft.calibration import Share, Shares, counts_of
from rescore.lattice.atomic import atomic_file
from rescore.lattice.checked import text_ids, validate, whole
from rescore.lattice.mapped import map_npy

MAX_TOKENS = 1 << 20  # tokens, of some 150 bytes each
MEMORY_SHARES: tuple[Share, ...] = (
    (-0.21, -0.09, -1.7),
    (-3.24, 0.02, -0.32),
    (-2.59, 0.36, -1.09),
    (-4.12, 0.95, -0.45),
    (-1.78, 0.06, -1.99),
    (-1.18, 1.04, -1.01),
)
"""Of contexts of 0, 1, .. tokens; fitted by tools/bench/fit_shares.py. Longer contexts add nothing but memory."""
CHUNK = 1024  # tokens counted per lock; bounds how long searches wait


class TextMemory:
    """Texts of one vocabulary, at most `most` tokens. When full, it drops about the older half at once. Threads may
    add, search and save concurrently.

    vocab_size  of the target, or fewer: text is remembered between the ids beyond
    end_of_text the token that ends a text; separates texts in a file
    most        tokens, at least 2
    shares      of the memory's counts against the n-gram model, for every order (`Calibration.text`)
    frozen      read-only: `add` raises, and decoded texts are not remembered
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        end_of_text: int,
        most: int = MAX_TOKENS,
        shares: tuple[Share, ...] = MEMORY_SHARES,
        frozen: bool = False,
    ):
        validate(shares, Shares, "shares")
        self.end_of_text = whole(end_of_text, "end_of_text", 0, vocab_size - 1)
        self.most = whole(most, "most", 2, 1 << 30)
        self.vocab_size, self.frozen = vocab_size, frozen
        self.shares = shares
        self._lock = threading.Lock()
        self._texts: list[NDArray[np.int32]] = []
        # The later half is counted a second time, so that it is ready when the earlier half is dropped.
        self._all, self._later = self._empty(), self._empty()
        self._early = 0  # texts that are not among the later ones

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles remember the same texts, and go on by themselves."""
        empty = partial(
            TextMemory, vocab_size=self.vocab_size, end_of_text=self.end_of_text, most=self.most, shares=self.shares
        )
        return empty, (), {"texts": self.texts(), "frozen": self.frozen}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for text in state["texts"]:
            self.add(text)
        self.frozen = state["frozen"]

    def __repr__(self) -> str:
        return f"TextMemory({self.size:,} of {self.most:,} tokens{', frozen' if self.frozen else ''})"

    @property
    def context(self) -> int:
        """How many tokens before a position are read."""
        return len(self.shares) - 1

    @property
    def counts(self) -> _core.ContextModel:
        """The counts to search; replaced by others when texts are dropped."""
        return self._all

    @property
    def bytes(self) -> int:
        """Memory in bytes, texts included."""
        return self._all.bytes + self._later.bytes + 4 * self._all.size

    @property
    def size(self) -> int:
        """Number of tokens."""
        return self._all.size

    def check(self, vocab_size: int) -> None:
        """ValueError if it may hold ids that a target of this many lacks."""
        if self.vocab_size > vocab_size:
            raise ValueError(
                f"memory: expected texts of at most the target's {vocab_size} ids, got one of {self.vocab_size}; "
                "remember each target's texts by themselves"
            )

    def texts(self) -> list[NDArray[np.int32]]:
        """The stored texts, oldest first."""
        with self._lock:
            return list(self._texts)

    def add(self, tokens: ArrayLike) -> None:
        """Adds a text [n] of tokens, truncated to its last `most // 2`. An empty text adds nothing."""
        text = text_ids(tokens, "tokens", self.vocab_size)
        if self.frozen:
            raise ValueError("add: this memory is frozen; open it with frozen=False")
        if text.size:
            with self._lock:
                self._count(text[-(self.most // 2) :])

    def remember(self, history: NDArray[np.int32], start: int) -> None:
        """Adds a text that has ended, int32 [n], with the end of its prompt, its first `start` tokens; nothing if
        frozen. Ids beyond the vocabulary divide it into texts of their own.
        """
        if not self.frozen:
            text = history[max(0, start - self.context) :]
            unknown = np.flatnonzero(text >= self.vocab_size)
            for part in np.split(text, np.sort(np.concatenate((unknown, unknown + 1)))):
                self.add(part[part < self.vocab_size])

    def _count(self, text: NDArray[np.int32]) -> None:
        if self._all.size + len(text) > self.most:
            self._texts = self._texts[self._early :]
            self._all, self._later, self._early = self._later, self._empty(), len(self._texts)
        late = self._all.size + len(text) > self.most // 2
        self._early += not late
        self._texts.append(text)
        for counts in (self._all, self._later) if late else (self._all,):
            counts.begin()
            for at in range(0, len(text), CHUNK):
                counts.extend(text[at : at + CHUNK])

    def remove(self, forget: Callable[[NDArray[np.int32]], bool]) -> int:
        """Removes the texts, each int32 [n], of which `forget` says so, and counts the others anew; returns how many.
        Texts that end meanwhile wait.
        """
        with self._lock:
            kept = [text for text in self._texts if not forget(text)]
            removed = len(self._texts) - len(kept)
            if removed:
                self._texts, self._all, self._later, self._early = [], self._empty(), self._empty(), 0
                for text in kept:
                    self._count(text)
        return removed

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the texts atomically as a flat .npy of ids, each text followed by `end_of_text`; `rescore lm build`
        reads it too.
        """
        texts = self.texts()
        parts = [
            part for text in texts for part in (text[: len(text) - (text[-1] == self.end_of_text)], [self.end_of_text])
        ]
        with atomic_file(path) as file:
            np.save(file, np.concatenate(parts, dtype=np.int32) if parts else np.empty(0, np.int32))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        vocab_size: int,
        end_of_text: int,
        most: int = MAX_TOKENS,
        shares: tuple[Share, ...] = MEMORY_SHARES,
        frozen: bool = False,
    ) -> TextMemory:
        """Opens a file of texts and keeps the last `most` tokens. ValueError unless the file holds ids of the
        vocabulary.
        """
        memory = cls(vocab_size=vocab_size, end_of_text=end_of_text, most=most, shares=shares)
        ids = map_npy(Path(path))
        last = text_ids(ids[max(0, len(ids) - most) :], str(path), vocab_size, "texts of another vocabulary")
        for text in np.split(last, np.flatnonzero(last == end_of_text) + 1):
            memory.add(text)
        memory.frozen = frozen
        return memory

    def _empty(self) -> _core.ContextModel:
        return counts_of(self.shares)
