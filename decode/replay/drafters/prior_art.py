"""Published drafters for models without heads: prompt lookup, Token Recycling, suffix decoding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rescore.decode.replay.drafters.budgeted import Budgeted
from rescore.decode.replay.drafters.read_sequence import ReadSequence
from rescore.decode.replay.worth import Worth
from rescore.decode.rescoring.prompt_lookup import prompt_lookup
from rescore.decode.rescoring.suffix_decoding import SuffixTree
from rescore.decode.rescoring.token_recycling import TokenRecycling
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.tree import TokenTree

# Maps the number of tokens read, ascending from call to call, to the draft that follows them.
Draft = Callable[[int], TokenTree]
Budget = TypeVar("Budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLookupReplay(Budgeted):
    """Replays prompt lookup. budgets: drafted tokens of each name, Hugging Face's `prompt_lookup_num_tokens`."""

    budgets: Mapping[str, int]

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        def drafting(text: ReadSequence, n: int) -> Draft:
            return lambda end: TokenTree.from_drafts(prompt_lookup(text.tokens[:end], n))

        return {name: worth_of(block, drafting, n) for name, n in self.budgets.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecyclingReplay(Budgeted):
    """Replays Token Recycling. budgets: nodes of each name's best tree, None for the published static tree.

    A dump holds predictions along the text only; in decoding, predictions after rejected nodes are recycled as well.
    """

    budgets: Mapping[str, int | None]  # type: ignore[assignment]

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        def drafting(text: ReadSequence, n: int | None) -> Draft:
            matrix, read, (ids, p) = TokenRecycling(), 1, text.predictions()

            def draft(end: int) -> TokenTree:
                nonlocal read
                for at in range(read, end):  # the prediction after the last token does not exist yet
                    if ids[at, 0] >= 0:
                        matrix.see(int(text.tokens[at - 1]), ids[at], p[at])
                read, root = end, int(text.tokens[end - 1])
                return matrix.static_tree(root) if n is None else matrix.best_tree(root, n)

            return draft

        return {name: worth_of(block, drafting, n) for name, n in self.budgets.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixReplay(Budgeted):
    """Replays suffix decoding. budgets: nodes of each name's trees."""

    budgets: Mapping[str, int]

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        def drafting(text: ReadSequence, n: int) -> Draft:
            tree, read = SuffixTree(), 0

            def draft(end: int) -> TokenTree:
                nonlocal read
                tree.extend(text.tokens[read:end])
                read = end
                return tree.tree(n)

            return draft

        return {name: worth_of(block, drafting, n) for name, n in self.budgets.items()}


def worth_of(block: DumpBlock, drafting: Callable[[ReadSequence, Budget], Draft], budget: Budget) -> Worth:
    """Returns the worth of a drafter that is opened per sequence; unvisited rows hold 0."""
    began = time.perf_counter()
    accepted, verified = np.zeros(block.rows, np.int32), np.zeros(block.rows, np.int32)
    for sequence in range(block.sequences):
        text, first = ReadSequence.of_block(block, sequence), int(block.offsets[sequence])
        for end, tree in passes(text, drafting(text, budget)):
            row = first + end - text.prompt - 1
            accepted[row], verified[row] = tree.accepted(text.tokens[end:]), tree.size
    return Worth(accepted=accepted, verified=verified, seconds=time.perf_counter() - began)


def passes(text: ReadSequence, draft: Draft) -> Iterator[tuple[int, TokenTree]]:
    """Yields for each pass that verifies a draft the number of tokens read before it, and the draft."""
    end = text.prompt + 1
    while end < len(text.tokens):
        tree = draft(end)
        yield end, tree
        end += tree.accepted(text.tokens[end:]) + 1
