"""A slow twin of the model of a running text: counts in dictionaries, probabilities by recursion."""

from __future__ import annotations

from collections import Counter

import numpy as np


class Text:
    """p(w) after the text and a draft, interpolated with another distribution [V]."""

    def __init__(self, tokens, strength):
        self.tokens, self.strength = tuple(tokens), strength

    def followers(self, context: tuple[int, ...]) -> Counter:
        n = len(context)
        return Counter(self.tokens[i + n] for i in range(len(self.tokens) - n) if self.tokens[i : i + n] == context)

    def distribution(self, draft: tuple[int, ...], other: np.ndarray) -> np.ndarray:
        p = np.array(other, np.float64)
        whole = self.tokens + draft
        for length, strength in enumerate(self.strength):
            if length > len(whole):
                break
            seen = self.followers(whole[len(whole) - length :])
            if seen:
                added = strength * len(seen)
                p = (added * p + [seen[w] for w in range(len(p))]) / (seen.total() + added)
        return p
