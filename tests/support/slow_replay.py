"""Slow reference replay: only the rows that decoding visits, one lattice at a time, in plain Python."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.dump_block import DumpBlock

AcceptedOf = Callable[[DumpBlock, int, list[int]], int]


class Step(NamedTuple):
    """A verified draft: its block, row, sequence, true tokens of the slots (fewer at the end), and accepted length."""

    block: DumpBlock
    row: int
    sequence: int
    truth: list[int]
    accepted: int


def steps(blocks, accepted_of: AcceptedOf) -> Iterator[Step]:
    """accepted_of: (block, row, truth) to the accepted length of that row's draft."""
    for block in blocks:
        for sequence in range(block.sequences):
            row, end = int(block.offsets[sequence]), int(block.offsets[sequence + 1])
            while row < end - 1:
                truth = [int(token) for token in block.tokens[row + 1 : min(row + 1 + block.slots, end)]]
                n = accepted_of(block, row, truth)
                yield Step(block, row, sequence, truth, n)
                row += n + 1


def block_efficiency(blocks, accepted_of: AcceptedOf) -> float:
    """Tokens per pass, every prompt's pass included."""
    blocks = list(blocks)
    tokens, sequences = sum(block.rows for block in blocks), sum(block.sequences for block in blocks)
    return tokens / (sequences + sum(1 for _ in steps(blocks, accepted_of)))


def matched(draft, truth: list[int]) -> int:
    """Length of the common prefix."""
    return (*(a == b for a, b in zip(draft, truth)), False).index(False)


def in_candidates(block: DumpBlock, row: int, truth: list[int], k: int) -> int:
    """Accepted length of a draft that is right wherever one of the slot's first k candidates is."""
    found = [token in block.topk_ids[row, 1 + slot, :k] for slot, token in enumerate(truth)]
    return (*found, False).index(False)


def by_paths(rescorer: Rescorer, p: int) -> AcceptedOf:
    """Accepted lengths of the p best paths of each row's lattice."""

    def accepted(block: DumpBlock, row: int, truth: list[int]) -> int:
        drafts = rescorer.paths(block.sausages([row])[0], block.history(row, 5), p)
        return max(matched(draft, truth) for draft in drafts.tokens[: int(drafts.count)].tolist())

    return accepted


def by_tree(rescorer: Rescorer, n: int) -> AcceptedOf:
    """The same of trees of n nodes."""

    def accepted(block: DumpBlock, row: int, truth: list[int]) -> int:
        tree = rescorer.tree(block.sausages([row])[0], block.history(row, 5), n)
        return int(tree.accepted(np.array(truth, np.int32)))

    return accepted
