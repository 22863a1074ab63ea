"""Published drafters that need no heads, to compare with: prompt lookup, Token Recycling, SuffixDecoding, LogitSpec,
RACER. Each keeps what it needs of one request's text; `BaselineDrafter` does the rest.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Proposed
from rescore.decode.draft.sources import DraftSources, fixed_size
from rescore.decode.models.draft_step import TOP, DraftStep, LastPass, Read
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree, Trees, token_ids


class _Method(Protocol):
    """What a published method keeps of the text of one request."""

    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        """The tree of at most n nodes after a history; n None: of the method's own size. read, last: of the step."""


class BaselineDrafter:
    """Drafts the trees of a method, of at most `nodes` nodes; None: as many as published.

    predictions: of the target, that the method reads after each token
    """

    drawn = 0
    method: ClassVar[Callable[[], _Method]]
    published: ClassVar[int | None]
    predictions: ClassVar[int] = 0

    def __init__(self, nodes: int | None = None):
        self.nodes = nodes or self.published

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> BaselineSession:
        return BaselineSession(self, [type(self).method() for _ in prompts])


class BaselineSession:
    def __init__(self, drafter: BaselineDrafter, texts: list[_Method]):
        self.drafter, self.texts = drafter, texts

    def propose(self, step: DraftStep) -> Proposed:
        reads: Sequence[Read | None] = [None] * len(step.histories)
        if self.drafter.predictions:
            assert step.predictions is not None, "whoever runs a drafter gives it the predictions"
            reads = step.predictions(self.drafter.predictions)
        n = self.drafter.nodes and (step.nodes or self.drafter.nodes)
        trees = []
        for place, (request, history, read) in enumerate(zip(step.requests, step.histories, reads)):
            last = step.last[place] if step.last else None
            trees.append(self.texts[request].draft(history, n, read, last))
        return Trees.joined(trees)

    def select(self, rows: Sequence[int]) -> None:
        self.texts = [self.texts[row] for row in rows]


LONGEST_MATCH = 2  # tokens, `max_matching_ngram_size`


def looked_up(
    text: NDArray[np.integer], n: int, *, longest: int = LONGEST_MATCH, ends: tuple[int, ...] = ()
) -> NDArray[np.int32]:
    """Returns at most n tokens [m] to follow the text [t]; none without a match. Stops before a token of `ends`."""
    text = token_ids(text, "text")
    for size in range(min(longest, len(text) - 1), 0, -1):
        windows = np.lib.stride_tricks.sliding_window_view(text, size)
        found = np.flatnonzero((windows == text[len(text) - size :]).all(axis=1))
        if len(found) and (start := int(found[0]) + size) < len(text):  # the last window is the end of the text itself
            draft = text[start : start + n]
            stops = np.flatnonzero(np.isin(draft, ends))
            return draft[: stops[0] if len(stops) else n]
    return np.empty(0, np.int32)


class PromptLookup:
    """Prompt lookup (Saxena 2023) as in Hugging Face's `generate`, option `prompt_lookup_num_tokens`.

    The text is searched from its beginning for its last 2 tokens, else for its last one. The draft is what follows the
    first match.
    """

    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        assert n is not None
        return TokenTree.from_drafts(looked_up(history, n)[None])


# Children of each node of Token Recycling's published tree, by the ranks along its path; nodes not listed have none.
CHILDREN = {
    **{"": 8, "0": 8, "1": 4, "2": 3, "3": 2, "4": 1, "5": 1, "6": 1, "7": 1},
    **{"00": 8, "01": 3, "02": 2, "03": 1, "04": 1, "05": 1, "06": 1, "07": 1, "10": 2, "11": 1},
    **{"20": 1, "30": 1, "40": 1, "50": 1},
    **{"000": 5, "001": 2, "002": 1, "003": 1, "004": 1, "010": 1, "020": 1, "100": 1, "200": 1, "300": 1},
    **{"0000": 3, "0001": 1, "0002": 1, "0010": 1, "0100": 1, "1000": 1, "00000": 2, "00010": 1},
}


