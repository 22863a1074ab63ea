"""All drafters by name, a line each: commands offer them, explain them and make them from this table.

A new drafter is a file in this folder, with a function of its name (`heads_tree`) that makes it from its sources, and a
line here. The function's keywords are the options of a command line that it uses.

A row of tables, JSON and reports has a drafter's name, then what it drafts with, then its budget:

    blend 16                    16 nodes or paths
    blend tuned 16              with the weights of settings; "tuned by task": with those of its task
    blend tuned with memory 16  with earlier texts as a further source

"oracle" is no drafter but the best choice in the lattice, "neural beam" is `neural` with several paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rescore.decode.draft.drafter import Drafter
    from rescore.decode.draft.sources import DraftSources

# Homes of several drafters.
LATTICES = "decode.draft.lattice_drafters"
TREES = "decode.draft.trees_of_sources"
HEADS = ("heads",)
PAPER: dict[str, Any] = {"needs": (*HEADS, "lm"), "cites": "Kim et al. 2024, section 7.2"}


@dataclass(frozen=True, slots=True)
class Spec:
    """A drafter.

    name      its only spelling, in commands, JSON and tables
    home      the module of its function; "blend-without-lm" is `blend` without "lm"
    title     what it drafts
    needs     of "heads", "lm", "counts", "neural", "draft_model" and "temperature", what it cannot do without
    leaves    of its drafts, at most; None: as many as paths, or nodes
    nested    whether its draft of n nodes is the beginning of a larger one
    replayed  whether a dump can play the target's part: not for drawn drafts, and what needs a model
    cites     where it was published; one that needs no heads is replayed only for models without, to compare with
    """

    name: str
    home: str
    title: str
    _: KW_ONLY
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

    @property
    def options(self) -> dict[str, Any]:
        """The options of a command line that it uses, by their names there, and their defaults."""
        parameters = signature(self.function).parameters.values()
        return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}

    @property
    def function(self) -> Callable[..., Drafter | None]:
        """Makes it from sources and options."""
        name = self.name.partition("-without-")[0]
        return getattr(import_module(f"rescore.{self.home}"), name.replace("-", "_"))

    def make(self, sources: DraftSources, **options: Any) -> Drafter | None:
        """The drafter with these of its `options`, others as they are by default. `Missing` if it lacks a source."""
        without = self.name.partition("-without-")[2]
        return self.function(sources, *([without] if without else []), **options)


SPECS: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        Spec("base", LATTICES, "each head's first candidate", needs=HEADS, leaves=1),
        Spec("parallel-base", LATTICES, "the P best paths of the heads' lattice", needs=HEADS),
        Spec("rescored", LATTICES, "the best path of the heads' lattice, rescored by --lm", **PAPER, leaves=1),
        Spec("parallel-rescored", LATTICES, "its P best paths", **PAPER),
        Spec(
            "drawn",
            "decode.draft.drawn_drafter",
            "P paths sampled from the lattice (temperature above 0)",
            needs=(*HEADS, "temperature"),
            replayed=False,
        ),
        Spec(
            "neural",
            "decode.draft.neural_drafter",
            "P paths of the lattice, rescored by a small model",
            needs=(*HEADS, "neural"),
            replayed=False,
            cites="Kim et al. 2024, section 7.1",
        ),
        Spec(
            "medusa-tree",
            LATTICES,
            "the tree of ranks that a dump's text most often follows (--counts)",
            needs=(*HEADS, "counts"),
            cites="Cai et al. 2024, Medusa",
        ),
        Spec(
            "eagle-2-tree",
            LATTICES,
            "a tree grown layer by layer from the heads' probabilities",
            needs=HEADS,
            cites="Li et al. 2024, EAGLE-2",
        ),
        Spec("heads-tree", TREES, "the N most probable prefixes of the heads' lattice", needs=HEADS),
        Spec(
            "tree",
            TREES,
            "the same, rescored by --lm, or calibrated by `rescore tune` (--settings)",
            needs=(*HEADS, "lm"),
        ),
        Spec("pushed-tree", LATTICES, "the same, under the q of whole paths", needs=(*HEADS, "lm")),
        Spec("lm-alone", TREES, "a tree from --lm alone", needs=("lm",)),
        Spec(
            "prompt-lookup",
            "decode.draft.published.prompt_lookup",
            "what follows the first earlier occurrence of the last tokens, at most 10",
            cites="Saxena 2023",
            leaves=1,
        ),
        Spec(
            "token-recycling",
            "decode.draft.published.token_recycling",
            "the published tree, of 80, of the model's last predictions after each token; with --nodes the best one",
            leaves=80,
            cites="Luo et al. 2024",
        ),
        Spec(
            "suffix-decoding",
            "decode.draft.published.suffix_decoding",
            "the most frequent continuations of what matches the end of the text",
            nested=False,  # the match that it follows depends on the size
            cites="Oliaro et al. 2024",
        ),
        Spec(
            "logit-spec",
            "decode.draft.published.logit_spec",
            "what followed the end of the text, or a token that the last logits find probable",
            cites="Liu et al. 2025",
        ),
        Spec(
            "racer",
            "decode.draft.published.racer",
            "the most frequent continuations of what matches the end of the text, then the model's last predictions",
            nested=False,  # nodes that several matches share count towards the size more than once
            cites="Zhang et al. 2026",
        ),
        Spec("blend-without-lm", TREES, "blend without --lm", needs=("lm",)),
        Spec("blend-without-heads", TREES, "blend without the heads", needs=HEADS),
        Spec(
            "blend",
            TREES,
            "the N most probable continuations under all sources: the running text, the model's predictions after "
            "rejected drafts, --lm, and heads if there are any",
        ),
        Spec(
            "draft-model",
            "decode.draft.draft_model_drafter",
            "the continuation that a small model generates",
            replayed=False,
            cites="Leviathan et al. 2023; Chen et al. 2023",
            needs=("draft_model",),
            leaves=1,
        ),
        Spec("none", "decode.draft.sources", "plain decoding, one token per pass", leaves=1, replayed=False),
    )
}


def uses_heads_alone(name: str) -> bool:
    """Whether a drafter's drafts are of the heads' candidates alone, so that the oracle bounds what they gain."""
    return not name.startswith(("blend", "lm-alone"))


def row_name(name: str, budget: int | None) -> str:
    """The name of a row: "tree tuned 16". budget: nodes or paths; None for the drafter's own."""
    return name if budget is None else f"{name} {budget}"


def split(name: str) -> tuple[str, int | None]:
    """Splits off the budget: ("tree tuned", 16) for "tree tuned 16"; None if the name has no budget."""
    match = re.fullmatch(r"(.*?) (\d+)", name)
    return (match[1], int(match[2])) if match else (name, None)
