"""Blends everything that predicts the next token under one q: the drafter for any model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rescore.decode.draft import DEFAULT_TOP_K
from rescore.decode.draft.auto_width import AutoWidth
from rescore.decode.draft.calibration import HEADLESS, Calibration
from rescore.decode.draft.drafter import DraftSources, Lattices, Missing
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.models.target import Target
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
        lattice: Lattices | None = None,
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


def of_sources(sources: DraftSources, options: Mapping[str, Any]) -> BlendedDrafter:
    """`blend`, and with `heads` false the control that ignores the heads."""
    calibration, candidates, models = None, DEFAULT_TOP_K, sources.lms()
    if len(models) > 1:
        raise Missing(
            f"--drafter blend: expected at most one --lm, got {len(models)}; merge them with `rescore lm merge`"
        )
    heads = options["heads"] and sources.has_heads()
    if options["settings"] is not None:
        kind = "open" if heads else "alone" if sources.has_heads() else "blend"
        tuned, candidates = sources.calibrated(kind, options["settings"])
        assert tuned.calibrated is not None
        calibration, models = tuned.calibrated.calibration, list(tuned.models)
    return BlendedDrafter(
        sources.target,
        models[0] if models else None,
        lattice=sources.lattice(options["top_k"] or candidates) if heads else None,
        calibration=calibration,
        memory=sources.memory(),
        nodes=None if options["nodes"] == "auto" else options["nodes"],
        depth=options["ahead"],
        threads=sources.threads,
    )
