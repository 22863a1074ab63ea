"""Drafts of an n-gram model alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.sausage import blank
from rescore.lattice.trees import Trees
from rescore.lm.ngram import NGram


def propose_trees(model: NGram, histories: NDArray[np.int32], *, slots: int, n: int, threads: int = 1) -> Trees:
    """Trees of the n most probable continuations of at most `slots` tokens under the model alone, without any head.

    histories: int32 [B, m], padding -1 in front. The control against which heads are to be measured.
    """
    lattices, zero = blank(len(histories), slots), np.zeros((3, slots))
    call = model.core, histories, lattices.ids, lattices.cost, zero[:1], zero
    none = zero[0, :0]
    return Trees.of_core(_core.open_tree(*call, open=True, texts=[], strength=none, nodes=n, threads=threads))
