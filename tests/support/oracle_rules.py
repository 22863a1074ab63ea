"""Exact output distributions of acceptance rules, by enumeration of all drafts and outcomes."""

import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from rescore.decode.verify.chain_rules import GreedyBlockVerification, TokenVerification
from rescore.decode.verify.modification import Modified, step
from rescore.decode.verify.rule import Verdict
from rescore.decode.verify.tree_rules import rejections

Text = tuple[int, ...]


class Model(dict):
    """A random language model: text -> distribution [V], sampled on first use. A share `zeros` has no mass."""

    def __init__(self, rng: np.random.Generator, vocab: int, zeros: float = 0.25):
        self.rng, self.vocab, self.zeros = rng, vocab, zeros

    def __missing__(self, text: Text) -> np.ndarray:
        row = self.rng.dirichlet(np.ones(self.vocab)) * (self.rng.random(self.vocab) >= self.zeros)
        self[text] = row / row.sum() if row.sum() > 0 else np.eye(self.vocab)[self.rng.integers(self.vocab)]
        return self[text]

    def texts(self, size: int, start: Text = ()) -> Iterator[tuple[Text, float]]:
        """Every continuation of `start` by `size` tokens with nonzero probability, and its probability."""
        if size == 0:
            yield (), 1.0
            return
        for x in np.flatnonzero(self[start]).tolist():
            for rest, weight in self.texts(size - 1, (*start, x)):
                yield (x, *rest), float(self[start][x]) * weight

    def along(self, start: Text, draft: Text, rows: int) -> np.ndarray:
        """[rows, V]: the distributions after start, start + draft[:1], ..."""
        return np.stack([self[start + draft[:i]] for i in range(rows)]) if rows else np.empty((0, self.vocab))


def lengths(rule, acceptance) -> list[float]:
    """Probability of each accepted length 0..g: up to the first failure for token verification, else the longest
    success.
    """
    h = [float(x) for x in acceptance]
    if isinstance(rule, TokenVerification):
        return [float(np.prod(h[:n])) * (1 - h[n] if n < len(h) else 1) for n in range(len(h) + 1)]
    return [([1.0, *h])[n] * float(np.prod([1 - x for x in h[n:]])) for n in range(len(h) + 1)]


def expected_length(rule, target: Model, drafter: Model, size: int) -> float:
    total = 0.0
    for draft, weight in drafter.texts(size):
        law = rule.law(target.along((), draft, size + 1), drafter.along((), draft, size), draft)
        total += weight * sum(n * x for n, x in enumerate(lengths(rule, law.acceptance)))
    return total


def emitted(
    rule, target: Model, blocks: list[tuple[Model, int]], length: int, start: Text = (), stack=(), weight: float = 1.0
) -> dict[Text, float]:
    """Law of the first `length` tokens: one pass for each (drafter, draft length) of `blocks`, then token by token.

    Greedy block verification goes on with the target that it leaves behind, in later blocks and token by token.
    """
    out: dict[Text, float] = defaultdict(float)

    def add(text: Text, stack, weight: float, blocks) -> None:
        for whole, mass in emitted(rule, target, blocks, length, text, stack, weight).items():
            out[whole] += mass

    if len(start) >= length:
        return {start[:length]: weight}
    if not blocks:
        row, _ = step(stack, target[start])
        for x in np.flatnonzero(row).tolist():
            add((*start, x), step(stack, target[start], x)[1], weight * float(row[x]), [])
        return out
    (drafter, size), *later = blocks
    for draft, drawn in drafter.texts(size, start):
        modified = Modified.along(stack, target.along(start, draft, size + 1), draft)
        q = drafter.along(start, draft, size)
        law = rule.law(modified.p, q, draft)
        for n, mass in enumerate(lengths(rule, law.acceptance)):
            row = law.next_token(n)
            for x in np.flatnonzero(row).tolist() if mass > 0 else ():
                after = ()
                if isinstance(rule, GreedyBlockVerification):
                    after = modified.after(
                        Verdict(accepted=tuple(range(n)), token=x), q, lambda suffix: drafter[start + suffix]
                    )
                add((*start, *draft[:n], x), after, weight * drawn * mass * float(row[x]), later)
    return out


def drawn_trees(drafter: Model, siblings: str, widths: list[int]) -> Iterator[tuple[float, list[Text]]]:
    """Every sequence of draws (texts in the order of the draws, a parent's first) and its probability.

    Each draw of level d gets widths[d] draws below it, the draws that repeat a text as well.
    """

    def below(text: Text, width: int) -> list[tuple[float, list[Text]]]:
        q, found = drafter[text], []
        for tokens in itertools.product(range(drafter.vocab), repeat=width):
            weight, left = 1.0, q.copy()
            for x in tokens:
                weight *= float(left[x])
                if siblings == "distinct":
                    left[x] = 0
                    left = left / left.sum() if left.sum() > 0 else left
            if weight > 0:
                found.append((weight, [(*text, x) for x in tokens]))
        return found

    def levels(last: list[Text], widths: list[int]) -> Iterator[tuple[float, list[Text]]]:
        if not widths:
            yield 1.0, []
            return
        for choice in itertools.product(*(below(text, widths[0]) for text in last)):
            level = [text for _, texts in choice for text in texts]
            for weight, rest in levels(level, widths[1:]):
                yield float(np.prod([w for w, _ in choice])) * weight, level + rest

    yield from levels([()], widths)


def emitted_by_tree(
    target: Model, drafter: Model | None, draws: list[Text], siblings: str, length: int
) -> dict[Text, float]:
    """Distribution of the first `length` tokens given the draws: one pass, then token by token from the target."""
    out: dict[Text, float] = defaultdict(float)

    def visit(text: Text, weight: float) -> None:
        children = [draw for draw in draws if draw[:-1] == text]
        q = drafter[text] if drafter is not None and children else None
        row = target[text]
        for child, (acceptance, left) in zip(children, rejections(row, q, [draw[-1] for draw in children], siblings)):
            if weight * acceptance > 0:
                visit(child, weight * acceptance)
            weight, row = weight * (1 - acceptance), left
        for x in np.flatnonzero(row).tolist() if weight > 0 else ():
            for rest, mass in target.texts(max(0, length - len(text) - 1), (*text, x)):
                out[((*text, x) + rest)[:length]] += weight * float(row[x]) * mass

    visit((), 1.0)
    return out


def distance(law: dict[Text, float], target: Model, length: int) -> float:
    """Total variation distance to the target's distribution over texts of `length` tokens."""
    truth = dict(target.texts(length))
    return sum(abs(law.get(text, 0.0) - truth.get(text, 0.0)) for text in law.keys() | truth.keys()) / 2
