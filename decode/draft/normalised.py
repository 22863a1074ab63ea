"""A lattice as a distribution q over drafts, for sampling and lossless verification.

q(w_1..w_T) is proportional to exp(-cost / temperature), with the rescored cost of rescorer.py. The composition's
weights are pushed in the log semiring, so that q(w | prefix) accounts for what may follow (docs/how/pushing.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.lattice.checked import numbers, token_ids, whole
from rescore.lattice.tree import SampledDrafts, Trees


class NormalisedLattice:
    """q over the drafts of one sausage [T, K] or of a batch [B, T, K], from `Rescorer.normalise`. Thread-safe.

    Shapes below are those of a batch; drop B for a single sausage.
    """

    def __init__(self, core: _core.Normalised, *, ids: NDArray[np.int32], threads: int):
        self.ids = ids
        self.threads = threads
        self._core = core

    def sample(self, uniforms: ArrayLike) -> SampledDrafts:
        """Samples p drafts of each lattice. uniforms: float64 [B, p, T] in [0, 1), one for each token.

        The token is the first candidate, by rank, whose cumulative q exceeds the uniform. Independent uniforms give
        independent drafts, equal ones equal drafts. Empty slots also use up a uniform.
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

        Row t is q(. | the draft's first t tokens), including the row after its last token. Later rows are 0, as are
        rows after an impossible token.
        """
        return self._of_batch(self._core.rows(self._to_batch("drafts", drafts, np.int32), threads=self.threads))

    def logq(self, drafts: ArrayLike) -> NDArray[np.float64]:
        """ln q of drafts or prefixes, int32 [B, p, T], padding -1: float64 [B, p]; -inf if a token is impossible."""
        return self._of_batch(self._core.logq(self._to_batch("drafts", drafts, np.int32), threads=self.threads))

    def trees(self, n: int = 64) -> Trees:
        """The trees of the n most probable prefixes under q, by exact best-first search; a batch even for a single
        sausage.

        No tree of n nodes has a greater expected accepted length under q.
        """
        return Trees.of_core(self._core.trees(nodes=whole(n, "n"), threads=self.threads))

    def _to_batch(self, name: str, values: ArrayLike, dtype: type) -> NDArray[Any]:
        array = numbers(values, name, "iu" if dtype is np.int32 else "iuf")
        if array.ndim != self.ids.ndim:
            raise ValueError(
                f"{name}: expected shape {'[p, T]' if self.ids.ndim == 2 else '[B, p, T]'}, got {list(array.shape)}"
            )
        if dtype is np.int32:
            array = token_ids(array, name)
        array = np.ascontiguousarray(array, dtype)
        return array[None] if array.ndim == 2 else array

    def _of_batch(self, array: NDArray[Any]) -> NDArray[Any]:
        return array[0] if self.ids.ndim == 2 else array


def dense_rows(q: NDArray[np.float64], ids: NDArray[np.int32], vocab_size: int) -> NDArray[np.float64]:
    """Rows of q [..., T, K] over all tokens: float64 [..., T, V], 0 for tokens that are no candidates. ids: int32
    [T, K] of one sausage.
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
