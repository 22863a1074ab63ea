"""A lattice as a distribution over drafts: to sample drafts from, and to ask for q by a lossless verification.

Globally, q(w_1..w_T) is proportional to exp(-cost / temperature), with the rescored cost of rescorer.py: the
composition's weights are pushed in the log semiring, so that q(w | prefix) takes into account what may follow. Locally,
q(w | prefix) is the softmax over the slot's candidates alone. docs/how/pushing.md compares them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.lattice.drafts import SampledDrafts
from rescore.lattice.token_ids import token_ids
from rescore.lattice.tree import TokenTree
from rescore.lattice.trees import Trees


class NormalisedLattice:
    """q over the drafts of one sausage [T, K] or of a batch [B, T, K]; `Rescorer.normalise` makes it.

    It may be asked as often as one likes, from several threads. What is said here of [B, ...] is without B for a single
    sausage.
    """

    def __init__(self, core: _core.Normalised, *, ids: NDArray[np.int32], local: bool, threads: int):
        self.ids = ids
        self.local = local
        self.threads = threads
        self._core = core

    @property
    def log_mass(self) -> NDArray[np.float64]:
        """ln of the sum of exp(-cost / temperature) over all drafts, float64 [B]; -inf where no draft is possible."""
        if self.local:
            raise ValueError("log_mass: a lattice that is normalised locally has none; normalise with local=False")
        return self._of_batch(self._core.log_mass)

    @property
    def states(self) -> NDArray[np.int64]:
        """Nodes of the composition, int64 [B]: the distinct (slot, states of the models) that are reached, with one
        model those too that these back off to; ValueError if normalised locally.
        """
        if self.local:
            raise ValueError(
                "states: a lattice that is normalised locally is not expanded beforehand; normalise with local=False"
            )
        return self._of_batch(self._core.states)

    def sample(self, uniforms: ArrayLike) -> SampledDrafts:
        """p drafts of each lattice. uniforms: float64 [B, p, T] in [0, 1), one for each token.

        A token is the first candidate, in order of rank, whose cumulative q exceeds the uniform: independent uniforms
        give independent drafts, and the same ones the same drafts. The sausage's empty slots take one as well.
        """
        tokens, q, logq, lengths = self._core.sample(
            self._to_batch("uniforms", uniforms, np.float64), threads=self.threads
        )
        of_batch = self._of_batch
        return SampledDrafts(
            tokens=of_batch(tokens), q=of_batch(q), ids=self.ids, logq=of_batch(logq), lengths=of_batch(lengths)
        )

    def rows(self, drafts: ArrayLike) -> NDArray[np.float64]:
        """q of every candidate along given drafts int32 [B, p, T], padding -1: float64 [B, p, T, K], by rank.

        Row t is q(. | the draft's first t tokens), the row after its last token included; rows after that are 0, and
        so are those after a token that is not possible.
        """
        return self._of_batch(self._core.rows(self._to_batch("drafts", drafts, np.int32), threads=self.threads))

    def logq(self, drafts: ArrayLike) -> NDArray[np.float64]:
        """ln q of drafts, or of prefixes, int32 [B, p, T], padding -1: float64 [B, p]; -inf if a token is
        not possible.
        """
        return self._of_batch(self._core.logq(self._to_batch("drafts", drafts, np.int32), threads=self.threads))

    def trees(self, n: int = 64) -> Trees:
        """The trees of the n most probable prefixes under q, of a batch even for a single sausage: exact, found
        best-first.

        No tree of n nodes has a greater expected accepted length under q. Normalised locally at temperature 1 they are
        those of `Rescorer.trees`.
        """
        return Trees.of_core(self._core.trees(nodes=n, threads=self.threads))

    def tree(self, n: int = 64) -> TokenTree:
        """The tree of the n most probable prefixes of a single sausage."""
        if self.ids.ndim != 2:
            raise TypeError("tree: expected a single sausage [T, K], got a batch; use trees")
        return self.trees(n)[0]

    def _to_batch(self, name: str, values: ArrayLike, dtype: type) -> NDArray:
        array = np.asarray(values)
        if array.ndim != self.ids.ndim:
            raise ValueError(
                f"{name}: expected shape {'[p, T]' if self.ids.ndim == 2 else '[B, p, T]'}, got {list(array.shape)}"
            )
        if dtype is np.int32:
            array = token_ids(array, name)
        elif not np.can_cast(array.dtype, dtype, "same_kind"):
            raise TypeError(f"{name}: expected {np.dtype(dtype)}, got {array.dtype}")
        array = np.ascontiguousarray(array, dtype)
        return array[None] if array.ndim == 2 else array

    def _of_batch(self, array: NDArray) -> NDArray:
        return array[0] if self.ids.ndim == 2 else array


def dense_rows(q: NDArray[np.float64], ids: NDArray[np.int32], vocab_size: int) -> NDArray[np.float64]:
    """Rows of q [..., T, K] over all tokens: float64 [..., T, V], 0 for what is no candidate. ids: int32 [T, K] of one
    sausage.
    """
    q = np.asarray(q)
    if ids.ndim != 2 or q.shape[-2:] != ids.shape:
        raise ValueError(
            f"q: expected shape [..., T, K] with the ids' [T, K], got {list(q.shape)} and {list(ids.shape)}"
        )
    if ids.max(initial=-1) >= vocab_size:
        raise ValueError(f"ids: expected tokens below vocab_size = {vocab_size}, got {ids.max()}")
    rows = np.zeros((*q.shape[:-1], vocab_size), np.float64)
    slot, rank = np.nonzero(ids >= 0)
    rows[..., slot, ids[slot, rank]] = q[..., slot, rank]
    return rows
