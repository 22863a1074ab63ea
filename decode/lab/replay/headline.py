"""What a table of results says first: which rows, the best one, what it is compared with."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rescore.decode.draft.registry import FEW, SPECS, row_name

EQUAL = (FEW, 64)  # nodes at which drafters are compared first
# What drafters are compared with: each with the same number of nodes, and whole drafts.
AGAINST = {
    "tree": ("heads-tree", "lm-alone", "medusa-tree", "eagle-2-tree"),
    "tree tuned": ("tree",),
    "blend": (
        "tree",
        "heads-tree",
        "blend-without-heads",
        "blend-without-lm",
        "lm-alone",
        "suffix-decoding",
        "token-recycling",
        "logit-spec",
        "racer",
    ),
    "blend tuned": ("blend", "tree tuned", "blend-without-heads tuned", "blend-without-lm tuned"),
    "blend with memory": ("blend",),
}
PAIRS = (
    ("rescored", "base"),
    ("parallel-rescored", "parallel-base"),
    ("parallel-rescored tuned", "parallel-rescored"),
    (row_name("tree", FEW), "parallel-rescored"),
    ("neural", "base"),
    ("neural", "rescored"),
    ("neural beam", "neural"),
    ("neural beam", "parallel-rescored"),
    *(
        (row_name(name, FEW), other)
        for name in ("blend", "blend with memory")
        for other in ("prompt-lookup", "token-recycling")
    ),
    *(
        (row_name(name, n), row_name(other, n))
        for name, others in AGAINST.items()
        for other in others
        for n in (16, 32, 64)
    ),
)
_ROWS = [row for spec in SPECS.values() for row in spec.rows]


def leading(names: Collection[str]) -> list[str]:
    """The rows that come first, as far as they were replayed; trees with settings in place of those without."""
    found: dict[tuple[str, int | None], str] = {}
    for row in _ROWS:
        for budget in row.leads:
            titles = (f"{row.title} tuned", row.title) if budget else (row.title,)
            several = [row_name(title, budget) for title in titles]
            if name := next((name for name in several if name in names), None):
                found[row.place or row.title, budget] = name
    return [*found.values(), *(["oracle"] if "oracle" in names else [])]


def best(names: Collection[str]) -> str:
    """The row that the verdict is about: of those that come first the last one of few nodes."""
    rows = [name for name in leading(names) if name != "oracle"]
    return next((name for name in reversed(rows) if name.endswith(f" {FEW}")), rows[-1])


def reference(names: Collection[str]) -> str:
    """The row that it is compared with: the heads' own draft or, without heads, the first published drafter."""
    return leading(names)[0]


def verdict(best: str, efficiency: Mapping[str, float]) -> str:
    """Tokens per pass of a row and of its reference."""
    other = reference(efficiency)
    return f"{efficiency[best]:.2f} where {other} has {efficiency[other]:.2f}"
