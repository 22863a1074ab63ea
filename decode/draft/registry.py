"""All drafters by name, a line each: commands offer them, explain them and make them from this table.

A new drafter is a file in this folder, with a function `of_sources(sources, options)` that makes it, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rescore.decode.draft.drafter import Drafter
    from rescore.decode.draft.sources import DraftSources, Options

PATHS = 16
LATTICE: dict[str, Any] = {"top_k": None}
WEIGHTED = {"lm": (), "alpha": None, **LATTICE}
BLENDED = {"settings": None, "lm": (), "memory": None, "nodes": "auto", "top_k": None, "ahead": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A drafter.

    name      its only spelling, in commands, JSON and tables
    title     what it drafts
    home      the module of its `of_sources`
    options   of a command line that it uses, by their names there, and their defaults
    fixed     further arguments of `of_sources`
    needs     of "heads", "lm", "counts", "neural", "draft_model" and "temperature", what it cannot do without
    leaves    of its drafts, at most; None: as many as paths, or nodes
    nested    whether its draft of n nodes is the beginning of a larger one
    replayed  whether a dump can play the target's part: not for drawn drafts, and what needs a model
    cites     where it was published; one that needs no heads is replayed only for models without, to compare with
    """

    name: str
    title: str
    home: str
    options: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    leaves: int | None = None
    nested: bool = True
    replayed: bool = True
    cites: str = ""

    @property
    def of_heads(self) -> bool:
        return "heads" in self.needs

    @property
    def searches_q(self) -> bool:
        """Whether it searches trees under a q, which says what each node is expected to gain."""
        return self.options.get("nodes") == "auto"

    def make(self, sources: DraftSources, options: Options) -> Drafter | None:
        """The drafter; `options` has values of those of `options` that are not the defaults, and `chains` of
        `TreeDrafter`. `Missing` if it lacks a source.
        """
        of_sources = import_module(f"rescore.{self.home}").of_sources
        return of_sources(sources, {**self.options, **self.fixed, **options})


def _spec(name: str, home: str, title: str, options: Mapping[str, Any], **more: Any) -> Spec:
    return Spec(name=name, title=title, home=home, options=options, **more)


SPECS: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        _spec("base", "decode.draft.path_drafter", "each head's first candidate", LATTICE, needs=("heads",), leaves=1),
        _spec(
            "parallel-base",
            "decode.draft.path_drafter",
            "the P best paths of the heads' lattice",
            {"paths": PATHS, **LATTICE},
            needs=("heads",),
        ),
        _spec(
            "rescored",
            "decode.draft.path_drafter",
            "the best path of the heads' lattice, rescored by --lm",
            WEIGHTED,
            needs=("heads", "lm"),
            cites="Kim et al. 2024, section 7.2",
            leaves=1,
        ),
        _spec(
            "parallel-rescored",
            "decode.draft.path_drafter",
            "its P best paths",
            {**WEIGHTED, "settings": None, "paths": PATHS},
            needs=("heads", "lm"),
            cites="Kim et al. 2024, section 7.2",
        ),
        _spec(
            "drawn",
            "decode.draft.drawn_drafter",
            "P paths sampled from the lattice (temperature above 0)",
            {**WEIGHTED, "paths": 1},
            needs=("heads", "temperature"),
            replayed=False,
        ),
        _spec(
            "neural",
            "decode.draft.neural_drafter",
            "P paths of the lattice, rescored by a small model",
            {"neural": None, "alpha": None, "paths": 1, **LATTICE},
            needs=("heads", "neural"),
            replayed=False,
            cites="Kim et al. 2024, section 7.1",
        ),
        _spec(
            "medusa-tree",
            "decode.draft.lattice_tree_drafter",
            "the tree of ranks that a dump's text most often follows (--counts)",
            {"nodes": 64, "counts": None, **LATTICE},
            needs=("heads", "counts"),
            cites="Cai et al. 2024, Medusa",
        ),
        _spec(
            "eagle-2-tree",
            "decode.draft.lattice_tree_drafter",
            "a tree grown layer by layer from the heads' probabilities",
            {"nodes": 64, **LATTICE},
            needs=("heads",),
            cites="Li et al. 2024, EAGLE-2",
        ),
        _spec(
            "heads-tree",
            "decode.draft.tree_drafter",
            "the N most probable prefixes of the heads' lattice",
            {"nodes": "auto", **LATTICE},
            needs=("heads",),
        ),
        _spec(
            "tree",
            "decode.draft.tree_drafter",
            "the same, rescored by --lm, or calibrated by `rescore tune` (--settings)",
            {**WEIGHTED, "settings": None, "nodes": "auto"},
            needs=("heads", "lm"),
        ),
        _spec(
            "pushed-tree",
            "decode.draft.tree_drafter",
            "the same, under the q of whole paths",
            {**WEIGHTED, "nodes": 64},
            fixed={"pushed": True},
            needs=("heads", "lm"),
        ),
        _spec(
            "lm-alone",
            "decode.draft.ngram_drafter",
            "a tree from --lm alone",
            {"lm": (), "nodes": 16, "ahead": None},
            needs=("lm",),
        ),
        _spec(
            "prompt-lookup",
            "decode.draft.prompt_lookup",
            "what follows the first earlier occurrence of the last tokens, at most 10",
            {"ahead": 10},
            cites="Saxena 2023",
            leaves=1,
        ),
        _spec(
            "token-recycling",
            "decode.draft.token_recycling",
            "the published tree, of 80, of the model's last predictions after each token; with --nodes the best one",
            {"nodes": None},
            leaves=80,
            cites="Luo et al. 2024",
        ),
        _spec(
            "suffix-decoding",
            "decode.draft.suffix_decoding",
            "the most frequent continuations of what matches the end of the text",
            {"nodes": 16},
            nested=False,  # the match that it follows depends on the size
            cites="Oliaro et al. 2024",
        ),
        _spec(
            "logit-spec",
            "decode.draft.logit_spec",
            "what followed the end of the text, or a token that the last logits find probable",
            {"nodes": 64},
            cites="Liu et al. 2025",
        ),
        _spec(
            "racer",
            "decode.draft.racer",
            "the most frequent continuations of what matches the end of the text, then the model's last predictions",
            {"nodes": 64},
            nested=False,  # nodes that several matches share count towards the size more than once
            cites="Zhang et al. 2026",
        ),
        _spec(
            "blend-without-lm",
            "decode.draft.blended_drafter",
            "blend without --lm",
            BLENDED,
            fixed={"without": "lm"},
            needs=("lm",),
        ),
        _spec(
            "blend-without-heads",
            "decode.draft.blended_drafter",
            "blend without the heads",
            BLENDED,
            fixed={"without": "heads"},
            needs=("heads",),
        ),
        _spec(
            "blend",
            "decode.draft.blended_drafter",
            "the N most probable continuations under all sources: the running text, the model's predictions after "
            "rejected drafts, --lm, and heads if there are any",
            BLENDED,
        ),
        _spec(
            "draft-model",
            "decode.draft.draft_model_drafter",
            "the continuation that a small model generates",
            {"draft_model": None, "ahead": 4},
            replayed=False,
            cites="Leviathan et al. 2023; Chen et al. 2023",
            needs=("draft_model",),
            leaves=1,
        ),
        _spec("none", "decode.draft.sources", "plain decoding, one token per pass", {}, leaves=1, replayed=False),
    )
}
