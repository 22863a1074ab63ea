"""Names of rows in tables, JSON and reports: a drafter's (`registry.SPECS`), then what it drafts with, then its budget.

    blend 16                    16 nodes or paths
    blend tuned 16              with the weights of settings; "tuned by task": with those of its task
    blend tuned with memory 16  with earlier texts as a further source

"oracle" is no drafter but the best choice in the lattice, "neural beam" is `neural` with several paths.
"""

from __future__ import annotations

import re


def bounded(name: str) -> bool:
    """Whether a drafter's drafts are of the heads' candidates alone, so that the oracle bounds what they gain."""
    return not name.startswith(("blend", "lm-alone"))


def sized(name: str, budget: int | None) -> str:
    """The name of a row: "tree tuned 16". budget: nodes or paths; None for the drafter's own."""
    return name if budget is None else f"{name} {budget}"


def split(name: str) -> tuple[str, int | None]:
    """Splits off the budget: ("tree tuned", 16) for "tree tuned 16"; None if the name has no budget."""
    match = re.fullmatch(r"(.*?) (\d+)", name)
    return (match[1], int(match[2])) if match else (name, None)
