"""The names of drafters, and of the rows of tables, JSON and reports."""

from __future__ import annotations

import re

# Drafts of the heads' lattice.
BASE, PARALLEL_BASE, RESCORED, PARALLEL_RESCORED = "base", "parallel-base", "rescored", "parallel-rescored"
NEURAL, MEDUSA_TREE, EAGLE_TREE = "neural", "medusa-tree", "eagle-2-tree"
HEADS_TREE, TREE, PUSHED_TREE = "heads-tree", "tree", "pushed-tree"
# Without heads, or with and without.
LM_ALONE, PROMPT_LOOKUP, SUFFIX_DECODING, RECYCLING = "lm-alone", "prompt-lookup", "suffix-decoding", "token-recycling"
BLEND, WITHOUT_HEADS, WITHOUT_LM = "blend", "blend-without-heads", "blend-without-lm"
ORACLE = "oracle"  # of the lattice: no drafter

# What may follow in a row's name: weights of settings, a further source.
TUNED, BY_TASK, WITH_MEMORY = " tuned", " tuned by task", " with memory"
TUNED_TREE, TUNED_BLEND = TREE + TUNED, BLEND + TUNED
PARALLEL = (PARALLEL_BASE, PARALLEL_RESCORED, PARALLEL_RESCORED + TUNED)  # several drafts as a batch
NEURAL_BEAM = "neural beam"  # `neural` of several paths, in a report


def bounded(name: str) -> bool:
    """Whether a drafter's drafts are of the heads' candidates alone, so that the oracle bounds what they gain."""
    return not name.startswith((BLEND, LM_ALONE))


def sized(name: str, budget: int | None) -> str:
    """The name of a row: "tree tuned 16". budget: nodes or paths; None for the drafter's own."""
    return name if budget is None else f"{name} {budget}"


def split(name: str) -> tuple[str, int | None]:
    """Splits off the budget: ("tree tuned", 16) for "tree tuned 16"; None if the name has no budget."""
    match = re.fullmatch(r"(.*?) (\d+)", name)
    return (match[1], int(match[2])) if match else (name, None)
