"""Drafters by family: `tree_16` and `tree_64` are two budgets of one way to draft."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A curve of plots. key: of its colour in the page's style; names: the drafters' names without their budget; dash:
    of its line.
    """

    key: str
    title: str
    names: tuple[str, ...]
    dash: str = "solid"


FAMILIES = (
    Family(key="open", title="open tree", names=("open",)),
    Family(key="lm-text", title="LM and text alone", names=("lm_text",), dash="dash"),
    Family(key="tuned", title="calibrated tree", names=("tuned",)),
    Family(key="tree", title="tree, with LM", names=("tree",)),
    Family(key="tree-base", title="tree of heads", names=("tree_base",)),
    Family(key="pushed", title="tree, pushed q", names=("pushed",), dash="dot"),
    Family(key="medusa", title="Medusa's tree", names=("static",), dash="dash"),
    Family(key="eagle", title="EAGLE-2's tree", names=("dynamic",), dash="dashdot"),
    Family(key="paths", title="paths, with LM", names=("rescored", "parallel_rescored")),
    Family(key="paths-base", title="paths of heads", names=("base", "parallel_base")),
    Family(key="neural", title="neural LM, slot by slot", names=("neural", "neural_beam"), dash="dot"),
    Family(key="lm-alone", title="LM alone", names=("lm_alone",)),
    Family(key="tuned", title="tuned blend", names=("blend_tuned",)),
    Family(key="open", title="blend", names=("blend",)),
    Family(key="tree", title="tuned blend without soft counts", names=("hard_tuned",), dash="dot"),
    Family(key="tree", title="blend without soft counts", names=("hard",), dash="dash"),
    Family(key="lm-text", title="tuned blend without LM", names=("text_tuned",), dash="dot"),
    Family(key="lm-text", title="blend without LM", names=("text",), dash="dash"),
    Family(key="pushed", title="suffix decoding", names=("suffix",)),
    Family(key="eagle", title="Token Recycling", names=("recycling",)),
    Family(key="medusa", title="Token Recycling, static tree", names=("recycling_static",)),
    Family(key="paths-base", title="prompt lookup", names=("prompt_lookup",)),
    Family(key="oracle", title="oracle", names=("oracle",), dash="dash"),
)
LABELS = {
    "tree_base": "tree of heads",
    "tree": "tree",
    "pushed": "tree of pushed q",
    "base": "base",
    "rescored": "rescored",
    "parallel_base": "parallel base",
    "parallel_rescored": "parallel rescored",
    "neural": "neural",
    "neural_beam": "neural beam",
    "oracle": "oracle",
}


def split(name: str) -> tuple[str, int | None]:
    """The drafter's name without its budget, and the budget: ("tree", 16) of tree_16."""
    match = re.fullmatch(r"(.*?)_(\d+)", name)
    return (match[1], int(match[2])) if match else (name, None)


def family_of(name: str) -> Family:
    """That of a drafter; one of its own for a drafter that the page does not know."""
    stem, _ = split(name)
    known = next((family for family in FAMILIES if stem in family.names), None)
    return known or Family(key="other", title=stem.replace("_", " "), names=(stem,))


def label(name: str) -> str:
    """A drafter as tables name it."""
    stem, budget = split(name)
    title = LABELS.get(stem) or family_of(name).title
    return title if budget is None else f"{title} {budget}"


def curves(names: list[str]) -> list[tuple[Family, list[str]]]:
    """The families among the drafters, each with its own in the order given."""
    found: dict[str, tuple[Family, list[str]]] = {}
    for name in names:
        family = family_of(name)
        found.setdefault(family.title, (family, []))[1].append(name)
    order = {family.title: place for place, family in enumerate(FAMILIES)}
    return sorted(found.values(), key=lambda one: order.get(one[0].title, len(order)))
