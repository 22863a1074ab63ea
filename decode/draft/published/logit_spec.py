"""LogitSpec (Liu et al. 2025)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.published.baseline import Method
from rescore.decode.models.draft_step import LastPass, Read
from rescore.lattice.tree import TokenTree

LONGEST_NGRAM = 3  # tokens
AHEAD = 20  # tokens of a continuation
BRANCHES = ((8, 4), (32, 3), (64, 1))  # tokens of a branch, at most, of the first 8 of these, the first 32, all


class FollowedText(Method):
    """LogitSpec: what followed the end of the text, and what followed each token that the last logits find probable.

    Liu et al. 2025, "LogitSpec" (arXiv 2507.01449), section 4.2, with the parameters of the authors' code. The last
    logits also predict the next but one token. So beside the continuation of the text, each of their most probable
    tokens, but for the one that became the root token, begins a branch, which goes on as the text did after that token.
    Continuations are those of the longest n-gram that the text has had before: at its latest place with 20 tokens to
    follow, or else at its first. Branches of less probable tokens are shorter. Branches are merged by prefix, in this
    order, up to n nodes.
    """

    published, predictions = 64, BRANCHES[-1][0]

    def __init__(self) -> None:
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # a place where each n-gram was followed

    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        assert n is not None and read is not None
        self.extend(history[self.size :])
        probable = read.ids[_row_of_root(read, last)]
        return self.tree(probable[probable >= 0].tolist(), n)

    @property
    def size(self) -> int:
        """Tokens read."""
        return len(self._text)

    def extend(self, tokens: NDArray[np.integer]) -> None:
        for token in tokens.tolist():
            for ngram in self._ending_at(self.size):
                self._after.setdefault(ngram, self.size)
            self._text.append(token)
            for ngram in self._ending_at(self.size - AHEAD):
                self._after[ngram] = self.size - AHEAD

    def following(self, context: Sequence[int]) -> list[int]:
        """At most 20 tokens that followed the longest n-gram that ends the context; none if none did."""
        for size in range(min(LONGEST_NGRAM, len(context)), 0, -1):
            if place := self._after.get(tuple(context[-size:])):
                return self._text[place : place + AHEAD]
        return []

    def tree(self, probable: Sequence[int], n: int) -> TokenTree:
        """At most n nodes after the text. probable: the tokens that the last logits find most probable, in order."""
        end = self._text[-LONGEST_NGRAM:]
        branches = [self.following(end)]
        for rank, token in enumerate(probable):
            if token != end[-1]:
                length = next(length for ranks, length in BRANCHES if rank < ranks)
                branches.append([token, *self.following([*end, token])][:length])
        drafts = np.full((len(branches), AHEAD), -1, np.int32)
        for draft, branch in zip(drafts, branches):
            draft[: len(branch)] = branch
        return TokenTree.from_drafts(drafts).head(n)

    def _ending_at(self, end: int) -> Iterator[tuple[int, ...]]:
        return (tuple(self._text[end - size : end]) for size in range(1, min(LONGEST_NGRAM, end) + 1))


def _row_of_root(read: Read, last: LastPass | None) -> int:
    """The row of what the last pass read whose prediction is the root token's."""
    if last is None or not last.tree.size:
        return len(read.tokens) - 1
    return 1 + last.accepted[-1] if last.accepted else 0
