"""Lattices of a small model, grown level by level: it predicts after the nodes that q of all sources finds probable.

The lattice is a tree of the nodes that the model has read, with its most probable tokens after each. Where EAGLE-2 (Li
et al. 2024, arXiv 2406.16858) reads the nodes that the small model itself is surest of, here q decides, in which text
so far, n-gram model and memory are blended with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.draft.calibration import SHARES, Calibration
from rescore.decode.draft.drafter import EMPTY
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.reader import Reader
from rescore.decode.models.target import Target
from rescore.lattice.checked import whole
from rescore.lattice.sausage import MAX_WIDTH, PADDING, Lattice
from rescore.lattice.top import top_of_logits
from rescore.lattice.tree import TokenTree, Trees

DEFAULT_TOP_K = 8
LEVELS = 4, 12
MODEL = Calibration(head=(1.0,), alpha=(0.3,), prior=(0.0,), floor=(-6.0,), text=SHARES)
"""Weights of q with a small model; not fitted yet."""


@dataclass(frozen=True, kw_only=True)
class ModelLattice:
    """Makes lattices from the `top_k` most probable tokens of a small model after each node that it reads.

    model       with the target's tokenizer
    levels      how many nodes it reads in each pass after the one over the text: the most probable ones so far
    vocab_size  V of the target
    """

    model: Target
    vocab_size: int
    top_k: int = DEFAULT_TOP_K
    levels: tuple[int, ...] = LEVELS

    def __post_init__(self) -> None:
        whole(self.top_k, "top_k", 1, MAX_WIDTH // 2)
        for nodes in self.levels:
            whole(nodes, "levels", 1, MAX_WIDTH // 2)

    def open(self, requests: int) -> ModelLatticeSession:
        return ModelLatticeSession(self)


class ModelLatticeSession:
    """The small model's cache of the requests of one call."""

    def __init__(self, lattice: ModelLattice):
        self.lattice, self.levels = lattice, lattice.levels
        self._reader: Reader | None = None

    def begun(self, step: DraftStep) -> Lattice:
        """The tokens that the model predicts after the texts."""
        if self._reader is None:
            model, ahead = self.lattice.model, max(self.levels, default=0)
            if not model.trees:
                name = type(model).__name__
                raise ValueError(f"{name}: expected a small model that reads trees, got one that reads only chains")
            numbers, vocab_size = [text.number for text in step.texts], self.lattice.vocab_size
            self._reader = Reader(model, step.histories, numbers=numbers, ahead=ahead, vocab_size=vocab_size)
        return self._of(self._reader.sync(step.texts)[:, None], [EMPTY] * len(step.texts))

    def grown(self, trees: Trees) -> Lattice:
        """The tokens that it predicts after the texts and after each node."""
        assert self._reader is not None, "it has read the texts"
        rows = [trees[b] for b in range(len(trees))]
        return self._of(self._reader.read_trees(rows), rows)

    @torch.inference_mode()
    def _of(self, logits: Tensor, trees: Sequence[TokenTree]) -> Lattice:
        """Of logits [B, 1 + n, V]."""
        ids, logp, _ = top_of_logits(logits, self.lattice.top_k)
        padding = [(0, logits.shape[1] - 1 - tree.size) for tree in trees]
        columns = [[np.pad(one, pad) for one in (tree.tokens, tree.parents)] for tree, pad in zip(trees, padding)]
        tokens, parents = torch.from_numpy(np.array(columns, np.int64)).to(logits.device).unbind(1)
        rows = torch.arange(len(trees), device=logits.device)[:, None]
        surprise = logits.float().logsumexp(dim=-1)[rows, 1 + parents] - logits[rows, 1 + parents, tokens]
        return lattice_of(ids, -logp, trees, surprise.cpu().numpy())


def lattice_of(
    ids: NDArray[np.int32], cost: NDArray[np.float32], trees: Sequence[TokenTree], surprise: NDArray[np.float32]
) -> Lattice:
    """Lattices whose states are the root and the nodes of trees, from the k best tokens [B, 1 + n, k] after each state,
    in order of rank, with their costs.

    surprise  cost of each node's token after its parent [B, n]. A node that is not among the k best has an arc more, or
              none where the cost is infinite
    """
    k = ids.shape[-1]
    shape = (*ids.shape[:2], k + max(tree.size for tree in trees))
    tokens, costs = np.full(shape, PADDING, np.int32), np.full(shape, np.inf, np.float32)
    tokens[..., :k], costs[..., :k] = ids, cost
    after, used = np.full(shape, -1, np.int32), np.full(ids.shape[:2], k)
    for row, tree in enumerate(trees):
        for node, (token, parent) in enumerate(zip(tree.tokens.tolist(), tree.parents.tolist())):
            state = 1 + parent
            found = np.flatnonzero(ids[row, state] == token)
            at = int(found[0]) if len(found) else int(used[row, state])
            if not len(found):
                if not np.isfinite(surprise[row, node]):  # the model lacks the token
                    continue
                used[row, state] += 1
                tokens[row, state, at], costs[row, state, at] = token, surprise[row, node]
            after[row, state, at] = 1 + node
    return Lattice(ids=tokens, cost=costs, next=after)
