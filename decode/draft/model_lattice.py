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
    top_k: int = 8
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
        """Of logits [B, 1 + n, V]. A node whose token is not among the k best after its parent has an arc more."""
        k = self.lattice.top_k
        ids, logp, _ = top_of_logits(logits, k)
        shape = (*ids.shape[:2], k + max(tree.size for tree in trees))
        tokens, cost = np.full(shape, PADDING, np.int32), np.full(shape, np.inf, np.float32)
        tokens[..., :k], cost[..., :k] = ids, -logp
        after = np.full(shape, -1, np.int32)
        total = logits.float().logsumexp(dim=-1)
        used = np.full(ids.shape[:2], k)
        for row, tree in enumerate(trees):
            for node, (token, parent) in enumerate(zip(tree.tokens.tolist(), tree.parents.tolist()), 1):
                state = 1 + parent
                found = np.flatnonzero(tokens[row, state] == token)
                at = int(found[0]) if len(found) else int(used[row, state])
                if not len(found):
                    surprise = float(total[row, state] - logits[row, state, token])
                    if not np.isfinite(surprise):  # the model lacks the token
                        continue
                    used[row, state] += 1
                    tokens[row, state, at], cost[row, state, at] = token, surprise
                after[row, state, at] = node
        return Lattice(ids=tokens, cost=cost, next=after)
