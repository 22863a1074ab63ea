"""Drafts without heads: from an n-gram model alone, or with running texts and a memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.text_memory import TextMemory
from rescore.lattice.sausage import blank
from rescore.lattice.trees import Trees
from rescore.lm.ngram import NGram


def propose_trees(
    model: NGram,
    histories: NDArray[np.int32],
    *,
    n: int,
    depth: int | None = None,
    texts: Sequence[_core.ContextModel] = (),
    memory: TextMemory | None = None,
    least: float = 0.0,
    threads: int = 1,
) -> Trees:
    """Returns the trees of the n most probable continuations under the model, interpolated with the running texts and
    the memory where given. With the model alone, this is the control for heads.

    histories  int32 [B, m], padding -1 in front
    depth      most tokens of a continuation; None: n
    texts      one running text for each row
    least      the smallest q of a node; shortens the search
    """
    lattices, weights = blank(len(histories)), np.empty((3, 0))
    columns = _core.open_tree(
        model.core,
        histories,
        lattices.ids,
        lattices.cost,
        weights[:1],
        weights,
        open=True,
        texts=texts,
        memory=memory.counts if memory else None,
        least=least,
        depth=n if depth is None else depth,
        nodes=n,
        threads=threads,
    )
    return Trees.of_core(columns)
