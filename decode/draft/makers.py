"""Makes drafters from sources and sizes; `registry.py` names them. Each imports what it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, cast

from msgspec import structs

from rescore.decode.draft.sources import AUTO, Sizes, Sources

if TYPE_CHECKING:
    from rescore.decode.draft.drafter import Drafter
    from rescore.decode.draft.heads_lattice import HeadsLattice
    from rescore.decode.draft.lattices import Growing
    from rescore.decode.draft.rescorer import Rescorer


def paths(sources: Sources, sizes: Sizes) -> Drafter:
    """The best paths of the heads' lattice, rescored by the n-gram models if there are any."""
    from rescore.decode.draft.lattice_drafters import PathDrafter

    return PathDrafter(sources.lattice(sizes), _rescorer(sources, "paths"), paths=sizes.paths or 1)


def drawn(sources: Sources, sizes: Sizes) -> Drafter:
    from rescore.decode.draft.drawn_drafter import DrawnDrafter

    lattice = cast("HeadsLattice", sources.lattice(sizes))  # a dump's are not drawn from
    return DrawnDrafter(lattice, _rescorer(sources, "paths"), paths=sizes.paths or 1)


def neural(sources: Sources, sizes: Sizes) -> Drafter:
    from rescore.decode.draft.neural_drafter import NeuralDrafter, NeuralRescorer

    assert sources.neural is not None
    (alpha,) = sources.alpha
    weights = alpha if len(alpha) > 1 else alpha[0]
    rescorer = NeuralRescorer(sources.neural, vocab_size=sources.vocab_size, alpha=weights, paths=sizes.paths or 1)
    return NeuralDrafter(sources.lattice(sizes), rescorer)


def medusa_tree(sources: Sources, sizes: Sizes) -> Drafter:
    from rescore.decode.draft.lattice_drafters import LatticeTreeDrafter

    assert sources.static is not None
    return LatticeTreeDrafter(sources.lattice(sizes), sources.static.trees, nodes=sizes.number)


def eagle_2_tree(sources: Sources, sizes: Sizes) -> Drafter:
    from rescore.decode.draft.lattice_drafters import LatticeTreeDrafter, dynamic_trees

    return LatticeTreeDrafter(sources.lattice(sizes), dynamic_trees, nodes=sizes.number)


def tree(sources: Sources, sizes: Sizes) -> Drafter:
    """Of the heads' candidates, rescored by the n-gram model if there is one."""
    return _tree(sources, sizes, _rescorer(sources, "trees"))


def blend(sources: Sources, sizes: Sizes) -> Drafter:
    """Of all sources that are there; of heads and a small model the heads."""
    from rescore.decode.draft.blended_drafter import blend_rescorer
    from rescore.decode.draft.calibration import DEFAULT

    settings, small = sources.settings, None if sources.lattices else sources.draft_model
    calibration = settings.calibration if settings else DEFAULT
    if not sources.lattices:
        calibration = calibration.without_heads()
    lattice = None
    if small:
        from rescore.decode.draft.model_lattice import DEFAULT_TOP_K, MODEL, ModelLattice

        calibration = structs.replace(MODEL, text=calibration.text)
        lattice = ModelLattice(model=small, vocab_size=sources.vocab_size, top_k=sizes.top_k or DEFAULT_TOP_K)
    lm, memory, threads = next(iter(sources.models), None), sources.memory, sources.threads
    if not sources.text:
        calibration = structs.replace(calibration, text=None)
        if sources.slots and not sources.lattices:  # as deep as the lattices, to compare with
            sizes = replace(sizes, ahead=sizes.ahead or sources.slots)
    rescorer = blend_rescorer(sources.vocab_size, lm, calibration, memory=memory, threads=threads)
    return _tree(sources, sizes, rescorer, lattice)


def draft_model(sources: Sources, sizes: Sizes) -> Drafter:
    from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
    from rescore.decode.models.draft_step import PathHeads

    assert sources.draft_model is not None and sizes.ahead is not None
    small, ahead, drawn = sources.draft_model, sizes.ahead, sources.sampled
    if isinstance(small, PathHeads):
        raise ValueError("draft-model: expected a small model, got a head that reads the target's states; use blend")
    return DraftModelDrafter(small, gamma=ahead, vocab_size=sources.vocab_size, drawn=drawn)


def published(name: str) -> Callable[[Sources, Sizes], Drafter]:
    """Makes the drafter of a method of `published/`: "racer.Racer"."""

    def make(sources: Sources, sizes: Sizes) -> Drafter:
        from rescore.decode.draft.published.baseline import BaselineDrafter

        module, _, method = name.partition(".")
        found = getattr(import_module(f"rescore.decode.draft.published.{module}"), method)
        return BaselineDrafter(found, sizes.number if sizes.nodes else sizes.ahead)

    return make


def none(sources: Sources, sizes: Sizes) -> None:
    """No drafter: plain decoding."""


def _tree(sources: Sources, sizes: Sizes, rescorer: Rescorer, lattice: Growing | None = None) -> Drafter:
    from rescore.decode.draft.pace import AutoWidth
    from rescore.decode.draft.tree_drafter import TreeDrafter

    assert sizes.nodes != AUTO or sources.target is not None, "a target, whose passes are timed"
    nodes = AutoWidth(sources.target) if sizes.nodes == AUTO and sources.target else sizes.number
    lattices = sources.lattice(sizes) if sources.lattices else lattice
    return TreeDrafter(lattices, rescorer, nodes=nodes, depth=sizes.ahead, chains=sources.chains)


def _rescorer(sources: Sources, drafts: str) -> Rescorer:
    """With the n-gram models at their weights, or at those that settings have for "paths" or "trees"; without any, that
    of the heads alone.
    """
    from rescore.decode.draft.rescorer import Rescorer

    models, settings, threads = sources.models, sources.settings, sources.threads
    if not settings or not models:
        return Rescorer(models, alpha=sources.alpha if models else None, threads=threads)
    if drafts == "paths":
        return settings.rescorer(models=models, threads=threads)
    return settings.calibrated(open=False, models=models, threads=threads)
