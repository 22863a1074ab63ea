"""Rules for trees at temperature > 0: sample matching, and recursive rejection over siblings.

Sources: Miao et al. 2024, "SpecInfer" (naive sampling; multi-step speculative sampling, independent siblings); Jeon et
al. 2024, "Recursive Speculative Decoding", and Chen et al. 2024, "Sequoia" (siblings without replacement).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from rescore.decode.verify.draft import ScoredDraft
from rescore.decode.verify.greedy import follow
from rescore.decode.verify.rule import Rule, Verdict
from rescore.decode.verify.sampling import Array, check_rows, ids, numbers, probabilities, residual, sample, uniform
from rescore.lattice.tree import ROOT, TokenTree

Siblings = Literal["independent", "distinct", "fixed"]


class Matching(Rule):
    """Keeps the longest path of tokens drawn from the target, each with its position's own random number.

    For drafts that are not samples of a known q: the best tree, the p best paths, an n-gram draft. The target draws its
    tokens as without a draft (`rescore.decode.verify.sampling`), so the draft never changes the text.
    """

    guarantee = (
        "the emitted tokens have the target's distribution, and are the same tokens whatever is drafted "
        "(equal arithmetic)"
    )
    drawn = False

    def verdict(self, p: Array, tree: TokenTree, uniforms: Sequence[float] | Array) -> Verdict:
        """The accepted nodes of a tree of n nodes, and the next token.

        p [1+n, V] target after the root token and after each node, rows of sum 1, numpy or torch floats; uniforms [1 +
        depth] in [0, 1), one per position up to the tree's depth: entry d draws the token after d drafted ones from p's
        row.
        """
        check_rows("p", p, tree.size + 1)
        deepest = int(tree.depths.max(initial=0))
        draws = numbers(
            "uniforms", uniforms, deepest + 1, "one per position, from the root token to after the deepest node"
        )

        def target(node: int) -> int:
            return int(sample(_row("p", p, node), draws[tree.depths[node] if node >= 0 else 0]))

        return follow(tree, target)

    def verify(self, scored: ScoredDraft) -> Verdict:
        depths, seeds = scored.draft.tree.depths, scored.seeds

        def drawn(node: int) -> int:
            place = int(depths[node]) if node >= 0 else 0
            # Tokens past max_tokens are discarded and need no number.
            return scored.drawn_token(node, float(uniform(seeds[place])) if place < len(seeds) else 0.0)

        return follow(scored.draft.tree, drawn)


class RecursiveRejection(Rule):
    """Tests the drafted children of a node one by one, each against the remaining target.

    A child x drawn from q is accepted with probability min(1, p(x) / q(x)); otherwise p becomes max(p - q, 0),
    normalised, and the next child is tested. Each test is lossless for its p, so their sequence is too. q depends on
    how siblings were drawn:

    independent  all from the node's q; a repeated token is tested again (it has no mass left and fails)
    distinct     without replacement: q loses each tested token and is renormalised
    fixed        chosen independently of the target's random numbers: q is a point mass at the child, which is accepted
                 with p(x); otherwise p(x) becomes 0. Exact given the tree; accepts as often as `Matching`
    """

    guarantee = "the emitted tokens have the target's distribution"

    def __init__(self, siblings: Siblings = "independent"):
        if siblings not in ("independent", "distinct", "fixed"):
            raise ValueError(f"siblings: expected 'independent', 'distinct' or 'fixed', got {siblings!r}")
        self.siblings = siblings
        self.drawn = siblings != "fixed"

    def verdict(
        self,
        p: Array,
        tree: TokenTree,
        uniforms: Sequence[float] | Array,
        *,
        q: Array | None = None,
        draws: Any = None,
    ) -> Verdict:
        """The accepted nodes of a tree of n nodes, and the next token.

        p         [1+n, V], target after the root token and after each node, numpy or torch floats, rows of sum 1
        q         [1+n, V], drafter likewise; rows at leaves are not read. None for fixed siblings
        draws     int [m], nodes in the order of their draws, each at least once, and again for every repeated draw
                  (None: 0..n-1). All draws below a node, after whichever draw of it, belong to it: the node's tests do
                  not depend on them, so they are independent samples
        uniforms  [m+1] in [0, 1), one per draw for its test, the last for the next token
        """
        if (q is None) == self.drawn:
            wanted = f"[1 + n, V] for {self.siblings} siblings" if self.drawn else "none for fixed siblings"
            raise ValueError(f"q: expected {wanted}, got {'none' if q is None else 'one'}")
        check_rows("p", p, tree.size + 1)
        if q is not None:
            check_rows("q", q, tree.size + 1, like=p)
        order = list(range(tree.size)) if draws is None else _checked_draws(draws, tree.size)
        *tests, last = numbers("uniforms", uniforms, len(order) + 1, "one per draw and one for the next token")

        children: dict[int, list[int]] = {}  # each parent's draws, as indices into order
        for draw, node in enumerate(order):
            children.setdefault(int(tree.parents[node]), []).append(draw)
        path: list[int] = []
        node = ROOT
        while True:
            p_row = _row("p", p, node)
            below = children.get(node, [])
            q_row = _row("q", q, node) if below and q is not None else None
            tokens = [int(tree.tokens[order[draw]]) for draw in below]
            for draw, (acceptance, left) in zip(below, rejections(p_row, q_row, tokens, self.siblings, node)):
                if tests[draw] < acceptance:
                    node = order[draw]
                    path.append(node)
                    break
                p_row = left
            else:
                return Verdict(accepted=tuple(path), token=int(sample(p_row, last)))

    def verify(self, scored: ScoredDraft) -> Verdict:
        tree, draws = scored.draft.tree, scored.draft.draws
        p = scored.probabilities(range(-1, tree.size))
        if not self.drawn or not tree.size:
            return RecursiveRejection("fixed").verdict(p, tree, scored.random.random(tree.size + 1))
        q, inner = p * 0.0, sorted(set(tree.parents.tolist()))
        q[[1 + node for node in inner]] = scored.distribution.rows(inner).cpu()
        return self.verdict(p, tree, scored.random.random(len(draws) + 1), q=q, draws=draws)


def rejections(
    p: Array, q: Array | None, tokens: Iterable[int], siblings: Siblings, node: int = ROOT
) -> Iterator[tuple[float, Array]]:
    """For each drawn child, yields its acceptance probability once the earlier ones have failed, and the target float64
    [V] that is left if it fails.

    p, q float64 [V] after `node` (for errors), q None for fixed siblings; tokens in the order of their draws, repeats
    included.
    """
    for token in tokens:
        drawn = _only(p, token) if q is None else q
        s = float(drawn[token])
        if s == 0:
            raise ValueError(
                f"child {token} of node {node}: expected a token that the drafter could have drawn there, got q = 0"
                + (" after its earlier siblings are removed" if siblings == "distinct" else "")
            )
        acceptance = min(1.0, float(p[token]) / s)
        p = residual(p, drawn)
        if siblings == "distinct":
            q = _without(drawn, token)
        yield acceptance, p


def _row(name: str, rows: Array, node: int) -> Array:
    return probabilities(name, rows[1 + node : 2 + node], first=1 + node)[0]


def _only(like: Array, token: int) -> Array:
    point = like * 0.0
    point[token] = 1.0
    return point


def _without(q: Array, token: int) -> Array:
    rest = q * 1.0  # a copy
    rest[token] = 0.0
    mass = float(rest.sum())
    return rest / mass if mass > 0 else rest


def _checked_draws(draws: Any, size: int) -> list[int]:
    order = ids("draws", draws, size, "a node")
    missing = set(range(size)).difference(order)
    if missing:
        raise ValueError(f"draws: expected every node at least once, got none of node {min(missing)}")
    return order
