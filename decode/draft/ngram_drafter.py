"""Drafts from an n-gram model alone: the control without heads."""

from __future__ import annotations

from typing import Any

from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.sources import DraftSources, Missing, fixed_size
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.lm.model.ngram import NGram

ALONE = Calibration(text=None).without_heads()


class NGramDrafter(TreeDrafter):
    """Drafts the `nodes` most probable continuations of at most `slots` tokens under an n-gram model."""

    def __init__(self, model: NGram, *, slots: int, nodes: int, threads: int = 1):
        super().__init__(None, Rescorer(model, calibration=ALONE, threads=threads), nodes=nodes, depth=slots)


def lm_alone(sources: DraftSources, *, lm: Any = (), nodes: int | str = 16, ahead: int | None = None) -> NGramDrafter:
    """As deep as the heads' lattices, if there are any, else as wide."""
    models, size = sources.lms(lm), fixed_size(nodes)
    if len(models) != 1:
        raise Missing(f"expected one --lm, got {len(models)}")
    return NGramDrafter(models[0], slots=ahead or sources.slots or size, nodes=size, threads=sources.threads)
