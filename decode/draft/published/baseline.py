"""Drafts with a published method, which keeps what it needs of one request's text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Proposed, Proposing
from rescore.decode.models.draft_step import DraftStep, LastPass, Read
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree, Trees


class Method(ABC):
    """What a published method keeps of the text of one request.

    published    nodes that it drafts, at most; None: of its own size
    predictions  of the target, that it reads after each token
    """

    published: ClassVar[int | None]
    predictions: ClassVar[int] = 0

    @abstractmethod
    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        """The tree of at most n nodes after a history; n None: of the method's own size. read, last: of the step."""


class BaselineDrafter:
    """Drafts the trees of a method, of at most `nodes` nodes; None: as many as published."""

    drawn = 0

    def __init__(self, method: type[Method], nodes: int | None = None):
        self.method, self.nodes = method, nodes or method.published

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> Proposing:
        return Proposing(partial(self._draft, [self.method() for _ in prompts]))

    def _draft(self, methods: list[Method], step: DraftStep) -> Proposed:
        reads: Sequence[Read | None] = [None] * len(step.texts)
        if self.method.predictions:
            assert step.predictions is not None, "whoever runs a drafter gives it the predictions"
            reads = step.predictions(self.method.predictions)
        n = self.nodes and (step.nodes or self.nodes)
        trees = []
        for place, (text, read) in enumerate(zip(step.texts, reads)):
            last = step.last[place] if step.last else None
            trees.append(methods[text.number].draft(text.tokens, n, read, last))
        return Trees.joined(trees)
