"""Small drafts and the trees they merge into."""

import numpy as np
from hypothesis import strategies as st

from rescore.decode.draft.pace import AcceptanceRates
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


def tree_of(parents, conditional) -> TokenTree:
    """A tree of tokens 0, 1, .. with their q given their parents."""
    tree = TokenTree.from_parents(range(len(parents)), parents)
    logq: list[float] = []
    for parent, q in zip(parents, conditional):
        logq.append(np.log(q) + (logq[parent] if parent >= 0 else 0.0))
    return TokenTree.trusted(tree.tokens, tree.parents, tree.depths, np.array(logq, np.float32))


class Trusting(AcceptanceRates):
    """Takes q at its word, so that examples can be worked by hand."""

    def corrected(self, logq, parents):
        return np.exp(logq.astype(np.float64))


def longest(strings: list[tuple[int, ...]], truth: list[int]) -> int:
    return max((len(s) for s in strings if list(s) == truth[: len(s)]), default=0)
