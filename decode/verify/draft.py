"""A draft to verify, the distribution that it was drawn from, and the target's logits after it: what a rule reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.verify.sampling import sample
from rescore.decode.verify.shaping import INVALID, UNDECIDED, Shaping
from rescore.lattice.short_repr import short_repr
from rescore.lattice.tree import TokenTree

if TYPE_CHECKING:
    from torch import Tensor


class DraftDistribution(Protocol):
    """The draft distribution q."""

    def rows(self, nodes: Sequence[int]) -> Tensor:
        """q(. | node's path), float64 [m, V], for nodes of the draft's tree; -1 is the root token."""

    def after(self, tokens: Sequence[int]) -> Tensor:
        """q(. | tokens after the root token), float64 [V], for prefixes that could be drafted, whether they were or
        not.
        """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A tree to verify and, for drawn drafts, how it was drawn.

    tree          one chain, several merged by prefix, or the most probable prefixes; may be empty
    distribution  None for a deterministic draft
    draws         for drawn drafts, the node of every draw, in order, with a node's draws after its parent's first one.
                  A chain's are 0, 1, ..; a token drawn twice after the same prefix is one node that occurs twice
    rested        whether it is empty because a plain pass is expected to be faster
    """

    tree: TokenTree
    distribution: DraftDistribution | None = None
    draws: tuple[int, ...] = ()
    rested: bool = False

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredDraft:
    """The result of a pass over a draft, for one request; node -1 is the root token.

    draft    the draft that was verified
    history  int32 [n], the text up to the root token
    logits   [1 + n, V] of the next token, row 0 after the root token, row 1 + i after node i
    chosen   int64 [1 + n], the target's own tokens: the most probable, or drawn (`Drawing`); None: computed row by row
             on demand
    seeds    uint64, one for each token that the text may still have; empty for greedy decoding
    random   the request's own generator, for rules that need more than one number per position
    permits  where all that processors do is to leave out tokens: whether one may follow after drafted ones
    """

    draft: Draft
    history: NDArray[np.int32]
    logits: Tensor
    chosen: NDArray[np.int64] | None
    shaping: Shaping
    seeds: NDArray[np.uint64]
    random: np.random.Generator
    permits: Callable[[Sequence[int], int], bool] | None = None

    def scores(self, nodes: Sequence[int]) -> Tensor:
        """Logits [m, V] after nodes, with penalty and processors applied."""
        rows = self.logits[[1 + node for node in nodes]]
        if not self.shaping.reads_text:
            return rows
        tree = self.draft.tree
        return self.shaping.scores(
            rows, [np.concatenate((self.history, tree.tokens[tree.path_to(node)])) for node in nodes]
        )

    def probabilities(self, nodes: Sequence[int]) -> Tensor:
        """The target's distributions after nodes, float64 [m, V], on the host: a rule reads them value by value."""
        return self.shaping.probabilities(self.scores(nodes)).cpu()

    def best_token(self, node: int) -> int:
        """The target's most probable token after a node; ValueError if its logits are invalid."""
        if self.permits is not None:  # the greatest logit, if its token may follow, is that of those that may
            row = 1 + node
            token = int(best_tokens(self.logits[[row]])[0] if self.chosen is None else self.chosen[row])
            if token != INVALID and self.permits(self.draft.tree.tokens[self.draft.tree.path_to(node)].tolist(), token):
                return token
        return self._token(node, lambda: int(best_tokens(self.scores([node]))[0]))

    def drawn_token(self, node: int, uniform: float) -> int:
        """The token that is drawn after a node with a number in [0, 1); ValueError if its logits are invalid."""
        return self._token(node, lambda: int(sample(self.probabilities([node])[0], uniform)))

    def _token(self, node: int, computed: Callable[[], int]) -> int:
        token = UNDECIDED if self.chosen is None or self.shaping.reads_text else int(self.chosen[1 + node])
        token = computed() if token == UNDECIDED else token
        if token == INVALID:
            position = len(self.history) + (int(self.draft.tree.depths[node]) if node >= 0 else 0)
            raise ValueError(
                f"logits of position {position}: expected numbers or -inf, at least one number, got NaN, "
                "+inf or only -inf; check the model's weights, their dtype and the logits processors"
            )
        return token

    def chain(self) -> tuple[Tensor, Tensor, NDArray[np.int32], NDArray[np.float64]]:
        """p [g + 1, V], q [g, V], draft [g] and uniforms [g + 1], for the rules of single drawn chains."""
        tree = self.draft.tree
        if not tree.is_chain:
            raise ValueError(
                "draft: expected one chain, which token and block verification test, got a tree with branches; "
                "draw 1 path, or verify with RecursiveRejection"
            )
        nodes = range(-1, tree.size)
        p = self.probabilities(nodes)
        q = self.distribution.rows(nodes[:-1]).cpu() if tree.size else p[:0]
        return p, q, tree.tokens, self.random.random(tree.size + 1)

    @property
    def distribution(self) -> DraftDistribution:
        """q of a drawn draft."""
        assert self.draft.distribution is not None, "drawn drafts come with their distribution"
        return self.draft.distribution


def best_tokens(scores: Tensor) -> NDArray[np.int64]:
    """The most probable token of each row of scores [..., V], int64 [...]; INVALID where it has NaN, +inf or only
    -inf.
    """
    import torch

    from rescore.lattice.tensors import logit_rows

    if scores.device.type == "cpu" and scores.dtype != torch.float64:
        return _core.best_tokens(logit_rows(scores)).reshape(scores.shape[:-1])
    found = scores.argmax(dim=-1)
    return torch.where(scores.gather(-1, found[..., None])[..., 0].isfinite(), found, INVALID).cpu().numpy()
