"""Drafters by family: "tree 16" and "tree 64" are two budgets of one family."""

from __future__ import annotations

from dataclasses import dataclass

from rescore.decode.draft.names import (
    BASE,
    BLEND,
    EAGLE_TREE,
    HEADS_TREE,
    LM_ALONE,
    MEDUSA_TREE,
    NEURAL,
    NEURAL_BEAM,
    ORACLE,
    PARALLEL_BASE,
    PARALLEL_RESCORED,
    PROMPT_LOOKUP,
    PUSHED_TREE,
    RECYCLING,
    RESCORED,
    SUFFIX_DECODING,
    TREE,
    TUNED,
    TUNED_BLEND,
    TUNED_TREE,
    WITHOUT_HEADS,
    WITHOUT_LM,
    split,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A curve of the plots.

    key    of its colour in the page's style
    names  of its drafters, without budget; the first is the curve's title
    dash   of its line
    """

    key: str
    names: tuple[str, ...]
    dash: str = "solid"

    @property
    def title(self) -> str:
        return self.names[0]


FAMILIES = (
    Family(key="tuned", names=(TUNED_BLEND,)),
    Family(key="open", names=(BLEND,)),
    Family(key="lm-text", names=(WITHOUT_HEADS,), dash="dash"),
    Family(key="lm-text", names=(WITHOUT_HEADS + TUNED,), dash="dashdot"),
    Family(key="lm-text", names=(WITHOUT_LM,), dash="dot"),
    Family(key="lm-text", names=(WITHOUT_LM + TUNED,), dash="longdash"),
    Family(key="tuned", names=(TUNED_TREE,), dash="dash"),
    Family(key="tree", names=(TREE,)),
    Family(key="tree-base", names=(HEADS_TREE,)),
    Family(key="pushed", names=(PUSHED_TREE,), dash="dot"),
    Family(key="medusa", names=(MEDUSA_TREE,), dash="dash"),
    Family(key="eagle", names=(EAGLE_TREE,), dash="dashdot"),
    Family(key="paths", names=(PARALLEL_RESCORED, RESCORED)),
    Family(key="paths", names=(PARALLEL_RESCORED + TUNED, RESCORED + TUNED), dash="dash"),
    Family(key="paths-base", names=(PARALLEL_BASE, BASE)),
    Family(key="neural", names=(NEURAL, NEURAL_BEAM), dash="dot"),
    Family(key="lm-alone", names=(LM_ALONE,)),
    Family(key="pushed", names=(SUFFIX_DECODING,)),
    Family(key="eagle", names=(RECYCLING,)),
    Family(key="paths-base", names=(PROMPT_LOOKUP,)),
    Family(key="oracle", names=(ORACLE,), dash="dash"),
)


def family_of(name: str) -> Family:
    """The family of a drafter; a new one for an unknown drafter."""
    stem, _ = split(name)
    known = next((family for family in FAMILIES if stem in family.names), None)
    return known or Family(key="other", names=(stem,))


def curves(names: list[str]) -> list[tuple[Family, list[str]]]:
    """The families of the drafters, each with its drafters in the given order."""
    found: dict[str, tuple[Family, list[str]]] = {}
    for name in names:
        family = family_of(name)
        found.setdefault(family.title, (family, []))[1].append(name)
    order = {family.title: place for place, family in enumerate(FAMILIES)}
    return sorted(found.values(), key=lambda one: order.get(one[0].title, len(order)))
