"""How the trees of a batch are laid out in one pass: each as a row with a mask, or its drafts as rows of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.block import Block
from rescore.decode.models.slot_cache import SlotCache
from rescore.lattice.tensors import TensorTrees
from rescore.lattice.tree import TokenTree


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laid:
    """A block, and where it holds the nodes: rows and columns int64 [B, 1 + n], column 0 the root token, padding as
    that; None where the block's rows and columns are these.
    """

    block: Block
    at: tuple[Tensor, Tensor] | None = None

    def nodes(self, values: Tensor) -> Tensor:
        """[B, 1 + n, ..] of values [R, L, ..]."""
        return values if self.at is None else values[self.at]


class TreeLayout:
    """A row for each request, whose tokens see their ancestors."""

    copies = 1

    def lay(
        self, trees: Sequence[TokenTree], certain: Sequence[int], starts: Sequence[int], device: torch.device
    ) -> Laid:
        """The block that reads every request's root token and its tree behind starts[b] tokens."""
        batch, width = len(trees), 1 + max(tree.size for tree in trees)
        ids = np.zeros((batch, width), np.int64)
        depths = np.zeros((batch, width), np.int64)
        for row, tree in enumerate(trees):
            ids[row, 0], ids[row, 1 : 1 + tree.size] = certain[row], tree.tokens
            depths[row, 1 : 1 + tree.size] = tree.depths
        start, end = torch.from_numpy(np.array(starts)).to(device), max(starts) + width
        ancestors = (
            None if all(tree.is_chain for tree in trees) else torch.from_numpy(_ancestors(trees, width)).to(device)
        )
        # Padding has the position of the root token, which is within the model's context.
        block = Block(
            ids=torch.from_numpy(ids).to(device),
            start=start,
            depths=torch.from_numpy(depths).to(device),
            ancestors=ancestors,
            end=end,
        )
        return Laid(block=block)

    def lay_tensors(self, trees: TensorTrees, certain: Tensor, start: Tensor, end: int) -> Block:
        """The block that `lay` gives, of trees [B, n] and root tokens [B] in tensors, nothing of which is waited
        for.

        Behind start int64 [B] tokens; end: the greatest start + 1 + n that may come.
        """
        held = trees.depths > 0
        ids = torch.cat((certain[:, None], torch.where(held, trees.tokens, 0)), dim=1)
        ancestors = torch.nn.functional.pad(trees.ancestor_mask(), (1, 0, 1, 0))
        ancestors[:, 0, 0] = True
        ancestors[:, 1:, 0] = held
        return Block(
            ids=ids.long(),
            start=start,
            depths=torch.nn.functional.pad(trees.depths, (1, 0)).long(),
            ancestors=ancestors,
            end=end,
        )

    def commit(
        self, cache: SlotCache, trees: Sequence[TokenTree], starts: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> None:
        """Keep the root tokens and the accepted paths, nodes of each tree from the root on."""
        cache.keep(starts, [[0, *(1 + node for node in path)] for path in paths])


class BatchLayout:
    """`copies` rows for each request, one for each draft: the paths from the root to the leaves."""

    def __init__(self, copies: int):
        if copies < 1:
            raise ValueError(f"copies: expected at least 1 row for each request, got {copies}")
        self.copies = copies

    def lay(
        self, trees: Sequence[TokenTree], certain: Sequence[int], starts: Sequence[int], device: torch.device
    ) -> Laid:
        """As `TreeLayout.lay`. ValueError if a tree has more leaves than there are rows."""
        batch, texts = len(trees), [np.array([token]) for token in certain for _ in range(self.copies)]
        row = np.repeat(np.arange(batch)[:, None] * self.copies, 1 + max(tree.size for tree in trees), axis=1)
        column = np.zeros_like(row)
        for b, tree in enumerate(trees):
            for copy, path in enumerate(self._drafts(tree)):
                here, nodes = b * self.copies + copy, np.array(path, np.int64)  # none of a step that drafts nothing
                texts[here] = np.append(texts[here], tree.tokens[nodes])
                row[b, 1 + nodes] = here
                column[b, 1 + nodes] = tree.depths[nodes]
        block = Block.of_texts(texts, np.repeat(starts, self.copies).tolist(), device)
        return Laid(block=block, at=(torch.from_numpy(row).to(device), torch.from_numpy(column).to(device)))

    def commit(
        self, cache: SlotCache, trees: Sequence[TokenTree], starts: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> None:
        sources, begins, stops = [], [], []
        for b, (tree, start, path) in enumerate(zip(trees, starts, paths)):
            drafts = self._drafts(tree)
            copy = next(i for i, draft in enumerate(drafts) if draft[: len(path)] == list(path))
            sources += [b * self.copies + copy] * self.copies
            begins += [start] * self.copies
            stops += [start + 1 + len(path)] * self.copies
        cache.copy(sources, begins, stops)

    def _drafts(self, tree: TokenTree) -> list[list[int]]:
        """The nodes of every path from the root to a leaf; one empty path of an empty tree."""
        leaves = tree.leaves()
        if len(leaves) > self.copies:
            raise ValueError(
                f"layout 'batch': expected at most {self.copies} drafts for each request, "
                f"got a tree with {len(leaves)} leaves; draft paths, or use layout 'tree'"
            )
        return [tree.path_to(leaf) for leaf in leaves] or [[]]


def _ancestors(trees: Sequence[TokenTree], width: int) -> NDArray[np.bool_]:
    """bool [B, L, L]; the padding sees itself."""
    ancestors = np.zeros((len(trees), width, width), bool)
    ancestors[:, range(width), range(width)] = True
    for row, tree in enumerate(trees):
        ancestors[row, : 1 + tree.size, 0] = True
        ancestors[row, 1 : 1 + tree.size, 1 : 1 + tree.size] = tree.ancestor_mask()
    return ancestors
