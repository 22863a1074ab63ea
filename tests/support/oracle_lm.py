"""Slow reference implementation of backoff models as dictionaries."""

import math
import random
from dataclasses import dataclass

import numpy as np

from rescore.lm.build.counts import count
from rescore.lm.build.estimate import KatzOptions, estimate_model
from rescore.lm.model.tables import Tables


@dataclass
class Backoff:
    """{n-gram: cost of its last token}, {context: backoff cost}, as tuples of ids."""

    cost: dict
    backoff: dict
    order: int
    vocab_size: int

    def of(self, history, token) -> float:
        """-ln p(token | history)."""
        context = tuple(history)[max(len(history) - self.order + 1, 0) :]
        paid = 0.0
        while (*context, token) not in self.cost:
            paid += self.backoff.get(context, 0.0)
            context = context[1:]
        return paid + self.cost[(*context, token)]

    def states(self) -> set:
        """The contexts that have n-grams or a backoff weight, and their suffixes."""
        known = {gram[:-1] for gram in self.cost} | {context for context, b in self.backoff.items() if b != 0}
        return {(), *(context[i:] for context in known for i in range(len(context)))}

    def state(self, history) -> tuple:
        """The longest suffix of the history that is a state."""
        states, context = self.states(), tuple(history)
        while context not in states:
            context = context[1:]
        return context

    def total(self, history) -> float:
        """Sum of the probabilities of all tokens."""
        return sum(math.exp(-self.of(history, token)) for token in range(self.vocab_size))


def from_tables(tables: Tables) -> Backoff:
    grams = [list(map(tuple, tables.spell(n).tolist())) for n in range(1, tables.order + 1)]

    def by_gram(columns):
        return {gram: c for own, column in zip(grams, columns) for gram, c in zip(own, column.tolist())}

    backoff = {context: b for context, b in by_gram(tables.gram_backoffs()).items() if not math.isnan(b)}
    return Backoff(by_gram(tables.cost), backoff, order=tables.order, vocab_size=tables.vocab_size)


def random_text(seed: int, vocab_size: int, tokens: int, end_of_text: int = 0) -> list[int]:
    """Text with some structure: each token is often one of two followers of the previous one."""
    draw = random.Random(seed)
    text = [end_of_text]
    for _ in range(tokens):
        follower = (text[-1] * 3 + draw.randint(0, 1)) % vocab_size
        text.append(follower if draw.random() < 0.7 else draw.randrange(vocab_size))
    return text


def random_tables(seed: int, order: int, vocab_size: int = 9, tokens: int = 120, min_counts=(), **options) -> Tables:
    """A Katz model of random text."""
    text = random_text(seed, vocab_size, tokens)
    counts = count([text], order=order, vocab_size=vocab_size, end_of_text=0, min_counts=min_counts)
    return estimate_model(counts, KatzOptions(**options))


def random_history(draw: random.Random, vocab_size: int, length: int) -> np.ndarray:
    return np.array([draw.randrange(vocab_size) for _ in range(length)], np.int32)
