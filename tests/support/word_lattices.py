"""Random word lattices, and their strings with costs by enumeration."""

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from support.oracle import Backoff, costs, fixed

from rescore.lattice.word_lattice import NOTHING, WordLattice

VOCAB = 7


@st.composite
def word_lattices(draw, most_states: int = 6, most_arcs: int = 12) -> WordLattice:
    """Small lattices: some arcs read nothing, a state may have several of a token, and may end strings."""
    states = draw(st.integers(1, most_states))
    one = st.tuples(st.integers(0, most_states), st.integers(NOTHING, VOCAB - 1), st.integers(1, 3), costs, costs)
    given = draw(st.lists(one, max_size=most_arcs))
    arcs = [(s, token, s + step, (a, b)) for s, token, step, a, b in given if s + step < states]
    final = draw(st.lists(st.integers(0, states - 1), unique=True, min_size=1, max_size=2))
    numbers = draw(st.permutations(range(states)))
    return WordLattice.from_arcs(
        [numbers[s] for s, _, _, _ in arcs],
        [token for _, token, _, _ in arcs],
        [numbers[t] for _, _, t, _ in arcs],
        [pair for _, _, _, pair in arcs],
        start=numbers[0],
        final={numbers[state]: (draw(costs), draw(costs)) for state in final},
    )


def arc_paths(lattice: WordLattice, state: int = 0) -> Iterator[tuple[int, ...]]:
    """All paths from a state to the last one, as arcs."""
    if state == lattice.states - 1:
        yield ()
    for arc in range(int(lattice.first[state]), int(lattice.first[state + 1])):
        for rest in arc_paths(lattice, int(lattice.targets[arc])):
            yield (arc, *rest)


def path_weight(lattice: WordLattice, path, lms: list[Backoff], alphas, contexts, ends) -> int:
    """The weight of a path: every cost, that of failure arcs too, is rounded once. ends: the token that each model
    reads at the end, None for none.
    """
    total, contexts, cost = 0, list(contexts), lattice.costs.sum(axis=1, dtype=np.float64)
    for arc in path:
        total += fixed(cost[arc])
        for j, (lm, alpha) in enumerate(zip(lms, alphas)):
            token = ends[j] if lattice.targets[arc] == lattice.states - 1 else int(lattice.tokens[arc])
            if token is None or token == NOTHING:
                continue
            at = contexts[j]
            while token not in lm.arcs[at]:
                total += fixed(alpha * lm.backoff[at])
                at = lm.context(at[1:])
            total += fixed(alpha * lm.arcs[at][token])
            contexts[j] = lm.context((*contexts[j], token))
    return total


def spelt(lattice: WordLattice, path) -> tuple[int, ...]:
    """The tokens of a path."""
    return tuple(token for token in lattice.tokens[list(path)].tolist() if token != NOTHING)


def ranked(lattice: WordLattice, weigh, paths: int) -> list[tuple[int, tuple[int, ...]]]:
    """The best distinct strings as (weight, tokens), each by its cheapest path; ties by tokens."""
    least: dict[tuple[int, ...], int] = {}
    for path in arc_paths(lattice):
        string, weight = spelt(lattice, path), weigh(lattice, path)
        least[string] = min(weight, least.get(string, weight))
    return sorted((weight, string) for string, weight in least.items())[:paths]


def graph_of(lattice: WordLattice, ends):
    """What the core takes of a lattice. ends: the token that each model reads at the end, None for none."""
    last = lattice.targets == lattice.states - 1
    labels = [np.where(last, NOTHING if end is None else end, lattice.tokens) for end in ends]
    cost = lattice.costs.sum(axis=1, dtype=np.float64)
    return (
        lattice.first,
        lattice.targets,
        lattice.tokens,
        cost,
        np.array(labels, np.int32).reshape(len(ends), lattice.arcs),
    )


def dyadic(rng: np.random.Generator, size=None):
    """Costs that are multiples of 1/64: their sums are exact in float32, as OpenFst adds."""
    return rng.integers(0, 640, size) / 64


def large_lattice(rng: np.random.Generator, arcs: int, vocab: int, reach: int = 4) -> WordLattice:
    """A random deterministic lattice of about so many arcs, of states of degrees up to 7 or 79, that ends in the last
    three states.
    """
    rows: list[tuple[int, int, int]] = []
    state = 0
    while len(rows) < arcs:
        degree = int(rng.integers(1, min(vocab, 80 if rng.random() < 0.05 else 8)))
        tokens = rng.permutation(vocab)[:degree].tolist()
        rows += [(state, token, state + int(rng.integers(1, reach))) for token in tokens]
        state += 1
    source, tokens, targets = np.array(rows).T
    costs = dyadic(rng, (len(rows), 2))
    final = {state + last: tuple(dyadic(rng, 2).tolist()) for last in range(3)}
    return WordLattice.from_arcs(source, tokens, targets, costs, final=final)


def large_model(rng: np.random.Generator, vocab: int, order: int = 3) -> Backoff:
    """A random model of some contexts of every length, with dyadic costs."""
    arcs = {(): dict(enumerate(dyadic(rng, vocab).tolist()))}
    for length in range(1, order):
        shorter = [(*context, token) for context in arcs if len(context) == length - 1 for token in arcs[context]]
        for context in (one for one in shorter if one[1:] in arcs and rng.random() < 0.5):
            below = sorted(arcs[context[1:]])
            tokens = rng.permutation(below)[: int(rng.integers(0, len(below) + 1))]
            arcs[context] = {token: float(dyadic(rng)) for token in sorted(tokens.tolist())}
    return Backoff(vocab, order, arcs, {context: float(dyadic(rng)) if context else 0.0 for context in arcs})
