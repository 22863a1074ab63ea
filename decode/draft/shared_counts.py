"""Counts of running texts, which requests of one prompt or group share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.models.request_text import RequestText
from rescore.lattice.structure import State


class Behind(dict[bytes | None, _core.ContextModel]):
    """The counts of a group, behind each of its prompts; None: before any."""


class SharedCounts:
    """Begins the counts of texts behind their prompts. Those of a group, or of one prompt, share them while any of them
    is there, and a prompt counts once. Thread-safe.

    make: makes counts of no text
    """

    def __init__(self, make: Callable[[], _core.ContextModel]):
        self._make = make
        self._lock = threading.Lock()
        self._groups: WeakValueDictionary[Hashable, Behind] = WeakValueDictionary()
        self._of: WeakKeyDictionary[RequestText, Behind] = WeakKeyDictionary()

    def begin(self, texts: Sequence[RequestText]) -> None:
        """Sets the counts of texts that begin at once. Those of a text that is alone count whole, of others weakly."""
        prompts = [text.tokens[: text.prompt] for text in texts]
        groups = [prompt.tobytes() if text.group is None else text.group for text, prompt in zip(texts, prompts)]
        with self._lock:
            for text, prompt, group in zip(texts, prompts, groups):
                behind = self._groups.get(group)
                alone = behind is None and groups.count(group) == 1
                if behind is None:
                    behind = self._groups[group] = Behind({None: self._make()})
                self._of[text] = behind
                text.counts = self._begun(behind, prompt, text, alone)

    def _begun(self, behind: Behind, prompt: NDArray[np.int32], text: RequestText, alone: bool) -> _core.ContextModel:
        key = prompt.tobytes()
        if key in behind:
            return behind[key].sibling()
        counts = behind[None]
        if alone:
            behind[None] = counts.sibling()
        else:
            counts = counts.sibling()
        shown = np.isin(prompt, [*text.placeholders])
        counts.extend(np.where(shown, np.int32(-1), prompt), prompt=True)
        read_copies(counts, text.state, prompt)
        behind[key] = counts.sibling()
        return counts if alone else counts.sibling()


def read_copies(counts: _core.ContextModel, state: State | None, prompt: NDArray[np.int32]) -> None:
    """Counts what a text may copy from its prompt under its structure, each copy as a text of its own."""
    aside = counts.sibling()
    for copy in state.copies(prompt) if state else ():
        aside.begin()
        aside.extend(copy, prompt=True)
