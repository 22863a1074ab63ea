"""Checks of a rule's arguments: rows of probabilities, token ids, random numbers.

Rules use only operators and methods that numpy arrays and torch tensors share, so one implementation serves both and
torch is never imported. Rows of V stay on their device, in float64; data of the draft's length comes to the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # a numpy array or a torch tensor

SUM_TOLERANCE = 1e-6  # a float32 softmax over a large vocabulary meets it, a 16-bit one does not
REMEDY = "give the distribution after temperature, top-k and top-p, its softmax taken in float32 or float64"


def shaped(name: str, rows: Array, count: int, like: Array = None) -> Array:
    """Returns `rows` if they are floats [count, V] with V >= 1, with the V, library and device of `like` if given."""
    if not (isinstance(rows, np.ndarray) or hasattr(rows, "detach")):
        raise TypeError(f"{name}: expected a numpy array or a torch tensor, got {type(rows).__name__}")
    floats = rows.is_floating_point() if hasattr(rows, "detach") else rows.dtype.kind == "f"
    if not floats:
        raise TypeError(f"{name}: expected floating-point probabilities, got {rows.dtype}")
    vocab = "V" if like is None else str(like.shape[-1])
    if rows.ndim != 2 or rows.shape[0] != count or rows.shape[1] < 1 or vocab not in ("V", str(rows.shape[1])):
        raise ValueError(f"{name}: expected shape [{count}, {vocab}], got {list(rows.shape)}")
    if like is not None and _place(rows) != _place(like):
        raise TypeError(f"{name}: expected an array on {_place(like)} like the target's, got one on {_place(rows)}")
    return rows


def probabilities(name: str, rows: Array, first: int = 0) -> Array:
    """Returns `rows` / their sums, float64 [m, V]. The sums must be 1 within 1e-6; row i is called name[first + i].

    The division makes a float32 softmax an exact distribution, so that a rule's guarantee holds up to float64 rounding.
    """
    rows = rows.double() if hasattr(rows, "detach") else rows.astype(np.float64)
    total = rows.sum(-1)
    for i, mass in enumerate(total.tolist()):
        if not abs(mass - 1) <= SUM_TOLERANCE:  # NaN fails too
            got = "NaN" if mass != mass else f"a sum of {mass:.9g}"
            raise ValueError(
                f"{name}[{first + i}]: expected probabilities of sum 1 within {SUM_TOLERANCE:g}, got {got}; {REMEDY}"
            )
    if len(rows) and float(rows.min()) < 0:
        i, token = divmod(int(rows.argmin()), rows.shape[1])
        raise ValueError(
            f"{name}[{first + i}, {token}]: expected a probability, got {float(rows[i, token]):.9g}; {REMEDY}"
        )
    return rows / total[:, None]


def ids(name: str, values: Any, below: int, what: str = "a token id") -> list[int]:
    """Returns the integers [m] in [0, below) as a list."""
    values = values.tolist() if hasattr(values, "tolist") else list(values)
    for i, value in enumerate(values):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name}[{i}]: expected {what}, an integer, got {value!r}")
        if not 0 <= value < below:
            raise ValueError(f"{name}[{i}]: expected {what} in [0, {below}), got {value}")
    return values


def numbers(name: str, values: Any, count: int, what: str) -> list[float]:
    """Returns `count` random numbers in [0, 1) as a list; `what` is their purpose, for errors."""
    values = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(values) != count:
        raise ValueError(f"{name}: expected {count} numbers, {what}, got {len(values)}")
    for i, value in enumerate(values):
        if not isinstance(value, (int, float)) or not 0 <= value < 1:
            raise ValueError(f"{name}[{i}]: expected a number in [0, 1), got {value!r}")
    return values


def _place(rows: Array) -> str:
    return f"torch {rows.device}" if hasattr(rows, "detach") else "numpy"
