"""Drafts of sausage lattices, rescored by n-gram models: the p best paths, the best token tree, samples.

The rescored cost of w_1..w_T is sum_t [ head_t * cost_t(w_t) + sum_j alpha_j,t * (-ln p_j(w_t | history)) ], after Kim
et al., "Exploring and Improving Blockwise Parallel Drafts", section 7.2; here exact, with failure arcs.
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
    """N-gram models and their weights; drafts paths and trees from lattices.

    models    one NGram, several, or none (the heads alone)
    alpha     weight of the models' costs: one for all, one per model [J], or one per model and slot [J, T]
    head      weight of the heads' costs, the inverse of their temperature: one for all slots, or one per slot [T]
    threads   for batches
    capacity  on a GPU, the tuples of model states that `paths` and `normalise` keep per slot (docs/use/gpu.md)

    Weights are from 0 to 1000. Lattices are arrays, or tensors (`TensorSausage`, with int32 histories). Results for
    tensors stay on their device, without synchronisation.
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
        """How many tokens of the history the models read: N - 1 of the longest."""
        return max((model.order - 1 for model in self.models), default=0)

    def on(self, device: torch.device) -> TensorRescorer:
        """Returns the rescorer of tensors on a device.

        The first call copies the models there; do not capture it in a graph.
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
        """Returns the p best distinct paths: exact, ties broken by the ranks of the candidates, first slot first.

        history    the tokens decoded so far, root token included: [n], or [B, n] with padding -1 in front for a batch
        semantics  "failure", or "epsilon": what a composition with epsilon backoff arcs gives (at most one model)
        out        drafts from a call of the same sizes, to overwrite and return
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
        """Returns the trees of the n most probable prefixes of a batch of lattices; `history` and `out` as in `paths`.

        q(w | prefix) is the softmax over the slot's candidates of -(head cost + sum_j alpha_j * (-ln p_j)).
        """
        if not isinstance(sausage, Sausage):
            _refuse_out(out)
            return self.on(sausage.device).trees(sausage, history, n)
        return self.array.trees(sausage, history, n, out)

    def tree(self, sausage: Sausage, history: ArrayLike, n: int = 64) -> TokenTree:
        """Returns the tree of the n most probable prefixes of a single lattice."""
        if not isinstance(sausage, Sausage):
            raise TypeError(
                f"tree: expected a Sausage of arrays, got {type(sausage).__name__}; use trees, "
                "whose result stays on the device"
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
        """Returns the lattice, or each of a batch, as a distribution q over its drafts; `history` as in `paths`.

        q(w_1..w_T) is proportional to exp(-cost / temperature), with the cost of `paths`; with `local`, q(w | prefix)
        is the softmax over the slot's candidates, as in `trees`. temperature: 1e-6 to 1e6. Global normalisation
        expands the whole composition: ValueError beyond 2^25 arcs per batch, some 1.3 GB.
        """
        if not isinstance(sausage, Sausage):
            return self.on(sausage.device).normalise(sausage, history, temperature=temperature, local=local)
        return self.array.normalise(sausage, history, temperature, local)

    def states(self, histories: NDArray[np.int32]) -> NDArray[np.uint32]:
        """The start states of every model, uint32 [J, B], for histories [B, n] with padding -1 in front."""
        return self.array.states(histories)


def _refuse_out(out: object) -> None:
    if out is not None:
        raise TypeError("out: expected none with tensors: torch manages the memory of results")
