"""Drafts of sausage lattices: the p best strings, the best token tree and samples, rescored by n-gram models.

The rescored cost of w_1..w_T is sum_t [ head_t * cost_t(w_t) + sum_j alpha_j,t * (-ln p_j(w_t | history)) ], after Kim
et al., "Exploring and Improving Blockwise Parallel Drafts", section 7.2, here exact and with failure arcs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.decode.rescoring.array_rescorer import ArrayRescorer
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
    their temperature. Weights are from 0 to 1000. threads: how many work on a batch.

    Lattices may be arrays, or tensors (`TensorSausage`, histories int32): what is found is on their device, and there
    nothing is waited for. capacity: how many tuples of the models' states `paths` and `normalise` keep in a slot on a
    GPU (docs/use/gpu.md).
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
        models = (models,) if isinstance(models, NGram) else models
        self.array = ArrayRescorer(models, alpha=alpha, head=head, threads=threads)
        self.models, self.alpha, self.head, self.threads = self.array.models, self.array.alpha, self.array.head, threads
        if not 1 <= capacity <= MOST_CAPACITY:
            raise ValueError(f"capacity: expected 1 to {MOST_CAPACITY}, got {capacity}")
        self.capacity = capacity
        self._on_device: dict[torch.device, TensorRescorer] = {}

    def __repr__(self) -> str:
        models = ", ".join(map(repr, self.models))
        return f"Rescorer([{models}], alpha={self.alpha.tolist()}, head={self.head.tolist()})"

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
            if exact not in self._on_device:
                self._on_device[exact] = open_tensor_rescorer(self.array, exact, self.capacity)
            self._on_device[device] = self._on_device[exact]
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

        history: the tokens decoded so far, head 1's root token included: [n], or [B, n] with padding -1 in front
        for a batch. `semantics="epsilon"` is what a composition with epsilon backoff arcs gives (one model at most).
        out: drafts of another call of these sizes, whose arrays are written again and returned.
        """
        if semantics not in SEMANTICS:
            raise ValueError(f"semantics: expected one of {', '.join(SEMANTICS)}, got {semantics!r}")
        if not isinstance(sausage, Sausage):
            _refuse_out(out)
            return self.on(sausage.device).paths(sausage, history, p, semantics)
        return self.array.paths(sausage, history, p, semantics, out)

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
        return self.array.trees(sausage, history, n, out)

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
        return self.array.normalise(sausage, history, temperature, local)

    def states(self, histories: NDArray[np.int32]) -> NDArray[np.uint32]:
        """The start states of every model, uint32 [J, B], for histories [B, n] with padding -1 in front."""
        return self.array.states(histories)


def _refuse_out(out: object) -> None:
    if out is not None:
        raise TypeError("out: expected none, as lattices are tensors: their answers' memory is kept by torch")
