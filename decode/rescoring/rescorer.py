"""Drafts of sausage lattices: the p best strings, the best token tree and samples, rescored by n-gram models.

The rescored cost of w_1..w_T is sum_t [ head_t * cost_t(w_t) + sum_j alpha_j,t * (-ln p_j(w_t | history)) ], after Kim
et al., "Exploring and Improving Blockwise Parallel Drafts", section 7.2, here exact and with failure arcs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.decode.rescoring.normalised import NormalisedLattice
from rescore.lattice.drafts import Drafts
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import TokenTree
from rescore.lattice.trees import Trees
from rescore.lm.ngram import NGram

if TYPE_CHECKING:
    import torch

    from rescore.decode.rescoring.tensor_rescorer import TensorNormalised, TensorRescorer
    from rescore.lattice.tensors import TensorDrafts, TensorSausage, TensorTrees

SEMANTICS = ("failure", "epsilon")
MOST_CAPACITY = 1 << 16


class Rescorer:
    """N-gram models and their weights, ready to draft from lattices.

    models: one NGram, several, or none (the heads alone). alpha: a weight for all, one weight per model [J], or one
    per model and slot [J, T]; head: a weight of the heads' costs for all slots, or one per slot [T], the inverse of
    their temperature. Weights are finite and at least 0. threads: how many work on a batch.

    Lattices may be arrays, or tensors (`TensorSausage`, histories int32): what is found is on their device, and there
    nothing is waited for. capacity: how many tuples of the models' states `paths` and `normalise` keep in a slot on a
    GPU (docs/gpu.md).
    """

    def __init__(
        self,
        models: NGram | Sequence[NGram] = (),
        *,
        alpha: ArrayLike = 1.0,
        head: ArrayLike = 1.0,
        threads: int = 1,
        capacity: int = 2048,
    ):
        self.models: tuple[NGram, ...] = (models,) if isinstance(models, NGram) else tuple(models)
        if len({model.vocab_size for model in self.models}) > 1:
            raise ValueError(f"models: expected one vocabulary size, got {[model.vocab_size for model in self.models]}")
        self.alpha = checked_alpha(alpha, len(self.models))
        self.head = checked_head(head)
        self._plain_head = bool((self.head == 1).all())
        self.threads = threads
        if not 1 <= capacity <= MOST_CAPACITY:
            raise ValueError(f"capacity: expected 1 to {MOST_CAPACITY}, got {capacity}")
        self.capacity = capacity
        self._cores = [model.core for model in self.models]
        self._alpha_of_slots: dict[int, NDArray[np.float64]] = {}
        self._on_device: dict[torch.device, TensorRescorer] = {}

    @property
    def context(self) -> int:
        """How many tokens of the history the models look at: N - 1 of the longest."""
        return max((model.order - 1 for model in self.models), default=0)

    def on(self, device: torch.device) -> TensorRescorer:
        """What rescores tensors on a device.

        Models are copied there at the first call, which is not to be captured in a graph.
        """
        if device not in self._on_device:
            from rescore.decode.rescoring.tensor_rescorer import indexed, open_tensor_rescorer

            exact = indexed(device)
            self._on_device[device] = self._on_device.get(exact) or open_tensor_rescorer(self, exact)
            self._on_device[exact] = self._on_device[device]
        return self._on_device[device]

    @overload
    def paths(
        self,
        sausage: Sausage,
        history: ArrayLike,
        p: int = 16,
        *,
        semantics: str = "failure",
        out: Drafts | None = None,
    ) -> Drafts: ...
    @overload
    def paths(
        self, sausage: TensorSausage, history: torch.Tensor, p: int = 16, *, semantics: str = "failure"
    ) -> TensorDrafts: ...

    def paths(
        self,
        sausage: Sausage | TensorSausage,
        history: Any,
        p: int = 16,
        *,
        semantics: str = "failure",
        out: Drafts | None = None,
    ) -> Drafts | TensorDrafts:
        """The p best distinct strings, exact, ties broken by the ranks of the candidates, first slot first.

        history: the tokens decoded so far, head 1's certain token included: [n], or [B, n] with padding -1 in front
        for a batch. `semantics="epsilon"` is what a composition with epsilon backoff arcs gives (one model at most).
        out: drafts of another call of these sizes, whose arrays are written again and returned.
        """
        if semantics not in SEMANTICS:
            raise ValueError(f"semantics: expected one of {', '.join(SEMANTICS)}, got {semantics!r}")
        if not isinstance(sausage, Sausage):
            _refuse_out(out)
            return self.on(sausage.device).paths(sausage, history, p, semantics)
        if out is None:
            _expect_within("paths p", p, 1024)
            shape = sausage.ids.shape[:-2]
            out = Drafts(
                tokens=np.empty((*shape, p, sausage.slots), np.int32),
                cost=np.empty((*shape, p), np.float32),
                count=np.empty(shape, np.int32),
            )
        answer = (
            (out.tokens, out.cost, out.count)
            if sausage.is_batch
            else (out.tokens[None], out.cost[None], out.count[None])
        )
        _core.best_paths(
            *self._call(sausage, history), paths=p, epsilon=semantics == "epsilon", threads=self.threads, out=answer
        )
        return out

    @overload
    def trees(self, sausage: Sausage, history: ArrayLike, n: int = 64, *, out: Trees | None = None) -> Trees: ...
    @overload
    def trees(self, sausage: TensorSausage, history: torch.Tensor, n: int = 64) -> TensorTrees: ...

    def trees(
        self, sausage: Sausage | TensorSausage, history: Any, n: int = 64, *, out: Trees | None = None
    ) -> Trees | TensorTrees:
        """The trees of the n most probable prefixes of a batch of lattices; `history` and `out` as in `paths`.

        q(w | prefix) is the softmax over the slot's candidates of -(head cost + sum_j alpha_j * (-ln p_j)).
        """
        if not isinstance(sausage, Sausage):
            _refuse_out(out)
            return self.on(sausage.device).trees(sausage, history, n)
        if out is None:
            _expect_within("nodes", n, 4096)
            out = Trees.empty(sausage.batch_size if sausage.is_batch else 1, n)
        _core.best_tree(*self._call(sausage, history), nodes=n, threads=self.threads, out=out.columns)
        return out

    def tree(self, sausage: Sausage, history: ArrayLike, n: int = 64) -> TokenTree:
        """The tree of the n most probable prefixes of a single lattice."""
        if not isinstance(sausage, Sausage):
            raise TypeError(
                f"tree: expected a Sausage of arrays, got {type(sausage).__name__}; use trees, "
                "whose answer stays on the device"
            )
        if sausage.is_batch:
            raise TypeError("tree: expected a single sausage [T, K], got a batch; use trees")
        return self.trees(sausage, history, n)[0]

    @overload
    def normalise(
        self, sausage: Sausage, history: ArrayLike, *, temperature: float = 1.0, local: bool = False
    ) -> NormalisedLattice: ...
    @overload
    def normalise(
        self, sausage: TensorSausage, history: torch.Tensor, *, temperature: float = 1.0, local: bool = False
    ) -> TensorNormalised: ...

    def normalise(
        self, sausage: Sausage | TensorSausage, history: Any, *, temperature: float = 1.0, local: bool = False
    ) -> NormalisedLattice | TensorNormalised:
        """The lattice, or each of a batch, as a distribution q over its drafts; `history` as in `paths`.

        q(w_1..w_T) is proportional to exp(-cost / temperature), cost being that of `paths`; with `local`, q(w | prefix)
        is the softmax over the slot's candidates, as in `trees`. temperature: 1e-6 to 1e6. Global normalisation
        composes all that can be reached: ValueError beyond 2^25 arcs in the whole batch, some 1.3 GB.
        """
        if not isinstance(sausage, Sausage):
            return self.on(sausage.device).normalise(sausage, history, temperature=temperature, local=local)
        core = _core.Normalised(
            *self._call(sausage, history), temperature=temperature, local=local, threads=self.threads
        )
        return NormalisedLattice(core, ids=sausage.ids, local=local, threads=self.threads)

    def states(self, histories: NDArray[np.int32]) -> NDArray[np.uint32]:
        """The start states of every model, uint32 [J, B], for histories [B, n] with padding -1 in front."""
        states = np.empty((len(self._cores), len(histories)), np.uint32)
        for row, core in zip(states, self._cores):
            core.start_batch(histories, self.threads, row)
        return states

    def _call(self, sausage: Sausage, history: ArrayLike) -> tuple[Any, ...]:
        ids, cost = (sausage.ids, sausage.cost) if sausage.is_batch else (sausage.ids[None], sausage.cost[None])
        histories = np.ascontiguousarray(history, np.int32)
        histories = histories if histories.ndim == 2 else histories[None]
        if histories.ndim != 2 or len(histories) != len(ids):
            raise ValueError(
                f"history: expected one row for each of {len(ids)} lattices, got shape {list(np.shape(history))}"
            )
        return self._cores, histories, ids, self._weighed(ids, cost), self._alpha(ids.shape[1])

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


def _expect_within(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ValueError(f"{name}: expected 1 to {most}, got {value}")


def _refuse_out(out: object) -> None:
    if out is not None:
        raise TypeError("out: expected none, as lattices are tensors: their answers' memory is kept by torch")


def propose_trees(model: NGram, histories: NDArray[np.int32], *, slots: int, n: int, threads: int = 1) -> Trees:
    """Trees of the n most probable continuations of at most `slots` tokens under the model alone, without any head.

    histories: int32 [B, m], padding -1 in front. The control against which heads are to be measured.
    """
    ids, cost = (
        np.full((len(histories), slots, 1), -1, np.int32),
        np.full((len(histories), slots, 1), np.inf, np.float32),
    )  # no candidates
    none = np.zeros((3, slots))
    return Trees.of_core(
        _core.open_tree(
            model.core,
            histories,
            ids,
            cost,
            none[:1],
            none,
            open=True,
            texts=[],
            strength=none[0, :0],
            nodes=n,
            threads=threads,
        )
    )


def alpha_of_slots(alpha: NDArray[np.float64], slots: int) -> NDArray[np.float64]:
    """[J, T] of what `checked_alpha` gave."""
    if alpha.shape[1] not in (1, slots):
        raise ValueError(f"alpha: expected a weight for each of {slots} slots, got {alpha.shape[1]}")
    return np.ascontiguousarray(np.broadcast_to(alpha, (len(alpha), slots)))


def checked_head(head: ArrayLike) -> NDArray[np.float64]:
    """head as [1] or [T]; ValueError unless its weights are finite and at least 0."""
    weights = np.atleast_1d(np.asarray(head, np.float64))
    if weights.ndim != 1 or not weights.size:
        raise ValueError(f"head: expected a number or [T], got shape {list(np.shape(head))}")
    for value in weights:
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"head: expected finite weights of at least 0, got {value}")
    return weights


def checked_alpha(alpha: ArrayLike, models: int) -> NDArray[np.float64]:
    """alpha as [J, 1] or [J, T]; ValueError unless its weights are finite and at least 0."""
    weights = np.asarray(alpha, np.float64)
    if weights.ndim == 0:
        weights = np.full((models, 1), weights)
    elif weights.ndim == 1:
        weights = weights[:, None]
    if weights.ndim != 2 or len(weights) != models:
        raise ValueError(
            f"alpha: expected a number, [J] or [J, T] for J = {models} models, got shape {list(np.shape(alpha))}"
        )
    for value in weights.flat:
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"alpha: expected finite weights of at least 0, got {value}")
    return weights
