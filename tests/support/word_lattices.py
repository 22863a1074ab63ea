"""Random word lattices, and their strings with costs by enumeration."""

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from support.oracle import Backoff, costs, fixed

from rescore.lattice.word_lattice import END, WordLattice

VOCAB = 7


@st.composite
def word_lattices(draw, most_states: int = 6, most_arcs: int = 12) -> WordLattice:
    """Small lattices: arcs lead forward, tokens differ within a state, any state may end strings."""
    states = draw(st.integers(1, most_states))
    pairs = [(state, token) for state in range(states) for token in range(VOCAB)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=most_arcs if states > 1 else 0))
    arcs = [(s, token, draw(st.integers(s + 1, states - 1))) for s, token in chosen if s + 1 < states]
    final = draw(st.lists(st.integers(0, states - 1), unique=True, min_size=1, max_size=2))
    numbers = draw(st.permutations(range(states)))
    return WordLattice.from_arcs(
        np.array([numbers[s] for s, _, _ in arcs], np.int64),
        np.array([token for _, token, _ in arcs], np.int64),
        np.array([numbers[t] for _, _, t in arcs], np.int64),
        np.array([(draw(costs), draw(costs)) for _ in arcs], np.float64),
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
            token = ends[j] if lattice.tokens[arc] == END else int(lattice.tokens[arc])
            if token is None:
                continue
            at = contexts[j]
            while token not in lm.arcs[at]:
                total += fixed(alpha * lm.backoff[at])
                at = lm.context(at[1:])
            total += fixed(alpha * lm.arcs[at][token])
            contexts[j] = lm.context((*contexts[j], token))
    return total


def ranked(lattice: WordLattice, weigh, paths: int) -> list[tuple[int, tuple[int, ...]]]:
    """The best paths as (weight, arcs), ties by tokens."""
    every = sorted((weigh(lattice, path), lattice.tokens[list(path)].tolist(), path) for path in arc_paths(lattice))
    return [(weight, path) for weight, _, path in every[:paths]]


def dyadic(rng: np.random.Generator, size=None):
    """Costs that are multiples of 1/64: their sums are exact in float32, as OpenFst adds."""
    return rng.integers(0, 640, size) / 64


def large_lattice(rng: np.random.Generator, arcs: int, vocab: int, reach: int = 4) -> WordLattice:
    """A random lattice of about so many arcs, of states of degrees from 1 to 2 or to 80, whose ends are the last three
    states.
    """
    rows: list[tuple[int, int, int]] = []
    state = 0
    while len(rows) < arcs:
        degree = int(rng.integers(1, min(vocab, 80 if rng.random() < 0.05 else 8)))
        rows += [
            (state, token, state + int(rng.integers(1, reach))) for token in rng.permutation(vocab)[:degree].tolist()
        ]
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
