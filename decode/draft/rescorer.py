"""Drafts of sausage lattices, rescored by n-gram models: the best token tree, the p best paths, samples.

Trees are those of a calibrated q (docs/how/calibrated-q.md), by default one in which the n-gram model and the text so
far also propose tokens that no head lists. Paths and samples have a rescored cost: that of w_1..w_T is
sum_t [ head_t * cost_t(w_t) + sum_j alpha_j,t * (-ln p_j(w_t | history)) ], after Kim et al., "Exploring and Improving
Blockwise Parallel Drafts", section 7.2; here exact, with failure arcs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.calibration import DEFAULT, Calibration, propose_trees
from rescore.decode.draft.normalised import NormalisedLattice
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.models.request_text import RequestText, last_tokens
from rescore.lattice.checked import ALL_IDS, numbers, real, text_ids, token_ids, whole
from rescore.lattice.sausage import Lattice, Sausage
from rescore.lattice.structure import Acceptor
from rescore.lattice.tree import Drafts, TokenTree, Trees
from rescore.lm.model.ngram import NGram

MERGE = "merge several into one (`rescore.merge_models`, `rescore lm merge`)"
MAX_WEIGHT = 1000.0  # at this weight, costs of some 500 nats are the greatest that searches tell from impossible


def checked_alpha(alpha: ArrayLike, models: int) -> NDArray[np.float64]:
    """alpha as [J, 1] or [J, T]; ValueError unless its weights are from 0 to MAX_WEIGHT."""
    weights = numbers(alpha, "alpha", "iuf").astype(np.float64)
    if weights.ndim == 0:
        weights = np.full((models, 1), weights)
    elif weights.ndim == 1:
        weights = weights[:, None]
    if weights.ndim != 2 or len(weights) != models:
        raise ValueError(
            f"alpha: expected a number, [J] or [J, T] for J = {models} models, got shape {list(np.shape(alpha))}"
        )
    return _within("alpha", weights)


def checked_head(head: ArrayLike) -> NDArray[np.float64]:
    """head as [1] or [T]; ValueError unless its weights are from 0 to MAX_WEIGHT."""
    weights = np.atleast_1d(numbers(head, "head", "iuf").astype(np.float64))
    if weights.ndim != 1 or not weights.size:
        raise ValueError(f"head: expected a number or [T], got shape {list(np.shape(head))}")
    return _within("head", weights)


def _within(name: str, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    if (wrong := ~((weights >= 0) & (weights <= MAX_WEIGHT))).any():
        raise ValueError(f"{name}: expected weights from 0 to {MAX_WEIGHT:g}, got {weights[wrong][0]}")
    return weights


def alpha_of_slots(alpha: NDArray[np.float64], slots: int) -> NDArray[np.float64]:
    """The result of `checked_alpha` as [J, T]."""
    if alpha.shape[1] not in (1, slots):
        raise ValueError(f"alpha: expected a weight for each of {slots} slots, got {alpha.shape[1]}")
    return np.ascontiguousarray(np.broadcast_to(alpha, (len(alpha), slots)))


_uniform = lru_cache(maxsize=4)(NGram.uniform)


class Rescorer:
    """An n-gram model, and how it is weighed against the heads; drafts trees and paths from lattices.

    models       one NGram; several, for paths and samples; or none: the heads alone
    alpha, head  weights of the models' costs (one for all, one per model [J], or one per model and slot [J, T]) and of
                 the heads' (one for all slots, or one per slot [T]), from 0 to 1000. With either, and without models,
                 q of trees is the softmax over a slot's candidates of -(rescored cost) (`Calibration.softmax`); the
                 default of `paths` and `normalise` is alpha 0.3, head 1
    calibration  weights of q (`Calibration`, from `rescore tune`); None: the defaults
    memory       texts of earlier requests, another source of q
    least        the smallest q of a whole prefix
    threads      for batches
    """

    def __init__(
        self,
        models: NGram | Sequence[NGram] = (),
        *,
        alpha: ArrayLike | None = None,
        head: ArrayLike | None = None,
        calibration: Calibration | None = None,
        memory: TextMemory | None = None,
        least: float = 0.0,
        threads: int = 1,
    ):
        models = (models,) if isinstance(models, NGram) else tuple(models)
        weighed = alpha is not None or head is not None or len(models) != 1
        if weighed and (calibration is not None or memory is not None):
            raise ValueError("calibration, memory: expected one model and neither alpha nor head beside them")
        if alpha is None and len(models) > 1:
            raise ValueError(f"alpha: expected weights of {len(models)} models, got none; or {MERGE}")
        self.vocab_size = max((model.vocab_size for model in models), default=ALL_IDS)
        self.models = tuple(model.widened(self.vocab_size) for model in models)
        self.alpha = checked_alpha(DEFAULT_ALPHA if alpha is None else alpha, len(models))
        self.head, self.threads = checked_head(1.0 if head is None else head), whole(threads, "threads")
        if memory is not None:
            memory.check(self.vocab_size)
        self.memory, self.least, self.calibration = memory, real(least, "least"), calibration or DEFAULT
        if weighed and len(models) < 2:
            self.calibration = Calibration.softmax(*self.alpha.tolist() or [[0.0]], head=self.head.tolist())
        self._given: dict[str, Any] = {"alpha": alpha, "head": head, "calibration": calibration, "memory": memory}
        self._plain_head = bool((self.head == 1).all())
        self._cores = [model.core for model in self.models]
        self._alpha_of_slots: dict[int, NDArray[np.float64]] = {}
        self._weights: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}  # of trees, by slots
        self._wide: dict[int, Rescorer] = {}  # the results of `widened`

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self._given.items() if value is not None)
        return f"Rescorer([{', '.join(map(repr, self.models))}]{given})"

    @property
    def context(self) -> int:
        """How many tokens of the history the models read, N - 1 of the longest, or the memory."""
        longest = max((model.order - 1 for model in self.models), default=0)
        return max(longest, self.memory.context if self.memory else 0)

    @property
    def reads_text(self) -> bool:
        """Whether q of trees reads the running texts."""
        return self.calibration.text is not None

    def tree_model(self) -> NGram | None:
        """The model of trees; None of the heads alone. ValueError if there are several."""
        if len(self.models) > 1:
            raise ValueError(f"trees: expected one n-gram model, got {len(self.models)}; {MERGE}")
        return self.models[0] if self.models else None

    def widened(self, vocab_size: int) -> Rescorer:
        """This rescorer for lattices and histories of a target of more ids (`NGram.widened`); the result is kept."""
        if not self.models or vocab_size == self.vocab_size:
            return self
        if vocab_size not in self._wide:
            models = [model.widened(vocab_size) for model in self.models]
            self._wide[vocab_size] = Rescorer(models, **self._given, least=self.least, threads=self.threads)
        return self._wide[vocab_size]

    def paths(self, sausage: Sausage, history: ArrayLike, p: int = 16, *, acceptor: Acceptor | None = None) -> Drafts:
        """Returns the p best distinct paths: exact, ties broken by the ranks of the candidates, first slot first.

        history   the tokens decoded so far, root token included: [n], or [B, n] with padding -1 in front for a batch
        acceptor  composed with the lattices: only paths that begin one of its texts
        """
        sausage = _arrays("paths", sausage)
        core = _core_of(acceptor)
        call, p = self._call(sausage, history), whole(p, "p")
        found = _core.best_paths(*call, paths=p, acceptor=core, threads=self.threads)
        tokens, cost, count = found if sausage.is_batch else (column[0] for column in found)
        return Drafts(tokens=tokens, cost=cost, count=count)

    def text(self, prompt: ArrayLike = ()) -> RequestText:
        """Returns a running text that begins with a prompt, for `trees`; append to it as it grows."""
        text = RequestText(text_ids(prompt, "prompt", self.vocab_size))
        text.counts = self.calibration.counts()
        text.counts.extend(text.tokens, prompt=True)
        return text

    def trees(
        self,
        sausage: Sausage | Lattice,
        history: ArrayLike | Sequence[RequestText],
        n: int = 64,
        *,
        depth: int | None = None,
        acceptor: Acceptor | None = None,
    ) -> Trees:
        """Returns the trees of the n most probable prefixes of a batch of lattices.

        history   the whole text so far, root token included: [m], or [B, m] with padding -1 in front for a batch, whose
                  tokens are counted anew as prompts where q reads them; or the running text of each lattice (`text`),
                  with what bounds it, what it is expected to be, and memory and n-gram model in place of these
        depth     most tokens of a prefix; None: n. Open trees go past the lattices' slots, where q is p
        acceptor  composed with the lattices: q is restricted to its tokens after every prefix, and renormalised
        """
        batch, model = sausage, self.tree_model()
        if not isinstance(batch, Lattice) and not _arrays("trees", batch).is_batch:
            batch = Sausage(ids=batch.ids[None], cost=batch.cost[None])
        depth = depth if depth is None else whole(depth, "depth")
        rows, texts = self._read(history, len(batch.ids))
        if model is None:  # of as many ids as there are
            model = _uniform(1 << int(max(batch.ids.max(initial=0), rows.max(initial=0))).bit_length())
        if batch.slots not in self._weights:
            self._weights[batch.slots] = self.calibration.weights(batch.slots)
        return propose_trees(
            model,
            rows,
            batch,
            self._weights[batch.slots],
            n=whole(n, "n"),
            depth=depth,
            open=self.calibration.open,
            late=self.calibration.late,
            texts=texts,
            memory=self.memory,
            structures=[acceptor.start(model.vocab_size, ())] * len(rows) if acceptor else [t.state for t in texts],
            least=self.least,
            threads=self.threads,
        )

    def _read(
        self, history: ArrayLike | Sequence[RequestText], lattices: int
    ) -> tuple[NDArray[np.int32], Sequence[RequestText]]:
        """Histories [B, m], and texts that have read all of them."""
        texts = _texts(history)
        if not texts:
            rows = self._rows(cast("ArrayLike", history), lattices)
            if self.reads_text:
                begins = np.logical_and.accumulate(rows == -1, axis=1).sum(axis=1)  # padding is in front
                texts = [self.text(row[at:]) for row, at in zip(rows, begins)]
            return rows, texts
        if len(texts) != lattices or any((text.counts is not None) != self.reads_text for text in texts):
            wanted = "with" if self.reads_text else "without"
            raise ValueError(f"history: expected the texts of {lattices} lattices {wanted} counts, got {len(texts)}")
        for text in texts:
            text.read()
        if not self.models and any(text.lm for text in texts):
            raise ValueError("history: expected texts without n-gram models, since this q reads none; leave lm out")
        return last_tokens(texts, self.context), texts

    def tree(
        self,
        sausage: Sausage,
        history: ArrayLike,
        n: int = 64,
        *,
        depth: int | None = None,
        acceptor: Acceptor | None = None,
    ) -> TokenTree:
        """Returns the tree of the n most probable prefixes of a single lattice; arguments as in `trees`.

        With 5 nodes of the worked example (`lm/model/example.py`) and alpha 1, in the order in which they are found:

            q(Lionel)              = 0.5 * 0.1 of 0.5 * 0.1 + 0.4 * 0.1                 = 0.556
            q(Lionel Messi)        = 0.556 times 0.4 * 0.8 of 0.4 * 0.8 + 0.5 * 0.2/9   = 0.537
            q(Lionel Messi scored) = 0.537 times 0.6 * 0.9 of 0.6 * 0.9 + 0.3 * 0.05    = 0.522
            q(Cristiano)           = 0.4 * 0.1 of 0.5 * 0.1 + 0.4 * 0.1                 = 0.444
            q(Cristiano Ronaldo)   = 0.444 times 0.5 * 0.8 of 0.5 * 0.8 + 0.4 * 0.2/9   = 0.435
        """
        if _arrays("tree", sausage).is_batch:
            raise TypeError("tree: expected a single sausage [T, K], got a batch; use trees")
        return self.trees(sausage, history, n, depth=depth, acceptor=acceptor)[0]

    def normalise(
        self,
        sausage: Sausage,
        history: ArrayLike,
        *,
        temperature: float = 1.0,
        acceptor: Acceptor | None = None,
    ) -> NormalisedLattice:
        """Returns the lattice, or each of a batch, as a distribution q over its drafts; `history` as in `paths`.

        q(w_1..w_T) is proportional to exp(-cost / temperature), with the cost of `paths`. temperature: 1e-6 to 1e6. The
        whole composition is expanded: ValueError beyond 2^25 arcs per batch, some 1.3 GB. acceptor: as in `paths`.
        """
        call, threads = self._call(_arrays("normalise", sausage), history), self.threads
        temperature = real(temperature, "temperature")
        core = _core.Normalised(*call, temperature=temperature, acceptor=_core_of(acceptor), threads=threads)
        return NormalisedLattice(core, ids=sausage.ids, threads=threads)

    def states(self, histories: NDArray[np.int32]) -> NDArray[np.uint32]:
        """The start states of every model, uint32 [J, B], for histories [B, n] with padding -1 in front."""
        rows = self._rows(histories)
        states = [core.start_batch(rows, self.threads) for core in self._cores]
        return np.array(states, np.uint32).reshape(len(states), len(rows))

    def _call(self, sausage: Sausage, history: ArrayLike) -> tuple[Any, ...]:
        ids, cost = (sausage.ids, sausage.cost) if sausage.is_batch else (sausage.ids[None], sausage.cost[None])
        rows = self._rows(history, len(ids))
        return self._cores, rows, ids, self._weighed(ids, cost), self._alpha(ids.shape[1])

    def _rows(self, history: ArrayLike, lattices: int | None = None) -> NDArray[np.int32]:
        """Histories as [B, n]. ValueError unless there is one for each lattice."""
        ids = token_ids(history, "history", self.vocab_size)
        rows = ids if ids.ndim == 2 else ids[None]
        if rows.ndim != 2 or lattices not in (None, len(rows)):
            raise ValueError(f"history: expected one row for each of {lattices} lattices, got shape {list(ids.shape)}")
        return rows

    def _weighed(self, ids: NDArray[np.int32], cost: NDArray[np.float32]) -> NDArray[np.float32]:
        """The heads' costs [B, T, K] times their weights; padding stays +inf."""
        if self.head.size not in (1, ids.shape[1]):
            raise ValueError(f"head: expected a weight for each of {ids.shape[1]} slots, got {self.head.size}")
        if self._plain_head:
            return cost
        listed = ids >= 0
        return np.where(listed, np.where(listed, cost, 0) * self.head.astype(np.float32)[:, None], np.float32(np.inf))

    def _alpha(self, slots: int) -> NDArray[np.float64]:
        if slots not in self._alpha_of_slots:
            self._alpha_of_slots[slots] = alpha_of_slots(self.alpha, slots)
        return self._alpha_of_slots[slots]


def _texts(history: ArrayLike | Sequence[RequestText]) -> list[RequestText]:
    given = isinstance(history, Sequence) and len(history) > 0 and isinstance(history[0], RequestText)
    return list(cast("Sequence[RequestText]", history)) if given else []


def _core_of(acceptor: Acceptor | None) -> _core.Acceptor | None:
    return acceptor.core if acceptor else None


def _arrays(call: str, sausage: Sausage) -> Sausage:
    if not isinstance(sausage, Sausage):
        raise TypeError(
            f"{call}: expected a Sausage of arrays, got {type(sausage).__name__}; make one with "
            "Sausage.from_logits or Sausage.from_topk"
        )
    return sausage
