"""Drafters with scripted drafts."""

from collections.abc import Callable, Sequence

import numpy as np

from rescore.decode.verify.draft import Draft
from rescore.lattice.tree import TokenTree


class Scripted:
    """Drafts `propose(history)` int [p, T] (padding -1) of each request, merged by prefix and cut to the room."""

    drawn = 0

    def __init__(self, propose: Callable[[np.ndarray], Sequence]):
        self.of_history = propose

    def open(self, prompts, shaping):
        return self

    def propose(self, step):
        drafts = [np.array(self.of_history(history), np.int32) for history in step.histories]
        return [Draft(tree=TokenTree.from_drafts(rows).within(room)) for rows, room in zip(drafts, step.room)]
