"""Slow reference implementations: a backoff model over dictionaries, and searches by enumeration."""

import dataclasses
import itertools
import math
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from rescore._core import Automaton
from rescore.lm.model.compile import Arrays
from rescore.lm.model.ngram import NGram

FIXED_ONE = 2**32


def fixed(nats: float) -> int:
    """`nats` in units of 2^-32, ties to even, so that sums are exact."""
    return round(nats * FIXED_ONE)


@dataclasses.dataclass(frozen=True)
class Backoff:
    """arcs: {context: {token: cost}}, backoff: {context: cost}; the empty context has an arc for every token."""

    vocab_size: int
    order: int
    arcs: dict[tuple[int, ...], dict[int, float]]
    backoff: dict[tuple[int, ...], float]

    def context(self, history: tuple[int, ...]) -> tuple[int, ...]:
        """The longest suffix of at most order - 1 tokens that is a context."""
        suffix = history[len(history) - min(len(history), self.order - 1) :]
        while suffix not in self.arcs:
            suffix = suffix[1:]
        return suffix

    def cost(self, context: tuple[int, ...], token: int) -> float:
        """-ln p(token | context), backing off only if there is no arc."""
        paid = 0.0
        while token not in self.arcs[context]:
            paid += self.backoff[context]
            context = self.context(context[1:])
        return paid + self.arcs[context][token]

    def arrays(self) -> Arrays:
        """The plain arrays of the automaton, context by context."""
        contexts = sorted(self.arcs, key=lambda context: (len(context), context[::-1]))
        number = {context: i for i, context in enumerate(contexts)}
        rows = [(context, token, cost) for context in contexts for token, cost in sorted(self.arcs[context].items())]
        return Arrays(
            arc_begin=np.cumsum([0, *(len(self.arcs[context]) for context in contexts)], dtype=np.uint64),
            arc_token=np.array([token for _, token, _ in rows], np.uint16 if self.vocab_size <= 1 << 16 else np.uint32),
            arc_cost=np.array([cost for _, _, cost in rows], np.float32),
            arc_next=np.array([number[self.context((*context, token))] for context, token, _ in rows], np.uint32),
            backoff_state=np.array([number[context[1:]] for context in contexts], np.uint32),
            backoff_cost=np.array([self.backoff[context] for context in contexts], np.float32),
        )

    def ngram(self) -> NGram:
        return NGram.from_arrays(self.arrays(), order=self.order, vocab_size=self.vocab_size)

    def automaton(self) -> Automaton:
        return self.ngram().core


def unigrams(costs) -> Backoff:
    """A model of single tokens."""
    return Backoff(len(costs), 1, {(): dict(enumerate(costs))}, {(): 0.0})


def nats(low: int, high: int):
    """Costs that are exact in float32: multiples of 1/8, which tie often, and others at least 1e-3 apart."""
    return st.one_of(
        st.integers(8 * low, 8 * high).map(lambda n: n / 8),
        st.integers(1000 * low, 1000 * high).map(lambda n: float(np.float32(n / 1000))),
    )


costs = nats(0, 20)
backoffs = nats(-3, 10)


@st.composite
def models(draw, vocab_size: int) -> Backoff:
    order = draw(st.integers(1, 4))
    arcs = {(): {token: draw(costs) for token in range(vocab_size)}}
    for length in range(1, order):
        shorter = [(*context, token) for context in arcs if len(context) == length - 1 for token in arcs[context]]
        shorter = [context for context in shorter if context[1:] in arcs]  # a context's suffixes are contexts
        for context in draw(st.lists(st.sampled_from(shorter), unique=True, max_size=6)) if shorter else ():
            # hw kept implies h'w kept: a context's arcs are among those of its backoff state.
            below = sorted(arcs[context[1:]])
            tokens = draw(st.lists(st.sampled_from(below), unique=True)) if below else []
            arcs[context] = {token: draw(costs) for token in tokens}
    return Backoff(vocab_size, order, arcs, {context: draw(backoffs) if context else 0.0 for context in arcs})


@st.composite
def sausages(draw, vocab_size: int, most_slots: int = 4, most_candidates: int = 4) -> list[list[tuple[int, float]]]:
    """Slots of (token, head cost), best first; may be empty."""
    slots = []
    for _ in range(draw(st.integers(0, most_slots))):
        most = min(most_candidates, vocab_size)
        tokens = draw(st.lists(st.integers(0, vocab_size - 1), unique=True, min_size=1, max_size=most))
        slots.append(list(zip(tokens, sorted(draw(costs) for _ in tokens))))
    return slots


