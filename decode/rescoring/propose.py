"""Drafts of an n-gram model alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.trees import Trees
from rescore.lm.ngram import NGram


def propose_trees(model: NGram, histories: NDArray[np.int32], *, slots: int, n: int, threads: int = 1) -> Trees:
    """Trees of the n most probable continuations of at most `slots` tokens under the model alone, without any head.

    histories: int32 [B, m], padding -1 in front. The control against which heads are to be measured.
    """
    shape = len(histories), slots, 1
    no_ids, no_cost, zero = np.full(shape, -1, np.int32), np.full(shape, np.inf, np.float32), np.zeros((3, slots))
    call = model.core, histories, no_ids, no_cost, zero[:1], zero
    none = zero[0, :0]
    return Trees.of_core(_core.open_tree(*call, open=True, texts=[], strength=none, nodes=n, threads=threads))
