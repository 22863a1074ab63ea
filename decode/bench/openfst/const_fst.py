"""An n-gram model as a file of OpenFst's ConstFst, written from the model's arrays: seconds for models whose arcs
pywrapfst would add one by one for many minutes.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from rescore.lm.atomic import replacing
from rescore.lm.ngram import NGram

MAGIC, UNALIGNED = 2125659606, 2  # fst/fst.cc, fst/const-fst.h: the file version without padding
EXPANDED, ACCEPTOR, SORTED = 0x1, 0x10000, 0x10000000 | 0x40000000  # fst/properties.h; by input and by output labels
STATE = np.dtype(
    [("final", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("input_epsilons", "<u4"), ("output_epsilons", "<u4")]
)
ARC = np.dtype([("input", "<i4"), ("output", "<i4"), ("cost", "<f4"), ("next", "<i4")])


def write_const(path: Path, model: NGram, *, alpha: float = 1.0) -> None:
    """The automaton as `rescore.lm.fst.to_fst` makes it, with epsilon backoff arcs, all its costs (nats) multiplied by
    alpha, arcs sorted.

    An acceptor over the tropical semiring, label = token id + 1, started at the root.
    """
    arrays, factor = model.arrays, np.float32(alpha)
    first = arrays.arc_begin.astype(np.int64)
    states = len(first) - 1
    backoffs = np.arange(states)  # arcs of label 0 before a state's own: every state but the root has one, in front
    table = np.zeros(states, STATE)
    table["first"] = first[:-1] + np.maximum(backoffs - 1, 0)
    table["arcs"] = np.diff(first) + (backoffs > 0)
    table["input_epsilons"] = table["output_epsilons"] = backoffs > 0
    arcs = np.zeros(first[-1] + states - 1, ARC)
    backing = table["first"][1:]
    own = np.ones(len(arcs), bool)
    own[backing] = False
    arcs["cost"][backing], arcs["next"][backing] = arrays.backoff_cost[1:] * factor, arrays.backoff_state[1:]
    arcs["cost"][own], arcs["next"][own] = arrays.arc_cost * factor, arrays.arc_next
    arcs["input"][own] = arrays.arc_token.astype(np.int32) + 1
    arcs["output"] = arcs["input"]
    header = struct.pack("<i", MAGIC) + _text("const") + _text("standard")
    header += struct.pack("<iiQqqq", UNALIGNED, 0, EXPANDED | ACCEPTOR | SORTED, 0, states, len(arcs))
    with replacing(path) as file:
        file.write(header)
        file.write(table.data)
        file.write(arcs.data)


def _text(name: str) -> bytes:
    return struct.pack("<i", len(name)) + name.encode()
