"""Draft token trees: many drafts that share their prefixes, verified in one forward pass."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.checked import numbers, token_ids, whole
from rescore.lattice.short_repr import picture, short_repr

ROOT = -1  # parent of the nodes that follow the root token


Columns = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenTree:
    """A tree of n draft tokens, a parent before its children.

    tokens  int32 [n] in [0, V)
    parents int32 [n], index of the parent, -1 for children of the root token
    depths  int32 [n], 1 for children of the root token
    logq    float32 [n], log-probability under q of the path to the node; NaN if unknown

    Nodes of a best-first tree are in order of logq, so its first n nodes are the best tree of n nodes.
    """

    tokens: NDArray[np.int32]
    parents: NDArray[np.int32]
    depths: NDArray[np.int32]
    logq: NDArray[np.float32]

    __repr__ = short_repr
    _repr_svg_ = picture

    def __post_init__(self) -> None:
        for name, dtype in (("tokens", np.int32), ("parents", np.int32), ("depths", np.int32), ("logq", np.float32)):
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != dtype:
                raise TypeError(
                    f"{name}: expected a numpy array of {np.dtype(dtype)}, got "
                    f"{getattr(array, 'dtype', type(array).__name__)}"
                )
            if array.ndim != 1 or array.shape != self.tokens.shape:
                raise ValueError(f"{name}: expected shape [n] = {list(self.tokens.shape)}, got {list(array.shape)}")
        self._check()

    def _check(self) -> None:
        bad = (self.parents < ROOT) | (self.parents >= np.arange(self.size))
        if bad.any():
            node = int(bad.argmax())
            raise ValueError(f"parents[{node}] = {self.parents[node]}: expected -1 or a node before {node}")
        depths = np.append(self.depths, np.int32(0))  # index -1 is the root token
        bad = self.depths != depths[self.parents] + 1
        if bad.any():
            node = int(bad.argmax())
            raise ValueError(
                f"depths[{node}] = {self.depths[node]}: expected one more than its parent, "
                f"{depths[self.parents[node]] + 1}"
            )
        if (self.tokens < 0).any():
            node = int((self.tokens < 0).argmax())
            raise ValueError(
                f"tokens[{node}] = {self.tokens[node]}: expected a token id; remove padding, a tree has none"
            )
        if len(set(zip(self.parents.tolist(), self.tokens.tolist()))) < self.size:
            raise ValueError("tokens: two children of one node have the same token; from_drafts merges them")

    @classmethod
    def trusted(
        cls, tokens: NDArray[np.int32], parents: NDArray[np.int32], depths: NDArray[np.int32], logq: NDArray[np.float32]
    ) -> TokenTree:
        """A tree from the columns of a search, unchecked: the checks take longer than a search for 16 nodes."""
        tree = object.__new__(cls)
        for name, column in (("tokens", tokens), ("parents", parents), ("depths", depths), ("logq", logq)):
            object.__setattr__(tree, name, column)
        return tree

    @classmethod
    def from_drafts(cls, drafts: NDArray) -> TokenTree:
        """Merges p drafts [p, T] (or one draft [T]; padding -1 at the end) by common prefix.

        Nodes are in order of first use: those of the first draft, then those that the second adds, and so on. logq is
        NaN.
        """
        rows = np.atleast_2d(token_ids(drafts, "drafts"))
        if rows.ndim != 2:
            raise ValueError(f"drafts: expected shape [p, T], got {list(rows.shape)}")
        node_of: dict[tuple[int, int], int] = {}
        nodes: list[tuple[int, int, int]] = []  # token, parent, depth
        for row, draft in enumerate(rows.tolist()):
            parent = ROOT
            for depth, token in enumerate(_unpadded(draft, row), 1):
                key = (parent, token)
                if key not in node_of:
                    node_of[key] = len(nodes)
                    nodes.append((token, parent, depth))
                parent = node_of[key]
        return cls._of_columns(*np.array(nodes, np.int32).reshape(-1, 3).T.copy())

    @classmethod
    def from_parents(cls, tokens: Sequence[int], parents: Sequence[int]) -> TokenTree:
        """Builds a tree from tokens and their parents, each -1 or the index of an earlier node. logq is NaN."""
        depths: list[int] = []
        parents = numbers(parents, "parents").tolist()
        for node, parent in enumerate(parents):
            if not ROOT <= parent < node:
                raise ValueError(f"parents[{node}] = {parent}: expected -1 or the index of an earlier node")
            depths.append(1 + (depths[parent] if parent != ROOT else 0))
        return cls._of_columns(token_ids(tokens, "tokens"), np.array(parents, np.int32), np.array(depths, np.int32))

    @classmethod
    def _of_columns(cls, tokens: NDArray[np.int32], parents: NDArray[np.int32], depths: NDArray[np.int32]) -> TokenTree:
        return cls(tokens=tokens, parents=parents, depths=depths, logq=np.full(len(tokens), np.nan, np.float32))

    @property
    def size(self) -> int:
        """n, the number of tokens that a pass verifies."""
        return len(self.tokens)

    @property
    def columns(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """tokens, parents and depths, as the native core takes them."""
        return self.tokens, self.parents, self.depths

    def head(self, n: int) -> TokenTree:
        """The first n nodes (all if there are fewer)."""
        if whole(n, "n", most=sys.maxsize) < 0:
            raise ValueError(f"head: expected n >= 0, got {n}")
        return TokenTree.trusted(self.tokens[:n], self.parents[:n], self.depths[:n], self.logq[:n])

    @property
    def is_chain(self) -> bool:
        """Whether every node follows the one before it."""
        return not self.size or int(self.depths[-1]) == self.size

    def leaves(self) -> list[int]:
        """The nodes that have no children, in order."""
        inner = set(self.parents.tolist())
        return [node for node in range(self.size) if node not in inner]

    def path_to(self, node: int) -> list[int]:
        """The nodes from a child of the root token down to `node`; empty for -1."""
        path = []
        while node != ROOT:
            path.append(node)
            node = int(self.parents[node])
        return path[::-1]

    def best_chain(self, cost: float = 0.0, *, most: int | None = None) -> TokenTree:
        """The root-to-leaf path of at most `most` nodes that maximises expected accepted length - cost * length.

        A node's q is the probability that the draft is accepted up to it, so a path's expected accepted length is the
        sum of its nodes' q. If the tree holds all prefixes of q >= cost, the result is optimal over the whole
        vocabulary: no other prefix can pay. cost: of verifying one drafted token, relative to a token of text, at least
        0. Nodes whose q is below it are left out.
        """
        worth = np.exp(self.logq.astype(np.float64)) - cost
        if most is not None:
            worth[self.depths > most] = -np.inf
        values, parents = worth.tolist(), self.parents.tolist()
        best_child = [ROOT] * (len(values) + 1)  # the last entry is the root's
        best_value = [0.0] * (len(values) + 1)
        for node in range(len(values) - 1, -1, -1):
            value = values[node] + best_value[node]
            parent = parents[node]
            if value > best_value[parent] or (value == best_value[parent] and value > 0):  # of equals, the first node
                best_child[parent], best_value[parent] = node, value
        path, node = [], best_child[ROOT]
        while node != ROOT:
            path.append(node)
            node = best_child[node]
        chain = np.arange(-1, len(path) - 1, dtype=np.int32)
        return TokenTree.trusted(self.tokens[path], chain, self.depths[path], self.logq[path])

    def within(self, depth: int) -> TokenTree:
        """The tree without the nodes below `depth`."""
        if depth >= self.size or depth >= self.depths.max():
            return self
        kept = self.depths <= depth
        number = np.cumsum(kept, dtype=np.int32) - 1
        parents = np.where(self.parents[kept] < 0, ROOT, number[self.parents[kept]]).astype(np.int32)
        return TokenTree(tokens=self.tokens[kept], parents=parents, depths=self.depths[kept], logq=self.logq[kept])

    def ancestor_mask(self) -> NDArray[np.bool_]:
        """bool [n, n]: true where j is node i or an ancestor of it. Every node also attends to all text before."""
        return _core.lay_trees([self.columns], [0], 1 + self.size)[2][0, 1:, 1:]

    def position_ids(self, base: int) -> NDArray[np.int32]:
        """int32 [n], base + depth, where base is the position of the root token."""
        return self.depths + np.int32(base)

    def child(self, node: int, token: int) -> int | None:
        """The node after `node`, -1 the root token, that has a token; None if there is none."""
        found = _core.child(self.tokens, self.parents, node, token)
        return None if found < 0 else found

    def path_along(self, truth: NDArray) -> list[int]:
        """The nodes of the longest prefix of the truth [T] (padding -1) that is a path of the tree."""
        path = list[int]()
        for token in numbers(truth, "truth").tolist():
            if (child := self.child(path[-1] if path else ROOT, token)) is None:
                break
            path.append(child)
        return path

    def accepted(self, truth: NDArray) -> int:
        """Length of the longest prefix of the truth [T] (padding -1) that is a path of the tree."""
        return len(self.path_along(truth))


EMPTY = TokenTree.from_parents([], [])


def accepted_by_size(tokens: NDArray, parents: NDArray, truth: NDArray) -> NDArray[np.int32]:
    """Accepted length of every tree at every size: int32 [B, n], entry i for the first i + 1 nodes.

    tokens, parents: int32 [B, n], a parent before its children, padding -1 in both at the end; truth: [B, T],
    padding -1. The best tree of n nodes is the first n of a larger one, so one search serves every size.
    """
    tokens, parents, truth = numbers(tokens, "tokens"), numbers(parents, "parents"), numbers(truth, "truth")
    if tokens.ndim != 2 or parents.shape != tokens.shape or truth.ndim != 2 or len(truth) != len(tokens):
        raise ValueError(
            f"expected tokens and parents [B, n] and truth [B, T], got {list(tokens.shape)}, {list(parents.shape)}, "
            f"{list(truth.shape)}"
        )
    batch, size = tokens.shape
    if ((parents < ROOT) | (parents >= np.arange(size))).any():
        raise ValueError("parents: expected -1 or the index of an earlier node")
    lattice, inner = np.arange(batch)[:, None], parents != ROOT
    above, depth = ~inner, np.zeros((batch, size), np.int32)
    # above: nodes whose parent is on the true path, slot by slot
    for slot in range(truth.shape[1]):
        true = above & (tokens == truth[:, slot, None]) & (truth[:, slot, None] >= 0)
        if not true.any():
            break
        depth[true] = slot + 1
        above = true[lattice, parents] & inner
    return np.maximum.accumulate(depth, axis=1)


def _unpadded(draft: list[int], row: int) -> list[int]:
    length = draft.index(-1) if -1 in draft else len(draft)
    if any(token != -1 for token in draft[length:]) or any(token < 0 for token in draft[:length]):
        raise ValueError(f"drafts[{row}]: expected token ids, then padding -1 to the end, got {draft}")
    return draft[:length]


class Drafts(Struct, frozen=True, kw_only=True, eq=False):  # a struct is made in a seventh of a dataclass's time
    """The p best paths of each lattice, best first.

    tokens int32 [B, p, T] (or [p, T] of a single sausage), padding -1; cost float32 [B, p] or [p], nats, ascending,
    padding +inf; count int32 [B] or []: number of paths.
    """

    tokens: NDArray[np.int32]
    cost: NDArray[np.float32]
    count: NDArray[np.int32]

    __repr__ = short_repr


class SampledDrafts(Struct, frozen=True, kw_only=True, eq=False):
    """Drafts sampled from a normalised lattice, and their draft distribution q.

    tokens  int32 [B, p, T], padding -1 after the draft's length
    q       float64 [B, p, T, K], q(candidate | earlier tokens of the draft), by rank; a row sums to 1, and is all 0
            from the draft's length on
    ids     int32 [B, T, K], the candidates of the sausage by rank, padding -1
    logq    float64 [B, p], ln q of the draft, the sum over its tokens
    lengths int32 [B, p], the lattice's length, or less where no candidate was possible

    Without B for a single sausage.
    """

    tokens: NDArray[np.int32]
    q: NDArray[np.float64]
    ids: NDArray[np.int32]
    logq: NDArray[np.float64]
    lengths: NDArray[np.int32]

    __repr__ = short_repr


class Trees(Struct, frozen=True, kw_only=True, eq=False):
    """The best trees of a batch. The first k nodes of a tree are the best tree of k nodes.

    tokens, parents, depths int32 [B, n] (padding -1, -1, 0), logq float32 [B, n] (padding -inf), count int32 [B].
    """

    tokens: NDArray[np.int32]
    parents: NDArray[np.int32]
    depths: NDArray[np.int32]
    logq: NDArray[np.float32]
    count: NDArray[np.int32]

    __repr__ = short_repr

    @classmethod
    def of_core(cls, columns: Columns) -> Trees:
        """Trees from the tuple that the native core returns."""
        tokens, parents, depths, logq, count = columns
        return cls(tokens=tokens, parents=parents, depths=depths, logq=logq, count=count)

    @classmethod
    def joined(cls, trees: Sequence[TokenTree]) -> Trees:
        """A batch of single trees, padded to the largest."""
        shape = len(trees), max((tree.size for tree in trees), default=0)
        columns: dict[str, NDArray] = {"count": np.array([tree.size for tree in trees], np.int32)}
        for name, padding in (("tokens", -1), ("parents", -1), ("depths", 0), ("logq", -np.inf)):
            columns[name] = np.full(shape, padding, np.float32 if name == "logq" else np.int32)
            for row, tree in zip(columns[name], trees):
                row[: tree.size] = getattr(tree, name)
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, lattice: int) -> TokenTree:
        """The tree of one lattice, without padding."""
        n = int(self.count[lattice])
        return TokenTree.trusted(
            self.tokens[lattice, :n], self.parents[lattice, :n], self.depths[lattice, :n], self.logq[lattice, :n]
        )
