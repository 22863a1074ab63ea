"""The top K of full-vocabulary logits: log softmax over all V tokens, ranks by (logit, id), not renormalised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core

BLOCK_BYTES = 16 << 20  # float32 logits processed at a time; temporaries take a few times this
SUM_ERROR = 1e-2  # of probabilities in half precision
FLOOR = -1e4  # exp(FLOOR) is 0 in any float format; keeps 0 * -inf out of the entropy


def top_of_logits(logits: Any, k: int, name: str = "logits", first: int = 0) -> tuple[NDArray, NDArray, NDArray]:
    """Top k of logits [..., V]: ids int32 [..., k], logp float32 [..., k] and entropy float32 [...] in nats.

    Rank 1 is the greatest logit; equal logits rank by id. `logits` is a float16, float32, float64 or bfloat16 array
    or tensor (anything with `detach` or `__array__`), read in blocks and never copied as a whole. ValueError for NaN,
    +inf, and -inf among the top k; messages count the first axis from `first`.
    """
    logits = logits.detach() if hasattr(logits, "detach") else logits
    if not hasattr(logits, "shape"):
        logits = np.asarray(logits)
    shape = tuple(int(size) for size in logits.shape)
    if len(shape) < 2:
        raise ValueError(f"{name}: expected shape [..., T, V], got {list(shape)}")
    vocab_size = shape[-1]
    if not 1 <= k <= vocab_size:
        raise ValueError(f"{name}: expected k in 1..V = {vocab_size}, got {k}")
    rows = int(np.prod(shape[:-1]))
    ids = np.empty((rows, k), np.int32)
    logp = np.empty((rows, k), np.float32)
    entropy = np.empty(rows, np.float32)
    for start, block in _blocks(logits.reshape(rows, vocab_size), name):
        part = slice(start, start + len(block))
        if start == 0 and are_probabilities(block):
            raise ValueError(
                f"{name}: expected logits, got probabilities: rows in 0..1 that sum to 1; take their logarithm"
            )
        found = _top_of_floats(block, k)
        if found is None:
            _check(block, k, name, shape[:-1], start, first)
            found = _top(block, k)
        ids[part], logp[part], entropy[part] = found
    return ids.reshape(*shape[:-1], k), logp.reshape(*shape[:-1], k), entropy.reshape(shape[:-1])


def are_probabilities(rows: NDArray[np.floating]) -> bool:
    """Whether all rows [R, n] lie in 0..1 and sum to 1, and are not all 0 or 1."""
    if not len(rows) or not (rows[0].min() >= 0 and abs(rows[0].sum() - 1) < SUM_ERROR):  # quick, and almost always
        return False
    sums = rows.sum(axis=1, dtype=np.float64)
    return bool((rows >= 0).all() and (abs(sums - 1) < SUM_ERROR).all() and ((rows > 0) & (rows < 1)).any())


def _blocks(logits: Any, name: str) -> Iterator[tuple[int, NDArray[np.floating]]]:
    """Yields the first row of each block and its contiguous float32 (or float64) rows."""
    rows, vocab_size = logits.shape
    size = max(1, BLOCK_BYTES // (4 * vocab_size))
    for start in range(0, rows, size):
        yield start, _as_float(logits[start : start + size], name)


def _as_float(part: Any, name: str) -> NDArray[np.floating]:
    kind = str(part.dtype).removeprefix("torch.")
    if kind not in ("float16", "bfloat16", "float32", "float64"):
        raise TypeError(f"{name}: expected float16, bfloat16, float32 or float64, got {kind}")
    if hasattr(part, "cpu"):  # a torch tensor; numpy has no bfloat16, so widen before the conversion
        part = (part if kind == "float64" else part.float()).cpu()
    return np.ascontiguousarray(part, np.float64 if kind == "float64" else np.float32)


def _check(block: NDArray, k: int, name: str, shape: tuple[int, ...], start: int, first: int) -> None:
    greatest = block.max(axis=1)  # NaN if any logit of the row is
    if np.isfinite(greatest).all() and np.isfinite(block.min(axis=1)).all():
        return
    bad = np.isnan(block) | (block == np.inf)
    if not bad.any():
        bad = (block == -np.inf) & ((block > -np.inf).sum(axis=1) < k)[:, None]
    if not bad.any():
        return
    row, token = (int(i) for i in np.argwhere(bad)[0])
    index = [int(i) for i in np.unravel_index(start + row, shape)]
    where = f"{name}{[index[0] + first, *index[1:], token]}"
    value = block[row, token]
    if value == -np.inf:
        usable = int((block[row] > -np.inf).sum())
        raise ValueError(
            f"{where} is -inf and would be among the top {k}: "
            f"{f'only {usable}' if usable else 'no'} logits of that slot are finite; "
            f"{f'use k <= {usable} or ' if usable else ''}mask with a large finite value"
        )
    raise ValueError(
        f"{where} is {'NaN' if np.isnan(value) else '+inf'}: expected finite logits (or -inf outside the top {k})"
    )


def _top_of_floats(block: NDArray, k: int) -> tuple[NDArray, NDArray, NDArray] | None:
    """`_top` in the native core; None if it does not support the block or values are not finite."""
    if block.dtype != np.float32 or k > _core.MAX_TOP:
        return None
    ids, logp, entropy = _core.top(block, k)
    return None if np.isnan(entropy).any() or ids.min() < 0 else (ids, logp, entropy)


def _top(block: NDArray, k: int) -> tuple[NDArray, NDArray, NDArray]:
    """Ids, logp and entropy of checked rows [R, V]."""
    ids = _greatest(block, k)
    shifted = block - block.max(axis=1, keepdims=True)
    logits = np.take_along_axis(shifted, ids, axis=1).astype(np.float64)
    np.maximum(shifted, FLOOR, out=shifted)
    weight = np.exp(shifted)
    total = weight.sum(axis=1, dtype=np.float64)
    weight *= shifted
    entropy = np.log(total) - weight.sum(axis=1, dtype=np.float64) / total
    return ids.astype(np.int32), logits - np.log(total)[:, None], np.maximum(entropy, 0.0)


def _greatest(block: NDArray, k: int) -> NDArray:
    """Indices [R, k] of the k greatest of each row, descending; equal values by index."""
    vocab_size = block.shape[1]
    ids = (
        np.argpartition(block, vocab_size - k, axis=1)[:, vocab_size - k :]
        if k < vocab_size
        else np.tile(np.arange(k), (len(block), 1))
    )
    ids.sort(axis=1)
    values = np.take_along_axis(block, ids, axis=1)
    least = values.min(axis=1, keepdims=True)
    # argpartition keeps arbitrary ones of equal values at the border; keep the smallest ids instead
    for row in np.flatnonzero((block == least).sum(axis=1) > (values == least).sum(axis=1)):
        above = np.flatnonzero(block[row] > least[row])
        equal = np.flatnonzero(block[row] == least[row])[: k - len(above)]
        ids[row] = np.sort(np.concatenate([above, equal]))
        values[row] = block[row, ids[row]]
    return np.take_along_axis(ids, np.argsort(-values, axis=1, kind="stable"), axis=1)