def padded(batch: list[list[list[tuple[int, float]]]]) -> tuple[np.ndarray, np.ndarray]:
    """ids and cost [B, T, K] of several sausages."""
    slots = max([1, *(len(sausage) for sausage in batch)])
    width = max([1, *(len(slot) for sausage in batch for slot in sausage)])
    ids = np.full((len(batch), slots, width), -1, np.int32)
    cost = np.full((len(batch), slots, width), np.inf, np.float32)
    for b, sausage in enumerate(batch):
        for t, slot in enumerate(sausage):
            ids[b, t, : len(slot)] = [token for token, _ in slot]
            cost[b, t, : len(slot)] = [c for _, c in slot]
    return ids, cost


def padded_histories(histories: list[list[int]]) -> np.ndarray:
    """[B, n], padding in front."""
    most = max(map(len, histories), default=0)
    return np.array([[-1] * (most - len(history)) + list(history) for history in histories], np.int32).reshape(
        len(histories), most
    )


def step_weight(head_cost: float, lms: list[Backoff], alphas: list[float], contexts, token: int) -> int:
    total = head_cost
    for lm, alpha, context in zip(lms, alphas, contexts):
        total += alpha * lm.cost(context, token)
    return fixed(total)


def path_weight(head_cost: float, lms: list[Backoff], alphas: list[float], contexts, token: int) -> int:
    """The weight of a step. Every arc, including failure arcs, has a weight that is rounded once."""
    total = fixed(head_cost)
    for lm, alpha, context in zip(lms, alphas, contexts):
        while token not in lm.arcs[context]:
            total += fixed(alpha * lm.backoff[context])
            context = lm.context(context[1:])
        total += fixed(alpha * lm.arcs[context][token])
    return total


def step_weights(weigh, sausage, ranks, lms, alphas, histories) -> Iterator[int]:
    """Rescored costs of a path's tokens, by step_weight or path_weight: alphas [J][T], one history per model."""
    contexts = [lm.context(tuple(history)) for lm, history in zip(lms, histories)]
    for t, rank in enumerate(ranks):
        token, head_cost = sausage[t][rank]
        yield weigh(head_cost, lms, [alpha[t] for alpha in alphas], contexts, token)
        contexts = [lm.context((*context, token)) for lm, context in zip(lms, contexts)]


def failure_cost(sausage, ranks, lms, alphas, histories) -> int:
    """Rescored cost of a path."""
    return sum(step_weights(path_weight, sausage, ranks, lms, alphas, histories))


def core_arguments(lms, batch, alphas, histories):
    """What the core's searches take: automata, histories, ids, cost and alpha."""
    ids, cost = padded(batch)
    alpha = np.array(alphas, np.float64).reshape(len(lms), ids.shape[1])
    return [lm.automaton() for lm in lms], padded_histories(histories), ids, cost, alpha


def best_strings(sausage, paths: int, string_cost) -> list[tuple[int, tuple[int, ...]]]:
    """The `paths` best of all paths as (fixed cost, tokens), ties by ranks."""
    if not sausage:
        return []
    every = itertools.product(*(range(len(slot)) for slot in sausage))
    ranked = sorted((string_cost(ranks), ranks) for ranks in every)
    return [(cost, tuple(sausage[t][rank][0] for t, rank in enumerate(ranks))) for cost, ranks in ranked[:paths]]


def best_prefixes(sausage, nodes: int, lms, alphas, histories) -> list[tuple[int, int, tuple[int, ...]]]:
    """The `nodes` most probable of all prefixes as (fixed -log q, depth, tokens)."""
    found = []

    def extend(cost: int, ranks: tuple[int, ...], tokens: tuple[int, ...], contexts) -> None:
        t = len(ranks)
        if t == len(sausage):
            return
        weights = [step_weight(c, lms, [a[t] for a in alphas], contexts, token) for token, c in sausage[t]]
        least = min(weights)
        log_total = fixed(math.log(sum(math.exp((least - w) / FIXED_ONE) for w in weights)))
        for rank, ((token, _), weight) in enumerate(zip(sausage[t], weights)):
            child = cost + weight - least + log_total
            found.append((child, t + 1, (*ranks, rank), (*tokens, token)))
            extend(child, (*ranks, rank), (*tokens, token), [lm.context((*c, token)) for lm, c in zip(lms, contexts)])

    extend(0, (), (), [lm.context(history) for lm, history in zip(lms, histories)])
    return [(cost, depth, tokens) for cost, depth, _, tokens in sorted(found)[:nodes]]
