"""Verification rules in the decode loop: from one pass over a draft to the accepted path and one certain token more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.lattice.tree import ROOT

from .drafters.draft import Draft
from .layout import path_to
from .sampling import uniform
from .shaping import Shaping, draw


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """path: the accepted nodes from the root on; token: the certain token behind them, None where nobody has room for it."""

    path: list[int]
    token: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    """What one request's rule sees of a pass: node -1 is the certain token.

    draft    what was verified
    history  int32 [n], the text up to the certain token
    logits   [1 + n, V] of the next token, row 0 after the certain token, row 1 + i after node i
    best     [1 + n], their argmax
    room     how many tokens the text may still have
    seeds    uint64, one for each of them; empty for greedy decoding
    random   the request's own numbers, for rules that need more than one a position
    """

    draft: Draft
    history: NDArray[np.int32]
    logits: Tensor
    best: NDArray[np.int64]
    shaping: Shaping
    room: int
    seeds: NDArray[np.uint64]
    random: np.random.Generator

    def scores(self, nodes: Sequence[int]) -> Tensor:
        """Logits [m, V] after nodes, penalised and processed."""
        rows = self.logits[[1 + node for node in nodes]]
        if not self.shaping.reads_text:
            return rows
        tree = self.draft.tree
        return self.shaping.scores(rows, [np.concatenate((self.history, tree.tokens[path_to(tree, node)])) for node in nodes])

    def probabilities(self, nodes: Sequence[int]) -> Tensor:
        """The target's distributions after nodes, float64 [m, V]."""
        return self.shaping.probabilities(self.scores(nodes))


class Verifier(Protocol):
    """A rule at work on one request; it may remember what it did."""

    def verify(self, view: View) -> Verdict: ...


class Rule(Protocol):
    """guarantee: what the text is. drawn: whether it wants drafts drawn from q."""

    guarantee: str
    drawn: bool

    def open(self) -> Verifier: ...


class Greedy:
    """The longest path that the target's most probable tokens take."""

    guarantee = "the target's greedy text, token for token (equal arithmetic)"
    drawn = False

    def open(self) -> Greedy:
        return self

    def verify(self, view: View) -> Verdict:
        if view.shaping.reads_text:
            return _follow(view, lambda node, depth: int(view.scores([node])[0].argmax()))
        return _follow(view, lambda node, depth: int(view.best[1 + node]))


class Matching:
    """The longest path that the tokens drawn from the target take, each with the number of its own position.

    The draw never looks at the draft, so the text depends on the seed alone: not on drafts, trees, or batches.
    """

    guarantee = "the target's distribution; the same text whatever is drafted"
    drawn = False

    def open(self) -> Matching:
        return self

    def verify(self, view: View) -> Verdict:
        numbers = torch.from_numpy(uniform(view.seeds))

        def drawn(node: int, depth: int) -> int:
            return int(draw(view.probabilities([node]), numbers[depth : depth + 1].to(view.logits.device)))

        return _follow(view, drawn)


def _follow(view: View, token_after: Callable[[int, int], int]) -> Verdict:
    """Down the tree while the target's token after a node (and its depth) is one of its children."""
    tree = view.draft.tree
    children = {(parent, token): node for node, (parent, token) in enumerate(zip(tree.parents.tolist(), tree.tokens.tolist()))}
    node = ROOT
    path: list[int] = []
    while len(path) < view.room:
        token = token_after(node, len(path))
        if (node, token) not in children:
            return Verdict(path=path, token=token)
        node = children[node, token]
        path.append(node)
    return Verdict(path=path, token=None)
