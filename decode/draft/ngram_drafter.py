"""Drafts from an n-gram model alone: the control without heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.calibrated import open_trees
from rescore.decode.draft.drafter import Proposed
from rescore.decode.draft.sources import DraftSources, Missing, Options, fixed_size
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.sausage import blank
from rescore.lattice.structure import State
from rescore.lattice.tree import Trees
from rescore.lm.model.ngram import NGram


def propose_trees(
    model: NGram,
    histories: NDArray[np.int32],
    *,
    n: int,
    depth: int | None = None,
    texts: Sequence[_core.ContextModel] = (),
    memories: Sequence[TextMemory | None] = (),
    expected: Sequence[_core.EditModel | None] = (),
    structures: Sequence[State | None] = (),
    least: float = 0.0,
    threads: int = 1,
) -> Trees:
    """Returns the trees of the n most probable continuations under the model, interpolated with the running texts and
    the memories where given. With the model alone, this is the control for heads.

    histories   int32 [B, m], padding -1 in front
    depth       most tokens of a continuation; None: n
    texts       one running text for each row
    memories    of each row, or none
    expected, structures  as in `CalibratedTrees.trees`
    least       the smallest q of a node; shortens the search
    """
    weights = np.empty((3, 0))
    return open_trees(
        model,
        histories,
        blank(len(histories)),
        weights[:1],
        weights,
        n=n,
        depth=depth,
        texts=texts,
        memories=memories,
        expected=expected,
        structures=structures,
        least=least,
        threads=threads,
    )


class NGramDrafter:
    """Drafts the `nodes` most probable continuations of at most `slots` tokens under an n-gram model."""

    drawn = 0

    def __init__(self, model: NGram, *, slots: int, nodes: int, threads: int = 1):
        for name, value in (("slots", slots), ("nodes", nodes)):
            if value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        self.model = model
        self.slots = slots
        self.nodes = nodes
        self.threads = threads

    def fitted(self, vocab_size: int) -> NGramDrafter:
        model = self.model.widened(vocab_size)
        return (
            self
            if model is self.model
            else NGramDrafter(model, slots=self.slots, nodes=self.nodes, threads=self.threads)
        )

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> NGramDrafter:
        return self

    def propose(self, step: DraftStep) -> Proposed:
        histories, n = step.contexts(self.model.order - 1), step.nodes or self.nodes
        return propose_trees(
            self.model, histories, n=n, depth=self.slots, structures=step.structures, threads=self.threads
        )

    def select(self, rows: Sequence[int]) -> None:
        pass


def of_sources(sources: DraftSources, options: Options) -> NGramDrafter:
    """`lm-alone`: as deep as the heads' lattices, if there are any, else as wide."""
    models, nodes = sources.lms(), fixed_size(options["nodes"])
    if len(models) != 1:
        raise Missing(f"expected one --lm, got {len(models)}")
    slots = options["ahead"] or sources.slots or nodes
    return NGramDrafter(models[0], slots=slots, nodes=nodes, threads=sources.threads)
