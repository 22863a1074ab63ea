"""Slow reference implementation of the running text: counts in dictionaries, probabilities by recursion."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

LEAST = np.float32(0.01)  # a share of a prediction that is less does not count
UNKNOWN = np.float32(0.15)  # probability of a token that came, where it is not known what was predicted


class Text:
    """p(w) after the text and a draft, interpolated with another distribution [V].

    predicted: {w: p} at each position of the text, empty where nothing is known; soft: f of every order, none is 0.
    """

    def __init__(self, tokens, strength, predicted=None, soft=None):
        self.tokens, self.strength = tuple(tokens), strength
        self.soft = [np.float32(f) for f in soft or [0.0] * len(strength)]
        # (how much of the text was read, a draft behind it, the token that came or None, what was predicted)
        self.events = []
        self.extend((), tokens, predicted or [{}] * len(self.tokens))

    def extend(self, before, tokens, predicted):
        self.tokens = (*before, *tokens)
        ends = range(len(before), len(self.tokens))
        self.events += [(end, (), token, one) for end, token, one in zip(ends, tokens, predicted)]

    def foresee(self, draft, predicted):
        """Behind the text as it is now."""
        self.events.append((len(self.tokens), tuple(draft), None, predicted))

    def read(self, end, draft, n):
        """The last n tokens, or fewer, of what was read."""
        return (self.tokens[max(0, end - n) : end] + draft)[-n:] if n else ()

    def followers(self, context: tuple[int, ...]) -> dict[int, float]:
        n, counts = len(context), defaultdict(float)
        for end, draft, token, predicted in self.events:
            if self.read(end, draft, n) != context:
                continue
            for w, p in predicted.items():
                if (share := self.soft[n] * np.float32(p)) >= LEAST:
                    counts[w] += float(share)
            hard = 1 - self.soft[n] * (1 if predicted else 1 - UNKNOWN)
            if token is not None and hard > 0:
                counts[token] += float(hard)
        return counts

    def distribution(self, draft: tuple[int, ...], other: np.ndarray) -> np.ndarray:
        p = np.array(other, np.float64)
        whole = self.tokens + draft
        for length, strength in enumerate(self.strength):
            if length > len(whole):
                break
            seen = self.followers(whole[len(whole) - length :])
            if seen:
                added = strength * len(seen)
                p = (added * p + [seen.get(w, 0.0) for w in range(len(p))]) / (sum(seen.values()) + added)
        return p


class Earlier:
    """The same of earlier texts, each by itself, behind a history that they do not hold."""

    def __init__(self, texts, strength):
        self.texts, self.strength = [tuple(text) for text in texts], strength

    def distribution(self, history: tuple[int, ...], other: np.ndarray) -> np.ndarray:
        p = np.array(other, np.float64)
        for length, strength in enumerate(self.strength[: len(history) + 1]):
            context, counts = history[len(history) - length :], np.zeros(len(p))
            for text in self.texts:
                for at in range(length, len(text)):
                    counts[text[at]] += text[at - length : at] == context
            if counts.any():
                added = strength * np.count_nonzero(counts)
                p = (added * p + counts) / (counts.sum() + added)
        return p
