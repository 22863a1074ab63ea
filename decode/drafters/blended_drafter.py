"""Drafts of everything that predicts the next token, under one q: the drafter for any model."""

from __future__ import annotations

from rescore.decode.drafters.auto_width import AutoWidth
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.drafters.tree_drafter import TreeDrafter
from rescore.decode.models.target import Target
from rescore.decode.rescoring.calibrated import CalibratedRescorer
from rescore.decode.rescoring.calibration import HEADLESS, Calibration
from rescore.decode.rescoring.text_memory import TextMemory
from rescore.lm.ngram import NGram

ALIKE = 1e-4  # q of nodes without an n-gram model: below are tokens that nothing tells apart, all of which tie


class BlendedDrafter(TreeDrafter):
    """Trees of what follows in the text so far, of what the target predicted along it, and of an n-gram model.

    target       what verifies, whose passes are timed to choose the size of each tree
    lm           None drafts from the text alone
    lattice      of the model's heads, if it has any
    nodes        of every tree; None: chosen step by step, and none where drafts do not pay (`AutoWidth`)
    calibration  what the sources are weighed with; None: weights that suit models without heads, or the defaults
    memory       of earlier texts, which every text that ends is added to
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
        prompt: int | None = None,
        rejected: bool = True,
        threads: int = 1,
    ):
        if lm is not None and lm.vocab_size != target.vocab_size:
            raise ValueError(
                f"lm: expected an n-gram model of the target's {target.vocab_size} ids, got one of {lm.vocab_size}; "
                "build it with the target's tokenizer"
            )
        if calibration is None and lattice is None:
            calibration = HEADLESS
        model, least = (lm, 0.0) if lm else (NGram.uniform(target.vocab_size), ALIKE)
        rescorer = CalibratedRescorer(model, calibration, memory=memory, least=least, threads=threads)
        size = nodes or AutoWidth(target)
        super().__init__(lattice, rescorer, nodes=size, depth=depth, prompt=prompt, rejected=rejected)
