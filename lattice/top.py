"""The top K of full-vocabulary logits: log softmax over all V tokens, ranks by (logit, id), not renormalised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.checked import numbers, whole

BLOCK_BYTES = 16 << 20  # float32 logits processed at a time; temporaries take a few times this
SUM_ERROR = 1e-2  # of probabilities in half precision
CLEAR = 32  # values of a slot that are not in 0..1 with a sum of 1 by chance


def top_of_logits(logits: Any, k: int, name: str = "logits", first: int = 0) -> tuple[NDArray, NDArray, NDArray]:
    """Top k of logits [..., V]: ids int32 [..., k], logp float32 [..., k] and entropy float32 [...] in nats.

    Rank 1 is the greatest logit; equal logits rank by id. `logits` is a float16, float32, float64 or bfloat16 array
    or tensor (anything with `detach` or `__array__`), read in blocks as float32 and never copied as a whole. ValueError
    for NaN, +inf, and -inf among the top k; messages count the first axis from `first`.
    """
    logits = logits.detach() if hasattr(logits, "detach") else logits
    if not hasattr(logits, "shape"):
        logits = numbers(logits, name, "f")
    shape = tuple(int(size) for size in logits.shape)
    if len(shape) < 2:
        raise ValueError(f"{name}: expected shape [..., T, V], got {list(shape)}")
    vocab_size = shape[-1]
    k = whole(k, "k")
    if not 1 <= k <= min(vocab_size, _core.MAX_TOP):
        raise ValueError(f"{name}: expected k in 1..V = {vocab_size}, at most {_core.MAX_TOP}, got {k}")
    rows = int(np.prod(shape[:-1]))
    ids = np.empty((rows, k), np.int32)
    logp = np.empty((rows, k), np.float32)
    entropy = np.empty(rows, np.float32)
    for start, block in _blocks(logits.reshape(rows, vocab_size), shape[-2], name):
        part = slice(start, start + len(block))
        if (slot := slot_of_probabilities(block.reshape(-1, shape[-2], vocab_size))) is not None:
            raise ValueError(
                f"{name}[.., {slot}, :], head {slot + 1}: expected logits, got probabilities: rows in 0..1 that sum to "
                "1; take their logarithm"
            )
        ids[part], logp[part], entropy[part] = found = _core.top(block, k)
        if np.isnan(found[2]).any() or found[0].min() < 0:
            raise _refusal(block, k, name, shape[:-1], start, first)
    return ids.reshape(*shape[:-1], k), logp.reshape(*shape[:-1], k), entropy.reshape(shape[:-1])


def slot_of_probabilities(rows: NDArray[np.floating]) -> int | None:
    """The first slot of rows [R, T, n] whose rows all lie in 0..1 and sum to 1, and are not all 0 or 1; None if there
    is none. Of few values, only if this holds for every slot.
    """
    first = rows[:1]
    if not ((first.min(axis=-1) >= 0) & (abs(first.sum(axis=-1) - 1) < SUM_ERROR)).any():  # quick, and almost always
        return None
    all_fit = ((rows >= 0).all(axis=-1) & (abs(rows.sum(axis=-1, dtype=np.float64) - 1) < SUM_ERROR)).all(axis=0)
    found = all_fit & ((rows > 0) & (rows < 1)).any(axis=(0, 2))
    clear = rows.shape[0] * rows.shape[2] >= CLEAR or all_fit.all()
    return int(found.argmax()) if found.any() and clear else None


def _blocks(logits: Any, slots: int, name: str) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yields the first row of each block and its contiguous rows, those of whole lattices."""
    rows, vocab_size = logits.shape
    slots = max(slots, 1)
    size = slots * max(1, BLOCK_BYTES // (4 * vocab_size * slots))
    for start in range(0, rows, size):
        yield start, _as_float(logits[start : start + size], name)


def _as_float(part: Any, name: str) -> NDArray[np.float32]:
    kind = str(part.dtype).removeprefix("torch.")
    if kind not in ("float16", "bfloat16", "float32", "float64"):
        raise TypeError(f"{name}: expected float16, bfloat16, float32 or float64, got {kind}")
    if hasattr(part, "cpu"):  # a torch tensor; numpy has no bfloat16, so widen before the conversion
        part = part.float().cpu()
    with np.errstate(over="ignore"):  # a float64 out of range becomes an infinity, which is refused
        return np.ascontiguousarray(part, np.float32)


def _refusal(block: NDArray, k: int, name: str, shape: tuple[int, ...], start: int, first: int) -> ValueError:
    """The error of a block whose top k are not all finite, or that holds NaN or +inf."""
    bad = np.isnan(block) | (block == np.inf)
    if not bad.any():
        bad = (block == -np.inf) & ((block > -np.inf).sum(axis=1) < k)[:, None]
    row, token = (int(i) for i in np.argwhere(bad)[0])
    index = [int(i) for i in np.unravel_index(start + row, shape)]
    where = f"{name}{[index[0] + first, *index[1:], token]}"
    value = block[row, token]
    if value == -np.inf:
        usable = int((block[row] > -np.inf).sum())
        return ValueError(
            f"{where} is -inf and would be among the top {k}: "
            f"{f'only {usable}' if usable else 'no'} logits of that slot are finite; "
            f"{f'use k <= {usable} or ' if usable else ''}mask with a large finite value"
        )
    return ValueError(
        f"{where} is {'NaN' if np.isnan(value) else '+inf'}: expected finite logits (or -inf outside the top {k})"
    )
