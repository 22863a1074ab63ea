"""Small drafts and the trees they merge into."""

import numpy as np
from hypothesis import strategies as st

from rescore.lattice.tree import TokenTree

DRAFTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=8)


def padded(drafts: list[list[int]]) -> np.ndarray:
    width = max(map(len, drafts))
    return np.array([draft + [-1] * (width - len(draft)) for draft in drafts], np.int32)


def strings(tree: TokenTree) -> list[tuple[int, ...]]:
    """The path that ends in each node."""
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist()):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return found


def longest(strings: list[tuple[int, ...]], truth: list[int]) -> int:
    return max((len(s) for s in strings if list(s) == truth[: len(s)]), default=0)
