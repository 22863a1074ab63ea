"""Blends everything that predicts the next token under one q: the drafter for any model."""

from __future__ import annotations

from rescore.decode.drafters.auto_width import AutoWidth
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.drafters.tree_drafter import TreeDrafter
from rescore.decode.models.target import Target
from rescore.decode.rescoring.calibration import HEADLESS, Calibration
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.rescoring.text_memory import TextMemory
from rescore.lm.ngram import NGram

ALIKE = 1e-4  # without an n-gram model, nodes of lower q are tokens that nothing tells apart


class BlendedDrafter(TreeDrafter):
    """Drafts trees from the text so far, the target's predictions after rejected drafts, and an n-gram model.

    target       the target; its passes are timed to choose the size of each tree
    lm           None drafts from the text alone
    lattice      of the model's heads, if it has any
    nodes        of every tree; None: chosen at each step, 0 where drafts do not pay (`AutoWidth`)
    calibration  weights of the sources; None: the defaults, or those for models without heads
    memory       earlier texts; every text that ends is added

    depth, rejected: as in `TreeDrafter`.
    """

    def __init__(
        self,
        target: Target,
        lm: NGram | None = None,
        *,
        lattice: HeadsLattice | None = None,
        nodes: int | None = None,
        depth: int | None = None,
        calibration: Calibration | None = None,
        memory: TextMemory | None = None,
        rejected: bool = True,
        threads: int = 1,
    ):
        if calibration is None and lattice is None:
            calibration = HEADLESS
        size = target.vocab_size
        model, least = (lm.widened(size), 0.0) if lm else (NGram.uniform(size), ALIKE)
        rescorer = Rescorer(model, calibration=calibration, memory=memory, least=least, threads=threads)
        width = AutoWidth(target) if nodes is None else nodes
        super().__init__(lattice, rescorer, nodes=width, depth=depth, rejected=rejected)
