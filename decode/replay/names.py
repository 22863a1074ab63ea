"""The names of drafters in tables, JSON and reports.

The name of a drafter with several budgets ends with the budget: "open tree 16".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Whole drafts of the heads' lattice.
BASE, PARALLEL_BASE = "base", "parallel base"
RESCORED, PARALLEL_RESCORED = "rescored", "parallel rescored"
PARALLEL_TUNED = "parallel tuned"
NEURAL, NEURAL_BEAM = "neural", "neural beam"
ORACLE = "oracle"
PARALLEL = (PARALLEL_BASE, PARALLEL_RESCORED, PARALLEL_TUNED)  # several drafts as a batch

# Trees, with heads and without.
HEADS_TREE, TREE, PUSHED_TREE = "tree of heads", "tree", "tree of pushed q"
MEDUSA_TREE, EAGLE_TREE = "Medusa tree", "EAGLE-2 tree"
CALIBRATED_TREE, OPEN_TREE = "calibrated tree", "open tree"
LM_ALONE, LM_AND_TEXT = "LM alone", "LM and text"
HEADLESS = (LM_ALONE, LM_AND_TEXT)  # trees that need no heads

# For models without heads.
PROMPT_LOOKUP, SUFFIX_DECODING = "prompt lookup", "suffix decoding"
RECYCLING, STATIC_RECYCLING = "Token Recycling", "static Token Recycling"
BLENDED, WITHOUT_LM = "blend", "blend without LM"
WITH_MEMORY = "blend with memory"
TUNED_BLEND, TUNED_WITHOUT_LM = (f"tuned {name}" for name in (BLENDED, WITHOUT_LM))


def sized(name: str, budget: int) -> str:
    """Returns the name of a drafter with a budget."""
    return f"{name} {budget}"


def of_sizes(name: str, sizes: Iterable[int]) -> dict[str, int]:
    """Returns {name with budget: budget}."""
    return {sized(name, size): size for size in sizes}


def split(name: str) -> tuple[str, int | None]:
    """Splits off the budget: ("open tree", 16) for "open tree 16"; None if the name has no budget."""
    match = re.fullmatch(r"(.*?) (\d+)", name)
    return (match[1], int(match[2])) if match else (name, None)


def by_task(name: str) -> str:
    """Returns the name of the same drafter with separate weights per task."""
    return f"{name} by task"
