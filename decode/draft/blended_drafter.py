"""Blends everything that predicts the next token under one q: the drafter for any model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rescore.decode.draft.calibration import ALIKE, Calibration
from rescore.decode.draft.lattices import Growing, Lattices
from rescore.decode.draft.pace import AutoWidth
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.lm.model.ngram import NGram

if TYPE_CHECKING:
    from rescore.decode.models.target import Target


def blended_drafter(
    target: Target,
    lm: NGram | None = None,
    *,
    lattice: Lattices | Growing | None = None,
    nodes: int | None = None,
    depth: int | None = None,
    calibration: Calibration | None = None,
    memory: TextMemory | None = None,
    rejected: bool = True,
    threads: int = 1,
) -> TreeDrafter:
    """Returns a drafter of trees from the text so far, the target's predictions after rejected drafts, and an n-gram
    model; of their best chains if the target reads no trees.

    target       the target; its passes are timed to choose the size of each tree
    lm           None drafts from the text alone
    lattice      of the model's heads, if it has any; or of a small model (`ModelLattice`)
    nodes        of every tree; None: chosen at each step, 0 where drafts do not pay (`AutoWidth`)
    calibration  weights of the sources; None: the defaults
    memory       earlier texts; every text that ends is added

    depth, rejected: as in `TreeDrafter`.
    """
    rescorer = blend_rescorer(target.vocab_size, lm, calibration, memory=memory, threads=threads)
    width = AutoWidth(target) if nodes is None else nodes
    return TreeDrafter(lattice, rescorer, nodes=width, depth=depth, rejected=rejected, chains=not target.trees)


def blend_rescorer(
    vocab_size: int,
    lm: NGram | None,
    calibration: Calibration | None,
    *,
    memory: TextMemory | None = None,
    threads: int = 1,
) -> Rescorer:
    """A rescorer with an n-gram model or none, which also reads the text so far, and the memory."""
    model = lm.widened(vocab_size) if lm else NGram.uniform(vocab_size)
    return Rescorer(model, calibration=calibration, memory=memory, least=ALIKE, threads=threads)
