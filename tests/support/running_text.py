"""Slow reference implementation of the running text: counts in dictionaries, probabilities by recursion."""

import math
from collections import Counter
from copy import copy

import numpy as np

PROMPT = float(np.float32(0.3))  # what a token of a prompt counts
LEAST = np.float32(0.01)  # less probable tokens of a prediction are not counted
SUREST = 30.0  # limit of a logit
LONGEST = 64  # matches of more tokens count as long as this
FEW = 4  # tokens that matches foretell for each miss before any is known


def share(counts: dict[int, float], weights) -> float:
    """The weight of a context's counts in the distribution after it."""
    a, b, c = weights
    return logistic(a + b * math.log(sum(counts.values())) + c * math.log(len(counts)))


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-max(-SUREST, min(value, SUREST))))


def mixed(p: np.ndarray, counts: dict[int, float], weights) -> np.ndarray:
    """p with the counts' share of it given to the counts, both parts as they are stored, in float32: what is left of 1
    after some tokens may be no more than their rounding.
    """
    if not counts:
        return p
    s, total = share(counts, weights), sum(counts.values())
    worth, rest = float(np.float32(s / total)), float(np.float32(1 - s))
    return worth * np.array([counts.get(w, 0.0) for w in range(len(p))]) + rest * p


class Text:
    """p(w) after the text and a draft, interpolated with another distribution [V].

    shares, predicted: (a, b, c) of every order, of what followed and of what was predicted (None: nothing may be).
    copied: of what followed the longest match (None: none is sought).
    prompt: how many of the first tokens are a prompt's.
    """

    def __init__(self, tokens, shares, predicted=None, *, copied=None, prompt=0):
        self.tokens, self.shares, self.predicted, self.copied = (), list(shares), list(predicted or ()), copied
        self._came, self._foreseen = [], []  # (all that was read before, what came and its amount)
        self.amount, self.foretold, self.missed = 1.0, 0, 0
        self.extend(tokens[:prompt], PROMPT)
        self.extend(tokens[prompt:])

    def sibling(self):
        """Another text that stands where this one does, with the same lists of what came."""
        same = copy(self)
        same.amount = PROMPT
        return same

    def extend(self, tokens, amount=None):
        for token in tokens:
            if amount is None and (found := self.match(())):
                self.foretold += 1
                self.missed += found[0] != token
            self._came.append((self.tokens, {token: self.amount if amount is None else amount}))
            self.tokens = (*self.tokens, token)

    def foresee(self, draft, predicted: dict[int, float]):
        """The target's prediction after the text as it is now and a rejected draft."""
        counted = {w: float(np.float32(p)) for w, p in predicted.items() if np.float32(p) >= LEAST}
        self._foreseen.append(((*self.tokens, *draft), counted))

    def followers(self, context: tuple[int, ...]) -> dict[int, float]:
        return _of(self._came, context)

    def foreseen(self, context: tuple[int, ...]) -> dict[int, float]:
        return _of(self._foreseen, context)

    def distribution(self, draft: tuple[int, ...], other: np.ndarray) -> np.ndarray:
        whole = (*self.tokens, *draft)
        p = self._of_order(min(len(self.shares) - 1, len(whole)), whole, np.array(other, np.float64))
        if found := self.match(draft):
            (token, total, per_miss), (a, b, c) = found, self.copied
            s = logistic(a + b * math.log(total) + c * math.log(per_miss))
            p = s * (np.arange(len(p)) == token) + (1 - s) * p
        return p

    def match(self, draft: tuple[int, ...], *, other=False) -> tuple[int, int, float] | None:
        """The token that followed a match of the last tokens; how many tokens match; and how many tokens matches
        foretold for each that they missed. After the text the match is the longest, the last of equally long ones. A
        draft that leaves it goes on with the last place of its last tokens, as many as the longest context has; one of
        another text begins without a match.
        """
        least, text = len(self.shares) - 1, self.tokens
        if self.copied is None or least == 0:
            return None
        lengths = {at: common_end(text[:at], text) for at in range(1, len(text))}
        length, at = max(((length, at) for at, length in lengths.items()), default=(0, 0))
        follows, before = length >= least and not other, () if other else text
        for seen, token in enumerate(draft, 1):
            follows = follows and at < len(text) and text[at] == token
            at, length = at + 1, length + 1
            if not follows or at == len(text):
                end = (*before, *draft[:seen])[-least:]
                found = [at for at in range(least, len(text)) if text[at - least : at] == end]
                follows, at, length = bool(found), max(found, default=0), least
        return (text[at], min(length, LONGEST), (FEW + self.foretold) / (1 + self.missed)) if follows else None

    def _of_order(self, length: int, whole: tuple[int, ...], other: np.ndarray) -> np.ndarray:
        if length < 0:
            return other
        context, p = whole[len(whole) - length :], self._of_order(length - 1, whole, other)
        p = mixed(p, self.followers(context), self.shares[length])
        return mixed(p, self.foreseen(context), self.predicted[length]) if self.predicted else p

    def evidence(self, draft: tuple[int, ...], token: int, *, other=False) -> np.ndarray:
        """What each order, then the match, knows of a token after the text, or none, and a draft: count, total and
        distinct, [order + 1, 2, 3].
        """
        whole, known = (() if other else self.tokens) + draft, np.zeros((len(self.shares) + 1, 2, 3))
        if found := self.match(draft, other=other):
            copied, total, per_miss = found
            known[-1, 0] = total * (copied == token), total, per_miss
        for length in range(min(len(self.shares), len(whole) + 1)):
            context = whole[len(whole) - length :]
            for kind, counts in enumerate((self.followers(context), self.foreseen(context))):
                known[length, kind] = counts.get(token, 0.0), sum(counts.values()), len(counts)
        return known


def common_end(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many last tokens are equal, at most LONGEST."""
    length = 0
    while length < min(len(one), len(other), LONGEST) and one[-1 - length] == other[-1 - length]:
        length += 1
    return length


def _of(events, context: tuple[int, ...]) -> dict[int, float]:
    """The counts of the events whose text ends in the context."""
    counts: Counter[int] = Counter()
    for before, of in events:
        if len(before) >= len(context) and before[len(before) - len(context) :] == context:
            counts.update(of)
    return dict(counts)


class Earlier:
    """The same of earlier texts, each by itself, after a history that they do not hold."""

    def __init__(self, texts, shares):
        self._came, self.shares = [came for text in texts for came in Text(text, shares)._came], shares

    def distribution(self, history: tuple[int, ...], other: np.ndarray) -> np.ndarray:
        p = np.array(other, np.float64)
        for length, weights in enumerate(self.shares[: len(history) + 1]):
            p = mixed(p, _of(self._came, tuple(history[len(history) - length :])), weights)
        return p
