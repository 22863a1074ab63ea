"""All drafters by name, a line each: commands offer them, explain them and make them from this table.

A new drafter is a file in this folder, with a function `of_sources(sources, options)` that makes it, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rescore.decode.draft import DEFAULT_TOP_K

if TYPE_CHECKING:
    from rescore.decode.draft.drafter import Drafter, DraftSources

PATHS = 16
WEIGHTED = {"lm": (), "alpha": None, "top_k": DEFAULT_TOP_K}
BLEND = {"settings": None, "lm": (), "memory": None, "nodes": "auto", "top_k": None, "ahead": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A drafter.

    name      its only spelling, in commands, JSON and tables
    title     what it drafts
    home      the module of its `of_sources`
    options   of a command line that it uses, by their names there, and their defaults
    fixed     further arguments of `of_sources`
    of_heads  whether it drafts from the model's heads
    leaves    of its drafts, at most, where neither --paths nor --nodes says so
    cites     where it was published
    """

    name: str
    title: str
    home: str
    options: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    of_heads: bool = False
    leaves: int = 1
    cites: str = ""

    def make(self, sources: DraftSources, options: Mapping[str, Any]) -> Drafter | None:
        """The drafter; `options` has a value for each of `options`. ValueError if a source that it needs is missing."""
        return import_module(f"rescore.{self.home}").of_sources(sources, {**self.fixed, **options})


def _spec(name: str, home: str, title: str, options: Mapping[str, Any], **more: Any) -> Spec:
    return Spec(name=name, title=title, home=home, options=options, **more)


SPECS: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        _spec(
            "blend",
            "decode.draft.blended_drafter",
            "the N most probable continuations under all sources: the running text, the model's predictions after "
            "rejected drafts, --lm, and heads if there are any",
            BLEND,
            fixed={"heads": True},
        ),
        _spec(
            "blend-without-heads",
            "decode.draft.blended_drafter",
            "the same, ignoring the heads",
            BLEND,
            fixed={"heads": False},
        ),
        _spec(
            "tree",
            "decode.draft.tree_drafter",
            "the N most probable prefixes of the heads' lattice, rescored by --lm",
            {**WEIGHTED, "nodes": "auto"},
            of_heads=True,
        ),
        _spec(
            "calibrated-tree",
            "decode.draft.tree_drafter",
            "the same, q fitted by `rescore tune` (--settings)",
            {"settings": None, "nodes": "auto", "top_k": None},
            fixed={"kind": "closed"},
            of_heads=True,
        ),
        _spec(
            "open-tree",
            "decode.draft.tree_drafter",
            "calibrated-tree, plus tokens that no head lists, proposed by --lm and the running text; --settings is "
            "optional",
            {"settings": None, "lm": (), "nodes": "auto", "top_k": None},
            fixed={"kind": "open"},
            of_heads=True,
        ),
        _spec("rescored", "decode.draft.path_drafter", "the best path of the heads' lattice", WEIGHTED, of_heads=True),
        _spec(
            "parallel-rescored",
            "decode.draft.path_drafter",
            "its P best paths",
            {**WEIGHTED, "paths": PATHS},
            of_heads=True,
        ),
        _spec(
            "base",
            "decode.draft.path_drafter",
            "the first candidate of every head",
            {"top_k": DEFAULT_TOP_K},
            of_heads=True,
        ),
        _spec(
            "neural",
            "decode.draft.neural_drafter",
            "P paths of the lattice, rescored by a small model",
            {"neural": None, "alpha": None, "paths": 1, "top_k": DEFAULT_TOP_K},
            of_heads=True,
            cites="Kim et al. 2024, section 7.1",
        ),
        _spec(
            "drawn",
            "decode.draft.drawn_drafter",
            "P paths sampled from the lattice (temperature above 0)",
            {**WEIGHTED, "paths": 1},
            of_heads=True,
        ),
        _spec(
            "eagle-2-tree",
            "decode.draft.lattice_tree_drafter",
            "a tree grown layer by layer from the heads' probabilities",
            {"nodes": 64, "top_k": DEFAULT_TOP_K},
            of_heads=True,
            cites="Li et al. 2024, EAGLE-2",
        ),
        _spec(
            "draft-model",
            "decode.draft.draft_model_drafter",
            "the continuation that a small model generates",
            {"draft_model": None, "ahead": 4},
            cites="Leviathan et al. 2023; Chen et al. 2023",
        ),
        _spec(
            "lm-alone",
            "decode.draft.ngram_drafter",
            "a tree from --lm alone, no heads",
            {"lm": (), "nodes": 16, "ahead": 8},
        ),
        _spec(
            "prompt-lookup",
            "decode.draft.prompt_lookup",
            "what follows the first earlier occurrence of the last tokens",
            {"ahead": 10},
            cites="Saxena 2023",
        ),
        _spec(
            "token-recycling",
            "decode.draft.token_recycling",
            "the published tree of the model's last predictions after each token; with --nodes the best one",
            {"nodes": None},
            leaves=80,
            cites="Luo et al. 2024",
        ),
        _spec(
            "suffix-decoding",
            "decode.draft.suffix_decoding",
            "the most frequent continuations of what matches the end of the text",
            {"nodes": 16},
            cites="Oliaro et al. 2024",
        ),
        _spec("none", "decode.draft.drafter", "plain decoding, one token per pass", {}),
    )
}
