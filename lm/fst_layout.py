"""The layout of OpenFst's binary files of vector and const FSTs (fst/fst.h, vector-fst.h, const-fst.h), little-endian.

A header, symbol tables if its flags announce them, and then
    vector   for each state a float32 final cost, an int64 number of arcs, and the arcs
    const    CONST_STATE for each state, then all arcs
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

MAGIC = struct.pack("<i", 2125659606)
HEADER = "<iiQqqq"  # after the names of the FST and arc types: version, flags, properties, start, states, arcs
VECTOR, CONST, CONST_ALIGNED = 2, 2, 1  # versions

# fst/properties.h
EXPANDED, MUTABLE, ACCEPTOR = 0x1, 0x2, 0x10000
EPSILONS, NO_EPSILONS = 0x5400000, 0xA800000  # on both sides, on the input side, on the output side
SORTED, NOT_SORTED = 0x50000000, 0xA0000000  # by input and by output labels
WEIGHTED, UNWEIGHTED, NOT_TOP_SORTED = 0x100000000, 0x200000000, 0x8000000000

ARC = np.dtype([("input", "<i4"), ("output", "<i4"), ("cost", "<f4"), ("next", "<i4")])
CONST_STATE = np.dtype(
    [("final", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("input_epsilons", "<u4"), ("output_epsilons", "<u4")]
)
WORD = np.dtype("<i4")  # a vector FST is a whole number of words after its header
STATE_WORDS, ARC_WORDS = 3, 4


def outside(length: int, begin: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    """A mask [length] that is false for the `size` entries from each `begin` on."""
    mask = np.ones(length, bool)
    for place in range(size):
        mask[begin + place] = False
    return mask
