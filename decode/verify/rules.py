"""Verification rules in the decode loop: what a pass over a draft says of one request (decode/verify has the rules
themselves).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.drafters.drafter import Draft, Law
from rescore.decode.loop.layout import is_chain, path_to
from rescore.decode.verify import block, greedy, greedy_block, matching, recursive, token
from rescore.decode.verify.modification import Modified, Stack
from rescore.decode.verify.sample import sample
from rescore.decode.verify.sampling import uniform
from rescore.decode.verify.shaping import Shaping
from rescore.decode.verify.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    """What one request's rule sees of a pass: node -1 is the certain token.

    draft    what was verified
    history  int32 [n], the text up to the certain token
    logits   [1 + n, V] of the next token, row 0 after the certain token, row 1 + i after node i
    best     int64 [1 + n], `best_tokens` of them; of none where text is drawn
    seeds    uint64, one for each token that the text may still have; empty for greedy decoding
    random   the request's own numbers, for rules that need more than one a position
    """

    draft: Draft
    history: NDArray[np.int32]
    logits: Tensor
    best: NDArray[np.int64]
    shaping: Shaping
    seeds: NDArray[np.uint64]
    random: np.random.Generator

    def scores(self, nodes: Sequence[int]) -> Tensor:
        """Logits [m, V] after nodes, penalised and processed."""
        rows = self.logits[[1 + node for node in nodes]]
        if not self.shaping.reads_text:
            return rows
        tree = self.draft.tree
        return self.shaping.scores(
            rows, [np.concatenate((self.history, tree.tokens[path_to(tree, node)])) for node in nodes]
        )

    def probabilities(self, nodes: Sequence[int]) -> Tensor:
        """The target's distributions after nodes, float64 [m, V]."""
        return self.shaping.probabilities(self.scores(nodes))

    def chain(self) -> tuple[Tensor, Tensor, NDArray[np.int32], NDArray[np.float64]]:
        """p [g + 1, V], q [g, V], draft [g] and uniforms [g + 1], for the rules of one drawn chain."""
        tree = self.draft.tree
        if not is_chain(tree):
            raise ValueError(
                "draft: expected one chain, which token and block verification test, got a tree with branches; "
                "draw 1 path, or verify with RecursiveRejection"
            )
        nodes = range(-1, tree.size)
        p = self.probabilities(nodes)
        q = self.law.rows(nodes[:-1]) if tree.size else p[:0]
        return p, q, tree.tokens, self.random.random(tree.size + 1)

    @property
    def law(self) -> Law:
        assert self.draft.law is not None, "drawn drafts come with their law"
        return self.draft.law


class Verifier(Protocol):
    """A rule at work on one request; it may remember what it did."""

    def verify(self, view: View) -> Verdict: ...


class Rule(Protocol):
    """guarantee: what the text is. drawn: whether it wants drafts drawn from q."""

    guarantee: str
    drawn: bool

    def open(self) -> Verifier: ...


class _Stateless(ABC):
    """A rule that remembers nothing: one verifier, itself, serves all requests."""

    def open(self) -> Verifier:
        return self

    @abstractmethod
    def verify(self, view: View) -> Verdict: ...


class Greedy(_Stateless):
    """The longest path that the target's most probable tokens take."""

    guarantee = greedy.GUARANTEE
    drawn = False

    def verify(self, view: View) -> Verdict:
        return greedy.follow(view.draft.tree, lambda node: _best(view, node))


def best_tokens(scores: Tensor) -> Tensor:
    """The most probable token of each row of scores [..., V], int64 [...]; -1 where NaN, +inf or only -inf
    leaves none.
    """
    best = scores.argmax(dim=-1)
    return torch.where(scores.gather(-1, best[..., None])[..., 0].isfinite(), best, -1)


def _best(view: View, node: int) -> int:
    token = int(best_tokens(view.scores([node]))) if view.shaping.reads_text else int(view.best[1 + node])
    if token < 0:
        position = len(view.history) + (int(view.draft.tree.depths[node]) if node >= 0 else 0)
        raise ValueError(
            f"logits of position {position}: expected numbers or -inf, at least one number, got NaN, "
            "+inf or only -inf; are the weights whole and their dtype wide enough, and what do processors do?"
        )
    return token


class Matching(_Stateless):
    """The longest path that the tokens drawn from the target take, each with the number of its own position."""

    guarantee = matching.GUARANTEE
    drawn = False

    def verify(self, view: View) -> Verdict:
        depths = view.draft.tree.depths
        # A token behind the last for which there is room has no number of its own, and nobody will see it.
        numbers = np.append(uniform(view.seeds), 0.0)

        def drawn(node: int) -> int:
            return int(sample(view.probabilities([node])[0], float(numbers[depths[node] if node >= 0 else 0])))

        return greedy.follow(view.draft.tree, drawn)


class TokenVerification(_Stateless):
    """Each drawn token is tested by itself (Leviathan et al. 2023, Chen et al. 2023)."""

    guarantee = token.GUARANTEE
    drawn = True

    def verify(self, view: View) -> Verdict:
        return token.verify(*view.chain())


class BlockVerification(_Stateless):
    """The drawn tokens are tested together (Sun et al. 2025): the default for drawn chains."""

    guarantee = block.GUARANTEE
    drawn = True

    def verify(self, view: View) -> Verdict:
        return block.verify(*view.chain())


class GreedyBlockVerification:
    """The most that one block can keep; the positions that it leaves are decoded with a modified target (Sun et al.

    2025, appendix C).
    """

    guarantee = greedy_block.GUARANTEE
    drawn = True

    def open(self) -> Verifier:
        return _GreedyBlock()


class _GreedyBlock:
    def __init__(self) -> None:
        self.stack: Stack = ()

    def verify(self, view: View) -> Verdict:
        p, q, draft, uniforms = view.chain()
        target = Modified.along(self.stack, p, draft)
        verdict = greedy_block.verify(target.p, q, draft, uniforms)
        # Also of an empty draft, which has no law: what earlier blocks left moves on.
        self.stack = target.after(verdict, q, lambda text: view.law.after(text))
        return verdict


class RecursiveRejection(_Stateless):
    """Several drafts, merged to a tree: the children of a node are tested one after the other (Miao et al. 2024).

    siblings: 'independent' of drafts drawn from q, 'fixed' for deterministic trees.
    """

    guarantee = recursive.GUARANTEE

    def __init__(self, siblings: recursive.Siblings = "independent"):
        self.siblings = siblings
        self.drawn = siblings != "fixed"

    def verify(self, view: View) -> Verdict:
        tree = view.draft.tree
        p = view.probabilities(range(-1, tree.size))
        if not self.drawn or not tree.size:
            return recursive.verify(p, tree, view.random.random(tree.size + 1), siblings="fixed")
        q, inner = torch.zeros_like(p), sorted(set(tree.parents.tolist()))
        q[[1 + node for node in inner]] = view.law.rows(inner)
        draws = view.draft.draws
        return recursive.verify(p, tree, view.random.random(len(draws) + 1), siblings=self.siblings, q=q, draws=draws)
