"""All drafters by name, a line each: commands offer them, explain them and make them from this table.

A new drafter is a file in this folder, a function in `makers.py` that makes it from sources and sizes, and a line here.

Tables, JSON and reports show a drafter in one row or several, which differ in the sources that are left out. A row has
a title, then what it drafts with, then its budget:

    blend 16                    16 nodes or paths
    blend tuned 16              with the weights of settings
    blend tuned with memory 16  with earlier texts as a further source

"oracle" is no drafter but the best choice in the lattice, "neural beam" is `neural` with several paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from rescore.decode.draft import WITHOUT, makers
from rescore.decode.draft.sources import AUTO, Sizes, Sources

if TYPE_CHECKING:
    from rescore.decode.draft.drafter import Drafter

# What a drafter may need, and how to give it.
NEEDS = {
    "heads": "expected a model with heads, got one without",
    "lm": "expected at least one --lm, or --settings with a file written by `rescore tune`, got none",
    "counts": "expected --counts with a dump of the model's heads, got none",
    "neural": "expected --neural with a small model, got none",
    "draft_model": "expected --draft-model with a small model, or --heads early:L, got none",
    "temperature": "needs sampled text; give --temperature above 0",
}
FEW = 16  # nodes at which drafters are compared first


@dataclass(frozen=True, slots=True)
class Row:
    """A row of tables.

    title    its only spelling
    without  of `WITHOUT`, the sources that it leaves out though they are there
    needs    of `NEEDS`, without which it would repeat another row
    sizes    in place of the drafter's
    varied   whether it is also replayed with settings and with a memory
    leads    the budgets (None: its own) at which it is among the first rows of a table, in the order of this one
    place    of several rows with one place the last that was replayed leads
    """

    title: str
    _: KW_ONLY
    without: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    sizes: Sizes | None = None
    varied: bool = True
    leads: tuple[int | None, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class Spec:
    """A drafter.

    name      its only spelling, in commands
    make      makes it from sources and sizes
    title     what it drafts
    options   of a command line, that it uses
    sizes     the defaults
    needs     of `NEEDS`, what it cannot do without
    without   of `WITHOUT`, the sources that it uses and can do without
    one_lm    whether it weighs a single n-gram model
    leaves    of its drafts, at most; None: as many as paths, or nodes
    nested    whether its draft of n nodes is the beginning of a larger one
    replayed  whether a dump can play the target's part: not for drawn drafts, and what needs a model
    cites     where it was published; one that needs no heads is replayed only for models without, to compare with
    leads     as of a row, if it has one, of its name
    several   its rows, if they are several
    """

    name: str
    make: Callable[[Sources, Sizes], Drafter | None]
    title: str
    _: KW_ONLY
    options: tuple[str, ...] = ()
    sizes: Sizes = Sizes()
    needs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    one_lm: bool = False
    leaves: int | None = None
    nested: bool = True
    replayed: bool = True
    cites: str = ""
    leads: tuple[int | None, ...] = ()
    several: tuple[Row, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.several or (Row(self.name, leads=self.leads),)

    @property
    def of_heads(self) -> bool:
        return "heads" in self.needs

    @property
    def searches_q(self) -> bool:
        """Whether it searches trees under a q, which says what each node is expected to gain."""
        return self.sizes.nodes == AUTO

    def lacks(self, given: Collection[str], models: int, *, tuned: bool = False) -> str | None:
        """What is missing, or too much, and what to do; None if nothing is.

        given: names of `NEEDS`; models: how many n-gram models there are; tuned: whether settings have them
        """
        for need in self.needs:
            if need not in given:
                return NEEDS[need]
        if not self.one_lm or models < 2:
            return None
        from rescore.decode.draft.rescorer import MERGE

        if tuned:
            return f"the settings have several n-gram models, and so no trees; {MERGE}, and tune again"
        return f"expected one --lm, got {models}; {MERGE}"


KIM = "Kim et al. 2024, section 7.2"
SPECS: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        Spec(
            "paths",
            makers.paths,
            "the P best paths of the heads' lattice, rescored by --lm if there is any",
            options=("lm", "alpha", "top_k", "settings", "paths", "without"),
            sizes=Sizes(paths=16),
            needs=("heads",),
            without=("lm",),
            cites=KIM,
            several=(
                Row("base", without=("lm",), sizes=Sizes(paths=1), varied=False, leads=(None,)),
                Row("parallel-base", without=("lm",), varied=False, leads=(None,), place="paths"),
                Row("rescored", needs=("lm",), sizes=Sizes(paths=1), varied=False),
                Row("parallel-rescored", needs=("lm",), leads=(None,), place="paths"),
            ),
        ),
        Spec(
            "drawn",
            makers.drawn,
            "P paths sampled from the lattice (temperature above 0)",
            options=("lm", "alpha", "top_k", "paths"),
            sizes=Sizes(paths=1),
            needs=("heads", "temperature"),
            replayed=False,
        ),
        Spec(
            "neural",
            makers.neural,
            "P paths of the lattice, rescored by a small model",
            options=("neural", "alpha", "paths", "top_k"),
            sizes=Sizes(paths=1),
            needs=("heads", "neural"),
            replayed=False,
            cites="Kim et al. 2024, section 7.1",
        ),
        Spec(
            "medusa-tree",
            makers.medusa_tree,
            "the tree of ranks that a dump's text most often follows (--counts)",
            options=("nodes", "counts", "top_k"),
            sizes=Sizes(nodes=64),
            needs=("heads", "counts"),
            cites="Cai et al. 2024, Medusa",
        ),
        Spec(
            "eagle-2-tree",
            makers.eagle_2_tree,
            "a tree grown layer by layer from the heads' probabilities",
            options=("nodes", "top_k"),
            sizes=Sizes(nodes=64),
            needs=("heads",),
            cites="Li et al. 2024, EAGLE-2",
        ),
        Spec(
            "tree",
            makers.tree,
            "the N most probable prefixes of the heads' lattice, rescored by --lm, or calibrated by `rescore tune` "
            "(--settings)",
            options=("lm", "alpha", "top_k", "settings", "nodes", "without"),
            sizes=Sizes(nodes=AUTO),
            needs=("heads",),
            without=("lm",),
            one_lm=True,
            several=(
                Row("heads-tree", without=("lm",), varied=False, leads=(FEW,), place="tree"),
                Row("tree", needs=("lm",), leads=(FEW,), place="tree"),
            ),
        ),
        Spec(
            "prompt-lookup",
            makers.published("prompt_lookup.PromptLookup"),
            "what follows the first earlier occurrence of the last tokens, at most 10",
            options=("ahead",),
            sizes=Sizes(ahead=10),
            cites="Saxena 2023",
            leaves=1,
            leads=(None,),
        ),
        Spec(
            "suffix-decoding",
            makers.published("suffix_decoding.SuffixTree"),
            "the most frequent continuations of what matches the end of the text",
            options=("nodes",),
            sizes=Sizes(nodes=16),
            nested=False,  # the match that it follows depends on the size
            cites="Oliaro et al. 2024",
            leads=(FEW,),
        ),
        Spec(
            "token-recycling",
            makers.published("token_recycling.TokenRecycling"),
            "the published tree, of 80, of the model's last predictions after each token; with --nodes the best one",
            options=("nodes",),
            leaves=80,
            cites="Luo et al. 2024",
            leads=(FEW,),
        ),
        Spec(
            "logit-spec",
            makers.published("logit_spec.FollowedText"),
            "what followed the end of the text, or a token that the last logits find probable",
            options=("nodes",),
            sizes=Sizes(nodes=64),
            cites="Liu et al. 2025",
            leads=(FEW,),
        ),
        Spec(
            "racer",
            makers.published("racer.Racer"),
            "the most frequent continuations of what matches the end of the text, then the model's last predictions",
            options=("nodes",),
            sizes=Sizes(nodes=64),
            nested=False,  # nodes that several matches share count towards the size more than once
            cites="Zhang et al. 2026",
            leads=(FEW,),
        ),
        Spec(
            "blend",
            makers.blend,
            "the N most probable continuations under all sources: the running text, the model's predictions after "
            "rejected drafts, --lm, --draft-model, and heads if there are any; --without leaves some out",
            options=("settings", "lm", "draft_model", "memory", "nodes", "top_k", "ahead", "without"),
            sizes=Sizes(nodes=AUTO),
            without=WITHOUT,
            one_lm=True,
            several=(
                Row(
                    "lm-alone",
                    without=("heads", "text"),
                    needs=("lm",),
                    sizes=Sizes(nodes=FEW),
                    varied=False,
                    leads=(FEW,),
                    place="control",
                ),
                Row("blend-without-lm", without=("lm",), needs=("lm",)),
                Row("blend-without-heads", without=("heads",), needs=("heads",), leads=(FEW,), place="control"),
                Row("blend", leads=(FEW, 64)),
            ),
        ),
        Spec(
            "draft-model",
            makers.draft_model,
            "the continuation that a small model generates, of no other source: the papers' own form",
            options=("draft_model", "ahead"),
            sizes=Sizes(ahead=4),
            replayed=False,
            cites="Leviathan et al. 2023; Chen et al. 2023",
            needs=("draft_model",),
            leaves=1,
        ),
        Spec("none", makers.none, "plain decoding, one token per pass", leaves=1, replayed=False),
    )
}


def uses_heads_alone(name: str) -> bool:
    """Whether a row's drafts are of the heads' candidates alone, so that the oracle bounds what they gain."""
    return not name.startswith(("blend", "lm-alone"))


def row_name(name: str, budget: int | None) -> str:
    """The name of a row: "tree tuned 16". budget: nodes or paths; None for the drafter's own."""
    return name if budget is None else f"{name} {budget}"


def split(name: str) -> tuple[str, int | None]:
    """Splits off the budget: ("tree tuned", 16) for "tree tuned 16"; None if the name has no budget."""
    match = re.fullmatch(r"(.*?) (\d+)", name)
    return (match[1], int(match[2])) if match else (name, None)
