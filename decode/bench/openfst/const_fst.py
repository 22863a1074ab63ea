"""Writes an n-gram model with weighted costs as a ConstFst, which OpenFst opens faster than a VectorFst."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rescore.lattice.atomic import replacing
from rescore.lm.fst_write import const_parts
from rescore.lm.ngram import NGram


def write_const(path: Path, model: NGram, *, alpha: float = 1.0) -> None:
    """Writes the automaton of `rescore.lm.fst.to_fst` with all costs (nats) multiplied by alpha."""
    arrays, factor = model.arrays, np.float32(alpha)
    weighted = arrays._replace(arc_cost=arrays.arc_cost * factor, backoff_cost=arrays.backoff_cost * factor)
    with replacing(path) as file:
        for part in const_parts(weighted):
            file.write(part)
