"""The tokens of one `llama_decode` call, in NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp
import numpy as np
from numpy.typing import NDArray


class Batch:
    """A reusable buffer for the tokens of a call, at most `most`.

    struct: the `llama_batch` that points into the buffer; outputs: number of tokens with logits.
    """

    def __init__(self, most: int):
        self._tokens, self._positions, self._counts = (np.zeros(most, np.int32) for _ in range(3))
        self._sequences = np.zeros(0, np.int32)
        self._places = np.zeros(most, np.uintp)  # address of each token's sequence ids
        self._wanted = np.zeros(most, np.int8)
        self.outputs = 0
        self.struct = llama_cpp.llama_batch(
            n_tokens=0,
            token=_pointer(self._tokens, ctypes.c_int32),
            embd=None,
            pos=_pointer(self._positions, ctypes.c_int32),
            n_seq_id=_pointer(self._counts, ctypes.c_int32),
            seq_id=_pointer(self._places, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )

    def fill(
        self,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequences: Sequence[NDArray[np.int32]],
        outputs: NDArray[np.bool_],
    ) -> None:
        """Fills the buffer with n tokens.

        tokens, positions: int32 [n]; sequences: the sequence ids of each token; outputs: bool [n], which tokens get
        logits. Within a sequence, positions rise by 1.
        """
        n = len(tokens)
        self._tokens[:n], self._positions[:n], self._wanted[:n] = tokens, positions, outputs
        self._counts[:n] = [len(one) for one in sequences]
        self._sequences = np.concatenate(sequences)
        ends = np.cumsum(self._counts[:n])
        self._places[:n] = self._sequences.ctypes.data + self._sequences.itemsize * (ends - self._counts[:n])
        self.struct.n_tokens, self.outputs = n, int(outputs.sum())


def _pointer(array: NDArray, kind: type) -> object:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
