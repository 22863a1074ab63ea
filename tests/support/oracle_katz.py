"""Slow reference implementations of counting, Katz estimation and entropy pruning, from their definitions."""

import math
from collections import Counter, defaultdict

from support.oracle_lm import Backoff

K, LAST = 5, 0.999  # the largest count that is discounted by its own rate, and the rate of larger ones


def count(documents, order, end_of_text):
    """{n-gram: count}; documents are lists of tokens without end-of-text."""
    stream = [end_of_text]
    for document in documents:
        stream += [*document, end_of_text]
    counts = Counter(stream[1:])
    counts = Counter({(token,): c for token, c in counts.items()})
    for n in range(2, order + 1):
        for at in range(len(stream) - n + 1):
            gram = tuple(stream[at : at + n])
            if end_of_text not in gram[1:-1]:
                counts[gram] += 1
    return counts


def discounts(counts, order):
    """{r: d_r} of counts 1..K."""
    n = Counter(c for gram, c in counts.items() if len(gram) == order)
    g = (K + 1) * n[K + 1] / (n[1] or 1)
    found = {}
    for r in range(1, K + 1):
        starred = (r + 1) * (n[r + 1] or 1) / (n[r] or 1)
        d = (starred / r - g) / (1 - g) if g != 1 else math.inf
        found[r] = d if 0 < d < 1 else LAST
    return found


def katz(counts, order, vocab_size, min_counts=()) -> Backoff:
    """The model; contexts without remaining mass are not supported."""
    events = sum(c for gram, c in counts.items() if len(gram) == 1)
    once = sum(c == 1 for gram, c in counts.items() if len(gram) == 1)
    unseen = [token for token in range(vocab_size) if (token,) not in counts]
    reserved = min(max(once, 1), len(unseen))
    cost = {}
    for token in range(vocab_size):
        seen = counts.get((token,), 0) or reserved / len(unseen)
        cost[(token,)] = -math.log(seen / (events + reserved))
    followers = defaultdict(list)
    for gram, c in counts.items():
        if len(gram) > 1:
            followers[gram[:-1]].append((gram, c))
    model = Backoff(cost=cost, backoff={}, order=order, vocab_size=vocab_size)
    for context in sorted(followers, key=len):
        d = discounts(counts, len(context) + 1)
        least = min_counts[len(context)] if len(context) < len(min_counts) else 1
        total = sum(c for _, c in followers[context])
        for gram, c in followers[context]:
            if c >= least and gram[:-1] in cost and gram[1:] in cost:
                cost[gram] = -math.log(d.get(c, LAST) * c / total)
    renew_backoff(model)
    return model


def renew_backoff(model):
    kept = defaultdict(list)
    for gram in model.cost:
        kept[gram[:-1]].append(gram)
    model.backoff = {context: backoff(model, grams) for context, grams in kept.items() if context}


def backoff(model, grams):
    """The backoff weight of a context with these n-grams."""
    own = 1 - sum(math.exp(-model.cost[gram]) for gram in grams)
    lower = 1 - sum(math.exp(-model.cost[gram[1:]]) for gram in grams)
    return math.log(lower) - math.log(own)


def by_chain_rule(model, context):
    """p(context) by the model's chain rule."""
    return math.exp(-sum(model.of(context[:i], context[i]) for i in range(len(context))))


def loss(model, gram, history=None):
    """The relative entropy that dropping `gram` alone costs, as the sum over the vocabulary that it is.

    history  p(context); by the chain rule if None
    """
    context = gram[:-1]
    p_context = history(context) if history else by_chain_rule(model, context)
    changed = Backoff(dict(model.cost), dict(model.backoff), model.order, model.vocab_size)
    del changed.cost[gram]
    changed.backoff[context] = backoff(changed, [other for other in changed.cost if other[:-1] == context])
    old = [model.of(context, token) for token in range(model.vocab_size)]
    new = [changed.of(context, token) for token in range(model.vocab_size)]
    return p_context * sum(math.exp(-a) * (b - a) for a, b in zip(old, new))


def prune(model, theta, history=None) -> Backoff:
    """The model without n-grams of small loss, except for those that kept n-grams need."""
    keep = {gram for gram in model.cost if len(gram) == 1 or loss(model, gram, history) >= math.log1p(theta)}
    for n in range(model.order, 1, -1):
        for gram in [gram for gram in keep if len(gram) == n]:
            keep |= {gram[:-1], gram[1:]}
    left = Backoff({gram: model.cost[gram] for gram in keep}, {}, model.order, model.vocab_size)
    renew_backoff(left)
    return left