class TokenRecycling:
    """Token Recycling: a tree of the target's latest predictions after each token of the vocabulary.

    Luo et al. 2024, "Turning Trash into Treasure" (arXiv 2408.08696). An adjacency matrix, here a dictionary keyed by
    token, holds for every token the most probable tokens that the target predicted when it last read the token,
    accepted or not. It fills a tree of fixed shape: the published one, of 80 nodes and a root (version 2.2.2 of the
    authors' code). `best_tree` instead takes the n nodes with the greatest products of predicted probabilities.
    """

    def __init__(self) -> None:
        self._after: dict[int, tuple[NDArray[np.int32], NDArray[np.float32]]] = {}

    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        assert read is not None
        self.read(read)
        return self.best_tree(int(history[-1]), n) if n else self.static_tree(int(history[-1]))

    def read(self, read: Read) -> None:
        """Records what is known of a pass."""
        for token, ids, p in zip(*read):
            if ids[0] >= 0:
                self.see(int(token), ids, p)

    def see(self, token: int, ids: NDArray[np.int32], p: NDArray[np.float32]) -> None:
        """Records the prediction after a token: ids [k] with probabilities p [k], most probable first."""
        self._after[token] = ids[:TOP], p[:TOP]

    def after(self, token: int) -> list[int]:
        """The latest predictions after a token, most probable first; none if it was never read."""
        return self._after[token][0].tolist() if token in self._after else []

    def static_tree(self, root: int) -> TokenTree:
        """The published tree after a token; nodes for which there is no prediction are left out."""
        tokens: list[int] = []
        parents: list[int] = []
        layer = [("", root, -1)]
        while layer:
            below = []
            for path, token, node in layer:
                for rank, child in enumerate(self.after(token)[: CHILDREN.get(path, 0)]):
                    below.append((f"{path}{rank}", child, len(tokens)))
                    tokens.append(child)
                    parents.append(node)
            layer = below
        return TokenTree.from_parents(tokens, parents)

    def best_tree(self, root: int, n: int) -> TokenTree:
        """The n most probable prefixes, if a token depended on the previous one alone."""
        tokens: list[int] = []
        parents: list[int] = []
        queue: list[tuple[float, int, int, int]] = []  # (-probability, order, token, parent)

        def offer(token: int, node: int, p: float) -> None:
            for child, share in zip(*self._after.get(token, ((), ()))):
                heapq.heappush(queue, (-p * float(share), len(queue), int(child), node))

        offer(root, -1, 1.0)
        while queue and len(tokens) < n:
            cost, _, token, parent = heapq.heappop(queue)
            tokens.append(token)
            parents.append(parent)
            offer(token, len(tokens) - 1, -cost)
        return TokenTree.from_parents(tokens, parents)


DEPTH = 64  # of a suffix tree: the match and its continuation together
ROUNDING = 1e-12  # bound on the difference between sums of equal scores
LEAST = 0.1  # D of drafted nodes


@dataclass(slots=True)
class _Suffix:
    count: int = 0
    children: dict[int, _Suffix] = field(default_factory=dict)


class SuffixTree:
    """Suffix decoding: the most frequent continuations of what matches the end of the text, scored by counts.

    Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975), section 3. Below the match of the last p tokens,
    D(node) = count(node) / count(parent) D(parent). The nodes of greatest D make a tree, and the p whose tree has the
    greatest sum of D wins. The tree holds all runs of at most `depth` tokens of the text of one request alone, and
    every p gets n nodes (the published limit, a p nodes, drafts fewer).
    """

    def __init__(self, depth: int = DEPTH):
        self._root, self._depth = _Suffix(), depth
        self._ends: list[_Suffix] = []  # of the runs of the last 1, 2, .. tokens

    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        assert n is not None
        self.extend(history[self.size :])
        return self.tree(n)

    @property
    def size(self) -> int:
        """Tokens read."""
        return self._root.count

    def extend(self, tokens: NDArray[np.integer]) -> None:
        for token in tokens.tolist():
            self._root.count += 1
            ends = []
            for node in [self._root, *self._ends[: self._depth - 1]]:
                child = node.children.setdefault(token, _Suffix())
                child.count += 1
                ends.append(child)
            self._ends = ends

    def tree(self, n: int) -> TokenTree:
        """Returns the tree of at most n nodes with the greatest sum of D over all match lengths."""
        best, most = TokenTree.from_parents([], []), 0.0
        for match in self._ends:
            if not match.children:
                break  # longer matches do not exist either
            tree, score = _speculated(match, n)
            if score > most + ROUNDING:  # the shortest of equal matches
                best, most = tree, score
        return best


