"""The tokens of one `llama_decode` call, in arrays of numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp
import numpy as np
from numpy.typing import NDArray


class Batch:
    """n tokens with their positions, the sequences that each belongs to, and which of them are predicted from.

    tokens, positions int32 [n]; sequences: ids of each token; outputs bool [n]. Within a sequence, positions rise by 1.
    """

    def __init__(
        self,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequences: Sequence[NDArray[np.int32]],
        outputs: NDArray[np.bool_],
    ):
        counts = np.array([len(one) for one in sequences], np.int32)
        ids = np.concatenate([*sequences, np.empty(0, np.int32)]).astype(np.int32)
        starts = np.cumsum(counts, dtype=np.uintp) - counts.astype(np.uintp)
        places = (np.uintp(ids.ctypes.data) + starts * np.uintp(ids.itemsize)).astype(np.uintp)
        wanted = outputs.astype(np.int8)
        self._arrays = tokens, positions, counts, ids, places, wanted  # which the struct points to
        self.outputs = int(wanted.sum())
        self.struct = llama_cpp.llama_batch(
            n_tokens=len(tokens),
            token=_pointer(tokens, ctypes.c_int32),
            embd=None,
            pos=_pointer(positions, ctypes.c_int32),
            n_seq_id=_pointer(counts, ctypes.c_int32),
            seq_id=ctypes.cast(places.ctypes.data, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
            logits=_pointer(wanted, ctypes.c_int8),
        )


def _pointer(array: NDArray, kind: type) -> object:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
