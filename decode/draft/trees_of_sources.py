"""Makes the drafters of trees from the sources of a command or of a replay; `registry.py` names them."""

from __future__ import annotations

from typing import Any

from rescore.decode.draft.blended_drafter import blend_rescorer
from rescore.decode.draft.rescorer import MERGE, Rescorer
from rescore.decode.draft.sources import DraftSources, Missing, fixed_size
from rescore.decode.draft.tree_drafter import TreeDrafter, ngram_drafter


def heads_tree(sources: DraftSources, *, nodes: int | str = "auto", top_k: int | None = None) -> TreeDrafter:
    rescorer = Rescorer(threads=sources.threads)
    return TreeDrafter(sources.lattice(top_k), rescorer, nodes=sources.nodes(nodes), chains=sources.chains)


def tree(
    sources: DraftSources,
    *,
    lm: Any = (),
    alpha: Any = None,
    top_k: int | None = None,
    settings: Any = None,
    nodes: int | str = "auto",
) -> TreeDrafter:
    """Of fixed weights, or calibrated by settings."""
    rescorer, lattice = sources.rescorer("closed", lm, alpha, settings), sources.lattice(top_k, settings)
    return TreeDrafter(lattice, rescorer, nodes=sources.nodes(nodes), chains=sources.chains)


def lm_alone(sources: DraftSources, *, lm: Any = (), nodes: int | str = 16, ahead: int | None = None) -> TreeDrafter:
    """As deep as the heads' lattices, if there are any, else as wide."""
    models, size = sources.lms(lm), fixed_size(nodes)
    if len(models) != 1:
        raise Missing(f"expected one --lm, got {len(models)}")
    return ngram_drafter(models[0], slots=ahead or sources.slots or size, nodes=size, threads=sources.threads)


def blend(
    sources: DraftSources,
    without: str = "",
    *,
    settings: Any = None,
    lm: Any = (),
    memory: Any = None,
    nodes: int | str = "auto",
    top_k: int | None = None,
    ahead: int | None = None,
) -> TreeDrafter:
    """Controls go `without` one source: "heads" or "lm"."""
    if not settings and len(sources.lms(lm)) > 1:
        raise Missing(f"expected at most one --lm, got {len(sources.lms(lm))}; {MERGE}")
    lattice = sources.lattice(top_k, settings) if sources.slots and without != "heads" else None
    if without == "heads" and not sources.slots:
        raise Missing("the model has no heads to ignore; use blend")
    kind = "open" if lattice else "alone" if sources.slots else "blend"
    models, calibration = sources.tuned(kind, lm, settings)
    if without == "lm" and not models:
        raise Missing("there is no n-gram model to leave out; use blend")
    model, texts = None if without == "lm" or not models else models[0], sources.memory(memory)
    rescorer = blend_rescorer(sources.vocab_size, model, calibration, memory=texts, threads=sources.threads)
    return TreeDrafter(lattice, rescorer, nodes=sources.nodes(nodes), depth=ahead, chains=sources.chains)
