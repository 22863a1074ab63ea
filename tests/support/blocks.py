"""Blocks of chains and trees for tests."""

import torch

from rescore.decode.models.target import Block
from rescore.lattice.tree import TokenTree


def chain(ids, starts) -> Block:
    """Rows `ids` [R, L]; row r follows starts[r] tokens."""
    ids = torch.as_tensor(ids)
    return Block.chain(ids, torch.tensor(starts), max(starts) + ids.shape[1])


def tree_block(tree: TokenTree, token: int, starts: list[int]) -> Block:
    """The same tree below `token` in every row."""
    n = tree.size
    ancestors = torch.zeros(n + 1, n + 1, dtype=torch.bool)
    ancestors[:, 0] = True
    ancestors[1:, 1:] = torch.from_numpy(tree.ancestor_mask())
    rows = len(starts)
    ids = torch.tensor([token, *tree.tokens.tolist()]).expand(rows, -1)
    depths = torch.tensor([0, *tree.depths.tolist()]).expand(rows, -1)
    return Block(
        ids=ids,
        start=torch.tensor(starts),
        depths=depths,
        ancestors=ancestors.expand(rows, -1, -1),
        end=max(starts) + n + 1,
    )


def path_tokens(tree: TokenTree, node: int) -> list[int]:
    """Tokens from the root's child to `node`."""
    return [int(tree.tokens[at]) for at in tree.path_to(node)]
