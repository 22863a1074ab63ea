"""Lattices of a small model, grown level by level: it predicts after the nodes that q of all sources finds probable.

The lattice is a tree of the nodes that the model has read, with its most probable tokens after each. Where EAGLE-2 (Li
et al. 2024, arXiv 2406.16858) reads the nodes that the small model itself is surest of, here q decides, in which text
so far, n-gram model and memory are blended with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.draft.calibration import SHARES, Calibration
from rescore.decode.models.draft_step import DraftStep, DraftVocabulary, PathHeads, PathHeadsSession, top_of_heads
from rescore.decode.models.reader import Reader
from rescore.decode.models.target import Target
from rescore.lattice.checked import whole
from rescore.lattice.sausage import MAX_WIDTH, PADDING, Lattice
from rescore.lattice.tree import EMPTY, TokenTree, Trees

DEFAULT_TOP_K = 8
LEVELS = 4, 12
MODEL = Calibration(head=(1.0,), alpha=(0.1,), prior=(0.0,), floor=(-6.0,), text=SHARES, late=0.1)
"""Weights of q with a small model, fitted by tools/bench/draft_model.py (docs/results.md)."""


@dataclass(frozen=True, kw_only=True)
class ModelLattice:
    """Makes lattices from the `top_k` most probable tokens of a small model after each node that it reads.

    model       with the target's tokenizer; or a head that reads its own draft
    levels      how many nodes it reads in each pass after the one over the text: the most probable ones so far, of a
                head those whose parents it has read
    vocab_size  V of the target
    """

    model: Target | PathHeads
    vocab_size: int
    top_k: int = DEFAULT_TOP_K
    levels: tuple[int, ...] = LEVELS

    def __post_init__(self) -> None:
        whole(self.top_k, "top_k", 1, MAX_WIDTH // 2)
        for nodes in self.levels:
            whole(nodes, "levels", 1, MAX_WIDTH // 2)
        if not isinstance(self.model, PathHeads) and not self.model.trees:
            name = type(self.model).__name__
            raise ValueError(
                f"draft model: expected one that reads trees, got a {name}, which reads only chains; take one with "
                "attention alone"
            )

    @property
    def keeps_state(self) -> bool:
        """Whether it is a head, which needs the target's states after every token."""
        return isinstance(self.model, PathHeads)

    def open(self, requests: int) -> ModelLatticeSession:
        if isinstance(self.model, PathHeads):
            return ModelLatticeSession(self, self.model.open(requests), self.model.vocabulary)
        return ModelLatticeSession(self, _TextReader(self.model, self.vocab_size, max(self.levels, default=0)))


class ModelLatticeSession:
    """What predicts, opened for the requests of one call."""

    def __init__(self, lattice: ModelLattice, reader: PathHeadsSession, vocabulary: DraftVocabulary | None = None):
        self.levels, self.passed = lattice.levels, reader.tell
        self._reader, self._of = reader, partial(_of_logits, k=lattice.top_k, vocabulary=vocabulary)

    def begun(self, step: DraftStep) -> Lattice:
        return self._of(self._reader.sync(step)[:, None], [EMPTY] * len(step.texts))

    def grown(self, trees: Trees) -> Lattice:
        return self._of(*self._reader.read_trees([trees[row] for row in range(len(trees))]))


class _TextReader:
    """A small model, which reads the texts themselves."""

    def __init__(self, model: Target, vocab_size: int, ahead: int):
        self._open = partial(Reader, model, ahead=ahead, vocab_size=vocab_size)
        self._reader: Reader | None = None

    def tell(self, step: DraftStep) -> None:
        """What it has not read, it reads later."""

    def sync(self, step: DraftStep) -> Tensor:
        if self._reader is None:
            self._reader = self._open(step.histories, numbers=[text.number for text in step.texts])
        return self._reader.sync(step.texts)

    def read_trees(self, trees: Sequence[TokenTree]) -> tuple[Tensor, list[TokenTree]]:
        assert self._reader is not None, "it has read the texts"
        return self._reader.read_trees(trees), list(trees)


@torch.inference_mode()
def _of_logits(
    logits: Tensor, trees: Sequence[TokenTree], k: int, vocabulary: DraftVocabulary | None = None
) -> Lattice:
    """Of logits [B, 1 + n, D] after the root token and the nodes of trees."""
    ids, logp, _ = top_of_heads(logits, k, vocabulary)
    padding = [(0, logits.shape[1] - 1 - tree.size) for tree in trees]
    columns = [[np.pad(one, pad) for one in (tree.tokens, tree.parents)] for tree, pad in zip(trees, padding)]
    tokens, parents = torch.from_numpy(np.array(columns, np.int64)).to(logits.device).unbind(1)
    known = torch.ones_like(tokens, dtype=torch.bool)
    if vocabulary is not None:
        places = torch.searchsorted(vocabulary.ids.long(), tokens.contiguous()).clamp(max=len(vocabulary.ids) - 1)
        known, tokens = vocabulary.ids[places] == tokens, places
    rows = torch.arange(len(trees), device=logits.device)[:, None]
    surprise = logits.float().logsumexp(dim=-1)[rows, 1 + parents] - logits[rows, 1 + parents, tokens]
    return lattice_of(ids, -logp, trees, surprise.where(known, torch.inf).cpu().numpy())


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