def _speculated(match: _Suffix, n: int) -> tuple[TokenTree, float]:
    tokens: list[int] = []
    parents: list[int] = []
    score, order = 0.0, 0
    queue: list[tuple[float, int, int, int, _Suffix]] = []

    def offer(node: _Suffix, number: int, d: float) -> None:
        nonlocal order
        for token, child in node.children.items():
            order += 1
            if (share := d * child.count / node.count) >= LEAST:
                heapq.heappush(queue, (-share, order, token, number, child))

    offer(match, -1, 1.0)
    while queue and len(tokens) < n:
        share, _, token, parent, node = heapq.heappop(queue)
        tokens.append(token)
        parents.append(parent)
        score -= share
        offer(node, len(tokens) - 1, -share)
    return TokenTree.from_parents(tokens, parents), score


LONGEST_NGRAM = 3  # tokens
AHEAD = 20  # tokens of a continuation
BRANCHES = ((8, 4), (32, 3), (64, 1))  # tokens of a branch, at most, of the first 8 of these, the first 32, all


class FollowedText:
    """LogitSpec: what followed the end of the text, and what followed each token that the last logits find probable.

    Liu et al. 2025, "LogitSpec" (arXiv 2507.01449), section 4.2, with the parameters of the authors' code. The last
    logits also predict the next but one token. So beside the continuation of the text, each of their most probable
    tokens, but for the one that became the root token, begins a branch, which goes on as the text did after that token.
    Continuations are those of the longest n-gram that the text has had before: at its latest place with 20 tokens to
    follow, or else at its first. Branches of less probable tokens are shorter. Branches are merged by prefix, in this
    order, up to n nodes.
    """

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


LENGTH = 10  # tokens of RACER's runs
CAPACITY = 10_000  # nodes of its trie
SHORTEST = 2  # tokens of a border


class Racer:
    """RACER: what followed the end of the text before, most frequent first, then the target's latest predictions.

    Zhang et al. 2026, "RACER" (arXiv 2604.14885), with the parameters of the authors' code. All runs of 10 tokens of
    the text are kept in a trie with counts, of 10,000 nodes at most. Every suffix of the text, of 2 tokens or more,
    that is in the trie is a *border*. Of the nodes below the borders, the n most frequent are drafted. A node below
    several borders is listed with each of them but drafted once. The nodes left are a tree of predictions after tokens,
    as Token Recycling keeps them.

    Open in the description, and chosen here: of equally frequent nodes the less deep are drafted first. Borders are
    always all that there are, found by walks from the root; the authors' automaton renews its failure links lazily and
    misses some. A node is used when a run is added along it or a border lies on or below it; the one dropped is a leaf.
    """

    def __init__(self) -> None:
        self._runs, self._predicted = RunTrie(), TokenRecycling()

    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        assert n is not None and read is not None
        self._runs.extend(history[self._runs.size :])
        self._predicted.read(read)
        return racer_tree(self._runs, self._predicted, int(history[-1]), n)


def racer_tree(runs: RunTrie, predicted: TokenRecycling, root: int, n: int) -> TokenTree:
    """At most n nodes after a root token, the text's last: the most frequent, and then predictions, breadth first.

    A node of breadth b gets the first b predictions after its token as children. The first child's breadth is b / 2, or
    b below the root token, whose own is 8; each next child's is half the one before, and none is below 1.
    """
    paths = dict.fromkeys(runs.frequent(n))  # in order; from the root token down
    queue: deque[tuple[tuple[int, ...], int, int]] = deque([((), root, TOP)])  # path, token, breadth
    while queue and len(paths) < n:
        path, token, breadth = queue.popleft()
        below = breadth // 2 if path else breadth
        for child in predicted.after(token)[:breadth]:
            if len(paths) == n:
                break
            paths[(*path, child)] = None
            queue.append(((*path, child), child, max(1, below)))
            below //= 2
    number = {path: node for node, path in enumerate([(), *paths], -1)}
    return TokenTree.from_parents([path[-1] for path in paths], [number[path[:-1]] for path in paths])


