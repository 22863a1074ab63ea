"""The oracle: the longest prefix of the true continuation among a lattice's candidates. The ceiling of rescoring."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.sausage import Sausage


def ranks(sausage: Sausage, truth: NDArray) -> NDArray[np.int32]:
    """Rank of the true token in each slot, int32 [T] or [B, T]: 0 for the first candidate, -1 if it is not among them.

    truth: integers [T] or [B, T], padding -1 after the end of the text. The rank of padding is -1.
    """
    truth = _fit(sausage, truth)
    found = (sausage.ids == truth[..., None]) & (truth[..., None] >= 0)
    return np.where(found.any(-1), found.argmax(-1), -1).astype(np.int32)


def oracle_lengths(sausage: Sausage, truth: NDArray, k: int | None = None) -> NDArray[np.int32]:
    """Length of the longest prefix of the truth that the first k candidates (all by default) allow: int32 [] or [B]."""
    by_width = oracle_by_width(sausage, truth)
    if k is not None and k < 1:
        raise ValueError(f"k: expected at least 1, got {k}")
    return by_width[..., -1 if k is None else min(k, sausage.width) - 1]


def oracle_by_width(sausage: Sausage, truth: NDArray) -> NDArray[np.int32]:
    """The oracle length for every k: int32 [K] or [B, K], entry k - 1 for the first k candidates; it never falls."""
    rank = ranks(sausage, truth)
    needed = np.maximum.accumulate(np.where(rank < 0, sausage.width, rank), axis=-1)  # greatest rank along the prefix
    return (needed[..., None] < np.arange(1, sausage.width + 1)).sum(axis=-2, dtype=np.int32)


def _fit(sausage: Sausage, truth: NDArray) -> NDArray:
    """The truth cut or padded to the slots of the sausage."""
    truth = np.asarray(truth)
    if truth.dtype.kind not in "iu":
        raise TypeError(f"truth: expected integers, got {truth.dtype}")
    if truth.shape[:-1] != sausage.ids.shape[:-2] or truth.ndim != sausage.ids.ndim - 1:
        want = "[B, T]" if sausage.is_batch else "[T]"
        raise ValueError(f"truth: expected shape {want} for ids {list(sausage.ids.shape)}, got {list(truth.shape)}")
    missing = sausage.slots - truth.shape[-1]
    if missing > 0:
        truth = np.concatenate([truth.astype(np.int64), np.full((*truth.shape[:-1], missing), -1)], axis=-1)
    return truth[..., : sausage.slots]
