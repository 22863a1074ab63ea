"""Layouts of a batch's trees in one pass: one row with a mask per tree, or one row per draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rescore import _core
from rescore.decode.models.target import Block
from rescore.lattice.checked import whole
from rescore.lattice.tree import TokenTree

if TYPE_CHECKING:
    from rescore.decode.models.slot_cache import SlotCache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedTrees:
    """A block, and the places of the nodes in it: rows and columns int64 [B, 1 + n], column 0 the root token, padding
    likewise; None if they are the block's own rows and columns.
    """

    block: Block
    at: tuple[Tensor, Tensor] | None = None

    def nodes(self, values: Any) -> Any:
        """[B, 1 + n, ..] of values [R, L, ..], a tensor or an array."""
        return values if self.at is None else values[self.at]


class TreeLayout:
    """One row per request, whose tokens see their ancestors.

    The best tree of the worked example (`lm/model/example.py`) after three tokens:

                     column  position   sees slots 0 to 2, and of the block
        .            0       3          T F F F F F
        Lionel       1       4          T T F F F F
          Messi      2       5          T T T F F F
            scored   3       6          T T T T F F
        Cristiano    4       4          T F F F T F
          Ronaldo    5       5          T F F F T T
    """

    copies = 1

    def lay(
        self, trees: Sequence[TokenTree], certain: Sequence[int], starts: Sequence[int], device: torch.device
    ) -> PlacedTrees:
        """The block of every request's root token and tree, after starts[b] tokens."""
        width = 1 + max(tree.size for tree in trees)
        # Padding takes the root token's position, which is within the model's context.
        ids, depths, seen = _core.lay_trees([tree.columns for tree in trees], certain, width)
        chains = all(tree.is_chain for tree in trees)
        block = Block(
            ids=torch.from_numpy(ids),
            start=torch.from_numpy(np.array(starts)),
            depths=torch.from_numpy(depths),
            ancestors=None if chains else torch.from_numpy(seen),
            end=max(starts) + width,
        )
        return PlacedTrees(block=block if device.type == "cpu" else block.to(device))

    def commit(
        self, cache: SlotCache, trees: Sequence[TokenTree], starts: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> None:
        """Keeps the root tokens and the accepted paths, nodes of each tree from the root down."""
        cache.keep(starts, [[0, *(1 + node for node in path)] for path in paths])


class BatchLayout:
    """`copies` rows per request, one for each draft: the paths from the root to the leaves."""

    def __init__(self, copies: int):
        self.copies = whole(copies, "copies", 1)

    def lay(
        self, trees: Sequence[TokenTree], certain: Sequence[int], starts: Sequence[int], device: torch.device
    ) -> PlacedTrees:
        """As `TreeLayout.lay`. ValueError if a tree has more leaves than there are rows."""
        batch, texts = len(trees), [np.array([token]) for token in certain for _ in range(self.copies)]
        row = np.repeat(np.arange(batch)[:, None] * self.copies, 1 + max(tree.size for tree in trees), axis=1)
        column = np.zeros_like(row)
        for b, tree in enumerate(trees):
            for copy, path in enumerate(self._drafts(tree)):
                here, nodes = b * self.copies + copy, np.array(path, np.int64)  # empty if nothing is drafted
                texts[here] = np.append(texts[here], tree.tokens[nodes])
                row[b, 1 + nodes] = here
                column[b, 1 + nodes] = tree.depths[nodes]
        block = Block.of_texts(texts, np.repeat(starts, self.copies).tolist(), device)
        return PlacedTrees(block=block, at=(torch.from_numpy(row).to(device), torch.from_numpy(column).to(device)))

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
        """The nodes of every path from the root to a leaf; one empty path for an empty tree."""
        leaves = tree.leaves()
        if len(leaves) > self.copies:
            raise ValueError(
                f"layout 'batch': expected at most {self.copies} drafts for each request, "
                f"got a tree with {len(leaves)} leaves; draft paths, or use layout 'tree'"
            )
        return [tree.path_to(leaf) for leaf in leaves] or [[]]