@dataclass(slots=True, eq=False)
class _Run:
    token: int = -1
    parent: _Run | None = None
    count: int = 0
    children: dict[int, _Run] = field(default_factory=dict)


class RunTrie:
    """All runs of `length` tokens of a growing text, with counts; the least recently used of more than `capacity` nodes
    are dropped. capacity: at least `length`.
    """

    def __init__(self, length: int = LENGTH, capacity: int = CAPACITY):
        self._root, self._capacity = _Run(), capacity
        self._used: OrderedDict[_Run, None] = OrderedDict()  # least recently first, a node before its parent
        self._last: deque[int] = deque(maxlen=length)
        self.size = 0  # tokens read

    def extend(self, tokens: NDArray[np.integer]) -> None:
        for token in tokens.tolist():
            self._last.append(token)
            if len(self._last) == self._last.maxlen:
                self._add()
        self.size += len(tokens)

    def frequent(self, n: int) -> list[tuple[int, ...]]:
        """The n most frequent nodes below the borders, as paths from their border down, parents first."""
        queue: list[tuple[int, int, tuple[int, ...], _Run]] = []  # (-count, depth, path, node)

        def offer(node: _Run, depth: int, path: tuple[int, ...]) -> None:
            for token, child in node.children.items():
                heapq.heappush(queue, (-child.count, depth + 1, (*path, token), child))

        last = list(self._last)
        for size in range(len(last), SHORTEST - 1, -1):
            if border := self._find(last[-size:]):
                self._use(border)
                offer(border, size, ())
        found: list[tuple[int, ...]] = []
        while queue and len(found) < n:
            _, depth, path, node = heapq.heappop(queue)
            found.append(path)
            offer(node, depth, path)
        return found

    def _add(self) -> None:
        """Adds the last run."""
        node = self._root
        for token in self._last:
            if token not in node.children:
                node.children[token] = _Run(token, node)
            node = node.children[token]
            node.count += 1
        self._use(node)
        while len(self._used) > self._capacity:
            oldest, _ = self._used.popitem(last=False)
            assert oldest.parent is not None
            del oldest.parent.children[oldest.token]

    def _find(self, run: Sequence[int]) -> _Run | None:
        node: _Run | None = self._root
        for token in run:
            node = node and node.children.get(token)
        return node

    def _use(self, node: _Run) -> None:
        while node.parent is not None:
            self._used[node] = None
            self._used.move_to_end(node)
            node = node.parent


class PromptLookupDrafter(BaselineDrafter):
    """Drafts chains of at most `nodes` tokens."""

    method, published = PromptLookup, 10


class TokenRecyclingDrafter(BaselineDrafter):
    """Drafts the published tree, or with `nodes` the best of that size."""

    method, published, predictions = TokenRecycling, None, TOP


class SuffixDrafter(BaselineDrafter):
    """Suffix decoding."""

    method, published = SuffixTree, 16


class LogitSpecDrafter(BaselineDrafter):
    """LogitSpec."""

    method, published, predictions = FollowedText, 64, BRANCHES[-1][0]


class RacerDrafter(BaselineDrafter):
    """RACER."""

    method, published, predictions = Racer, 64, TOP


def prompt_lookup(sources: DraftSources, *, ahead: int = 10) -> PromptLookupDrafter:
    return PromptLookupDrafter(ahead)


def token_recycling(sources: DraftSources, *, nodes: int | str | None = None) -> TokenRecyclingDrafter:
    return TokenRecyclingDrafter(fixed_size(nodes) if nodes else None)


def suffix_decoding(sources: DraftSources, *, nodes: int | str = 16) -> SuffixDrafter:
    return SuffixDrafter(fixed_size(nodes))


def logit_spec(sources: DraftSources, *, nodes: int | str = 64) -> LogitSpecDrafter:
    return LogitSpecDrafter(fixed_size(nodes))


def racer(sources: DraftSources, *, nodes: int | str = 64) -> RacerDrafter:
    return RacerDrafter(fixed_size(nodes))
