"""Slow reference implementation of a text that is expected: the forward algorithm over all places of an automaton."""

import math
from collections import Counter, defaultdict

import numpy as np

REMOVED = 4
FAINT = 1e-6
MANY = 64
TRUST, DOUBT = 4, 8
BEFORE = 0.2  # weight of a text that begins with something else


class Edits:
    """p(w) after the text and a draft, interpolated with another distribution [V]."""

    def __init__(self, expected, arcs, share, text=()):
        self.expected = list(expected)
        self.replaced, self.inserted, self.left, self.removed, self.jumped, self.other = arcs
        self.copy = (1 - self.replaced - self.inserted - self.left) / sum(self.removed**d for d in range(REMOVED + 1))
        self.share = share
        self.places, self.last = {0: 1 - BEFORE}, None
        self.copies, self.replacements = Counter(), Counter()
        for token in text:
            self.extend(token)

    def extend(self, token):
        best = self.best(self.places)
        if self.places[best] > 0.5 and best < len(self.expected):
            fate = self.copies if self.expected[best] == token else self.replacements
            fate[self.expected[best]] += 1
        self.places, self.last = self.step(self.places, self.last, token), token

    @staticmethod
    def best(places):
        return min(places, key=lambda at: (-places[at], at))

    def step(self, places, last, token):
        reached, away = defaultdict(float), (1 - sum(places.values())) * self.other
        for at, weight in places.items():
            worth = weight * self.copy  # multiplied in the core's order, since FAINT may be met exactly
            for removed, there in enumerate(self.expected[at : at + REMOVED + 1]):
                if there == token:
                    reached[at + removed + 1] += worth
                worth *= self.removed
            if at < len(self.expected):
                reached[at + 1] += weight * self.replaced * self.other
            reached[at] += weight * self.inserted * self.other
            away += weight * self.left * self.other
        pairs = [at + 2 for at, pair in enumerate(zip(self.expected, self.expected[1:])) if pair == (last, token)]
        if len(pairs) <= MANY:
            for at in pairs:
                reached[at] += self.jumped * self.other / len(pairs)
        kept = {at: weight for at, weight in reached.items() if weight >= FAINT * max(reached.values())}
        total = away + sum(kept.values())
        return {at: weight / total for at, weight in kept.items()}

    def trust(self, token):
        copied = TRUST + self.copies[token]
        return copied / (copied + DOUBT * self.replacements[token])

    def distribution(self, draft, other):
        places, last = self.places, self.last
        for token in draft:
            places, last = self.step(places, last, token), token
        a, b = self.share
        share = 1 / (1 + math.exp(-(a + b * math.log(max(places.values())))))
        copied = np.zeros(len(other))
        for at, weight in places.items():
            for removed, there in enumerate(self.expected[at : at + REMOVED + 1]):
                copied[there] += share * weight * self.copy * self.removed**removed * self.trust(there)
        return copied + (1 - copied.sum()) * other
