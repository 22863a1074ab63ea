"""Slow reference implementation of interpolated modified Kneser-Ney (Chen and Goodman 1998, section 3).

Counts are those of `oracle_katz.count`: the end of text is <s> at the beginning of an n-gram and </s> at its end.
"""

import math
from collections import Counter, defaultdict

from support.oracle_lm import Backoff


class NoDiscounts(Exception):
    """Counts of counts that give no discounts."""


def adjusted(counts, order, end_of_text):
    """{n-gram: how many different tokens stood before it}; of the highest order, and where nothing can stand before:
    how often it was seen.
    """
    found = Counter()
    for gram, seen in counts.items():
        if len(gram) == order or (len(gram) > 1 and gram[0] == end_of_text):
            found[gram] = seen
        if len(gram) > 1:
            found[gram[1:]] += 1
    return found


def discounts(of_order):
    """D1, D2, D3+ of the adjusted counts of one order (equation 26)."""
    n = Counter(of_order)
    if not (n[1] and n[2] and n[3]):
        raise NoDiscounts
    y = n[1] / (n[1] + 2 * n[2])
    found = tuple(r - (r + 1) * y * n[r + 1] / n[r] for r in (1, 2, 3))
    if not all(0 < d <= r for r, d in enumerate(found, 1)):
        raise NoDiscounts
    return found


def kneser_ney(counts, order, vocab_size, end_of_text, *, fallback=None, min_counts=()) -> Backoff:
    """The model. Statistics are taken before rare n-grams are dropped; their mass goes to the shorter context."""
    full = adjusted(counts, order, end_of_text)
    followers = defaultdict(list)
    for gram, c in full.items():
        followers[gram[:-1]].append((gram, c))
    model = Backoff(cost={}, backoff={}, order=order, vocab_size=vocab_size)
    for context in sorted(followers, key=len):
        n = len(context) + 1
        try:
            d = discounts(c for gram, c in full.items() if len(gram) == n)
        except NoDiscounts:
            if fallback is None:
                raise
            d = fallback
        least = min_counts[min(n, len(min_counts)) - 1] if min_counts and n > 1 else 1
        total = sum(c for _, c in followers[context])
        kept = {gram: (c - d[min(c, 3) - 1]) / total for gram, c in followers[context] if counts[gram] >= least}
        left = 1 - sum(kept.values())  # what the shorter context distributes
        if not context:
            kept = {(token,): kept.get((token,), 0.0) for token in range(vocab_size)}
        elif kept:
            model.backoff[context] = -math.log(left)
        for gram, own in kept.items():
            shorter = math.exp(-model.cost[gram[1:]]) if context else 1 / vocab_size
            model.cost[gram] = -math.log(own + left * shorter)
    return model
