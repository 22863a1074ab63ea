"""Callers' token ids converted to the int32 arrays of the native core."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

ALL = 1 << 31  # ids that int32 holds


def token_ids(values: ArrayLike, name: str, vocab_size: int = ALL) -> NDArray[np.int32]:
    """Ids of any shape as contiguous int32, without a copy if they are already.

    TypeError unless the array is empty or of integers; ValueError for values that int32 does not hold. The core checks
    ids against V when it reads them.
    """
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, got {array.dtype}")
    if array.size and array.dtype != np.int32:
        for value in (int(array.min()), int(array.max())):
            if not -ALL <= value < ALL:
                raise ValueError(f"{name}: expected ids in 0..{vocab_size - 1}, got {value}")
    return np.ascontiguousarray(array, np.int32)
