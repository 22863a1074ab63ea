"""Trees under a calibrated q, of open and closed lattices, against the enumeration of all prefixes."""

import heapq
import itertools
import math
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.core_trees import prefixes
from support.edits import Edits
from support.oracle import Backoff, models, padded, padded_histories, sausages, unigrams
from support.running_text import Earlier, Text

from rescore import _core

VOCAB = 5
LEAST_MASS, RAREST = 1e-6, 32.0
numbers, token = st.floats(0, 2), st.integers(0, VOCAB - 1)
predictions = st.dictionaries(token, st.floats(0.0078125, 0.25, width=32), max_size=3)
weights_of_order = st.tuples(st.floats(-3, 3), st.floats(0, 2), st.floats(-2, 1))
WITTEN_BELL = (0.0, 1.0, -1.0)
COPIED = (-1.0, 0.8, 0.3)
LATE = st.sampled_from([None, 0.0, 0.3, 1.0])


def counts(shares, predicted=None, copied=None):
    return _core.ContextModel(shares=np.array(shares), predicted=np.array(predicted or shares), copied=copied)


def text_of(*tokens):
    text = counts([WITTEN_BELL] * 2)
    text.extend(np.array(tokens, np.int32))
    return text


@st.composite
def problems(draw):
    sausage = draw(sausages(VOCAB, most_slots=3))
    slots = max(1, len(sausage))
    of_slots = st.lists(numbers, min_size=slots, max_size=slots)
    history = draw(st.lists(token, max_size=12))
    shares = draw(st.one_of(st.none(), st.lists(weights_of_order, min_size=1, max_size=4)))
    weights = [draw(of_slots) for _ in range(3)] + [draw(st.lists(st.floats(-5, 5), min_size=slots, max_size=slots))]
    opened = draw(st.booleans())
    return draw(models(VOCAB)), sausage, weights, history, shares, opened, draw(st.integers(1, 3))


class Graph(list):
    """The candidates of each state; next: for each candidate the later state it leads to, or -1."""

    next: list


@st.composite
def branching(draw):
    """Problems whose lattices are no sausages."""
    problem = draw(problems())
    lattice = Graph(problem[1])
    behind = [st.sampled_from([-1, *range(at + 1, len(lattice))]) for at in range(len(lattice))]
    lattice.next = [[draw(of) for _ in state] for of, state in zip(behind, lattice)]
    return problem[0], lattice, *problem[2:]


def place(lattice, prefix):
    """The slot in which a prefix is; None past the lattice."""
    if not isinstance(lattice, Graph):
        return len(prefix) if len(prefix) < len(lattice) else None
    state = 0 if lattice else -1
    for w in prefix:
        tokens = [token for token, _ in lattice[state]] if state >= 0 else []
        state = lattice.next[state][tokens.index(w)] if w in tokens else -1
    return state if state >= 0 else None


def steps(problem, prefix, **told):
    """-ln q of every token that may follow the prefix, at least 0."""
    sausage, opened = problem[1], problem[5]
    every = all_steps(problem, prefix, **told)
    at = place(sausage, prefix)
    proposed = every if opened else dict(sausage[at]) if at is not None else ()
    return {w: max(every[w], 0.0) for w in proposed}


def all_steps(problem, prefix, memory=None, foreseen=(), edits=None, late=None):
    """-ln q of every token. late: this part of the texts is interpolated with the q of a slot."""
    lm, sausage, weights, history, shares, *_ = problem
    t = place(sausage, prefix)
    slot, (head, alpha, prior, floor) = {}, (0.0, 0.0, 0.0, 0.0)
    if t is not None:
        slot, (head, alpha, prior, floor) = dict(sausage[t]), (one[t] for one in weights)
    context = lm.context((*history, *prefix))
    p = np.exp([-lm.cost(context, w) for w in range(VOCAB)])

    def with_texts(p):
        if memory:
            p = memory.distribution((*history, *prefix), p)
        if shares:
            text = Text(history, shares, shares, copied=COPIED)
            for draft, predicted in foreseen:
                text.foresee(draft, predicted)
            p = text.distribution(tuple(prefix), p)
        return edits.distribution(prefix, p) if edits else p

    late = late if slot else None
    if late is None:
        p = with_texts(p)
    rest = math.log(
        max(VOCAB - len(slot), 1) / max(1 - sum(math.exp(-np.float32(c)) for c in slot.values()), LEAST_MASS)
    )
    others = -head * rest - floor
    weight = {
        w: -head * np.float32(c) + prior * min(lm.arcs[()][w], RAREST) + alpha * math.log(p[w]) for w, c in slot.items()
    }
    left = others + math.log(max(1 - sum(p[w] for w in slot), LEAST_MASS))
    total = np.logaddexp.reduce([*weight.values(), left])
    weight |= {w: others + math.log(p[w]) for w in range(VOCAB) if w not in slot}
    if late is not None:
        p = np.array([math.exp(weight[w] - total) for w in range(VOCAB)])
        p = late * with_texts(p) + (1 - late) * p
        return {w: -math.log(p[w]) for w in range(VOCAB)}
    return {w: total - value for w, value in weight.items()}


def enumerated(problem, steps=steps, **told):
    """{prefix: logq} of all prefixes."""
    sausage, *_, opened, depth = problem[1:]
    out, frontier = {}, {(): 0.0}
    for _ in range(depth if opened or isinstance(sausage, Graph) else min(depth, len(sausage))):
        frontier = {
            (*prefix, w): cost + step
            for prefix, cost in frontier.items()
            for w, step in steps(problem, prefix, **told).items()
        }
        out |= {prefix: -cost for prefix, cost in frontier.items()}
    return out


def call(**changes):
    """The core's trees of two slots of a single token each, unless something else is asked for."""
    return _core.best_tree(
        **{
            "models": [unigrams([1.0] * VOCAB).automaton()],
            "histories": np.zeros((1, 0), np.int32),
            "ids": np.zeros((1, 2, 1), np.int32),
            "cost": np.ones((1, 2, 1), np.float32),
            "alpha": np.ones((1, 2)),
            "weights": np.ones((3, 2)),
            "open": True,
            "texts": [],
            "depth": 2,
            "nodes": 4,
        }
        | changes
    )


def headless(costs, *, texts, depth, nodes):
    """The tree of a lattice without slots, under a model of single tokens."""
    none, weights = np.empty((1, 0, 1), np.int32), np.empty((3, 0))
    arrays = {"ids": none, "cost": none.astype(np.float32), "alpha": weights[:1], "weights": weights}
    model = unigrams(costs.tolist()).automaton()
    return call(**arrays, models=[model], texts=texts, depth=depth, nodes=nodes, threads=2)


def search(problem, nodes, copies=1, foreseen=(), **more):
    lm, sausage, (head, alpha, prior, floor), history, shares, opened, depth = problem
    ids, cost = (one[:, : len(sausage)].copy() for one in padded([sausage] * copies))
    text = counts(shares or [WITTEN_BELL], copied=COPIED)
    text.extend(np.array(history, np.int32))
    for draft, predicted in foreseen:
        of, p = np.array(list(predicted), np.int32), np.array(list(predicted.values()), np.float32)
        text.foresee(np.array(draft, np.int32), of, p)
    if isinstance(sausage, Graph):
        more["next"] = np.full(ids.shape, -1, np.int32)
        for state, behind in enumerate(sausage.next):
            more["next"][:, state, : len(behind)] = behind
    return call(
        models=more.pop("models", [lm.automaton()]),
        histories=padded_histories([history] * copies),
        ids=ids,
        cost=cost,
        alpha=np.array([alpha])[:, : len(sausage)].copy(),
        weights=np.array([head, prior, floor])[:, : len(sausage)].copy(),
        open=opened,
        texts=[text] * copies if shares else [],
        depth=depth,
        nodes=nodes,
        **more,
    )


# A model that gains by backing off, from (1,) to p = e^0.5: the text alone does not say which followers matter.
ARCS, BACKOFF = {(): dict.fromkeys(range(VOCAB), 0.0), (1,): {}, (2,): {}}, {(): 0.0, (1,): -0.5, (2,): 0.0}
WEIGHTS = [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
GAINING = (Backoff(VOCAB, 2, ARCS, BACKOFF), [[(0, 0.0)]] * 2, WEIGHTS, [1, 2], [WITTEN_BELL], True, 2)

# A slot whose candidates leave 1.5e-6 of the mass, on which all else depends: the rounding of shares to float32 shows.
NEARLY_ALL = (
    unigrams([float(np.float32(-math.log((1 - 3e-6) / 4)))] * 4 + [14.0]),
    [[(w, 20.0) for w in range(4)]],
    [[2.0], [0.0], [0.0], [-5.0]],
    [0, 1, 2],
    [(0.1, 0.0, 0.0)],
    True,
    1,
)


def assert_best(columns, wanted, nodes):
    """The tree of every row holds the n best of all prefixes, with their ln q."""
    best = sorted(wanted.values(), reverse=True)[:nodes]
    for row in zip(*columns, strict=True):
        found = prefixes(*row)
        assert len({tokens for *_, tokens in found}) == len(found)
        assert {tokens: logq for logq, _, tokens in found} == pytest.approx({t: wanted[t] for *_, t in found}, abs=1e-4)
        assert [logq for logq, *_ in found] == pytest.approx(best, abs=1e-4)


@settings(max_examples=100, deadline=None)
@given(problems() | branching(), st.integers(1, 40), LATE)
@example(GAINING, 3, None)
@example(GAINING, 3, 1.0)
@example(NEARLY_ALL, 5, None)
@example(NEARLY_ALL, 5, 0.5)
def test_equals_enumeration(problem, nodes, late):
    """Of every row of a batch; a smaller tree is the beginning of a larger one."""
    columns, larger = search(problem, nodes, late=late), search(problem, nodes + 1, copies=3, threads=2, late=late)
    assert_best(columns, enumerated(problem, late=late), nodes)
    n = int(columns[4][0])
    for mine, other in zip(columns[:4], larger[:4]):
        assert all(np.array_equal(mine[0, :n], row[:n]) for row in other)


class Acceptor:
    """A random structure: of every prefix some tokens, or none. Answers the core as `allowed`, for copies of a row."""

    def __init__(self, seed: int, copies: int = 1):
        self.seed, self.prefixes = seed, [[] for _ in range(copies)]

    def of(self, prefix) -> set[int]:
        rng = random.Random(hash((self.seed, *prefix)))
        return set(rng.sample(range(VOCAB), rng.choice([0, 1, 1, 2, 3, 4, 5])))

    def run(self, prefix):
        """Of the tokens that must follow one after another, as many as it says."""
        rng, run = random.Random(hash((self.seed, -1, *prefix))), []
        while rng.random() < 0.7 and len(allowed := self.of((*prefix, *run))) == 1:
            run += allowed
        return run

    def __call__(self, rows, before, passed, tokens):
        assert len({*rows}) == len(rows)
        past = 0xFFFFFFFF << VOCAB & 0xFFFFFFFF  # bits past V
        answers = []
        for row, number, length, token in zip(rows, before, passed, tokens):
            start = self.prefixes[row][number] if token >= 0 else ()
            prefix = (*start, *self.run(start)[:length], *[token] * (token >= 0))
            self.prefixes[row].append(prefix)
            words = np.array([sum(1 << w for w in self.of(prefix)) | past], np.uint32)
            free = len(self.of(prefix)) == VOCAB and self.seed % 2  # else all bits are set
            answers.append(tuple(self.run(prefix)) or (None if free else words))
        return answers


def listed(problem, prefix) -> set[int]:
    """The candidates of the slot after a prefix, and what the text lists after the prefix's contexts."""
    _, sausage, _, history, shares, *_ = problem
    text = Text(history, shares or (), shares, copied=COPIED if shares else None)
    found, before = {match[0] for match in [text.match(tuple(prefix))] if match}, (*history, *prefix)
    for order in range(len(shares or ())):
        if order <= len(before):
            found |= text.followers(before[len(before) - order :]).keys()
    at = place(sausage, prefix)
    return found | {w for w, _ in (sausage[at] if at is not None else ())}


def bounded_steps(acceptor, few, late):
    """`steps` under a structure: q divided by that of the allowed tokens."""

    def steps(problem, prefix):
        sausage, opened, every = problem[1], problem[5], all_steps(problem, prefix, late=late)
        allowed = acceptor.of(prefix)
        if len(allowed) == VOCAB:
            mass = 1.0
        elif len(allowed) <= few:
            mass = sum(math.exp(-every[w]) for w in allowed)
        else:
            mass = max(1 - sum(math.exp(-every[w]) for w in listed(problem, prefix) - allowed), LEAST_MASS)
        at = place(sausage, prefix)
        proposed = allowed if opened else allowed & dict(sausage[at] if at is not None else ()).keys()
        return {w: 0.0 if len(allowed) == 1 else max(every[w] + math.log(mass), 0.0) for w in proposed}

    return steps


@settings(max_examples=100)
@given(problems(), st.lists(models(VOCAB), min_size=2, max_size=3), st.integers(1, 20))
def test_a_model_for_each_lattice(problem, own, nodes):
    """The trees are those of each model by itself."""
    together = search(problem, nodes, copies=len(own), models=[lm.automaton() for lm in own])
    for row, lm in enumerate(own):
        alone = search((lm, *problem[1:]), nodes)
        assert all(column[row : row + 1].tobytes() == one.tobytes() for column, one in zip(together, alone))


@settings(max_examples=100, deadline=None)
@given(problems() | branching(), st.integers(1, 40), st.integers(0, 2**32), st.sampled_from([1, 2, 5]), LATE)
def test_under_a_structure(problem, nodes, seed, few, late):
    """Exactly the best prefixes of q restricted to an acceptor, of two rows alike."""
    acceptor = Acceptor(seed, copies=2)
    columns = search(problem, nodes, copies=2, allowed=acceptor, few=few, late=late)
    assert_best(columns, enumerated(problem, steps=bounded_steps(acceptor, few, late)), nodes)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(1, 40), st.sampled_from([1.0, 0.5, 0.2, 0.1, 0.03, 0.01]))
@example(GAINING, 3, 0.3)
def test_prefixes_below_the_least_q_are_left_out(problem, nodes, least):
    """The tree is that without a bound, cut where its nodes fall below it."""
    whole = prefixes(*(column[0] for column in search(problem, nodes)))
    assume(not any(abs(logq - np.log(least)) < 1e-6 for logq, *_ in whole))
    assert prefixes(*(column[0] for column in search(problem, nodes, least=least))) == [
        one for one in whole if one[0] > np.log(least)
    ]


@settings(max_examples=100, deadline=None)
@given(
    problems(),
    st.lists(st.lists(token, max_size=8), max_size=4),
    st.lists(weights_of_order, min_size=1, max_size=4),
    st.integers(1, 40),
)
def test_memory_stands_between_the_text_and_the_model(problem, texts, shares, nodes):
    memory = counts(shares)
    for text in texts:
        memory.begin()
        memory.extend(np.array(text, np.int32))
    columns = search(problem, nodes, copies=2, threads=2, memories=[memory] * 2)
    assert_best(columns, enumerated(problem, memory=Earlier(texts, shares)), nodes)


@settings(max_examples=100, deadline=None)
@given(
    problems().filter(lambda problem: problem[4]),
    st.lists(st.tuples(st.lists(token, max_size=3), predictions), min_size=1, max_size=6),
    st.integers(1, 40),
)
def test_what_was_predicted_after_rejected_drafts_is_in_q(problem, foreseen, nodes):
    assert_best(search(problem, nodes, foreseen=foreseen), enumerated(problem, foreseen=foreseen), nodes)


@settings(max_examples=100, deadline=None)
@given(
    problems(),
    st.lists(token, max_size=11),
    st.lists(token, max_size=8),
    st.tuples(*[st.floats(0.001, 0.3)] * 6),
    st.tuples(st.floats(-3, 3), st.floats(0, 3)),
    st.integers(1, 40),
)
def test_a_text_that_is_expected_stands_before_all_others(problem, expected, text, arcs, share, nodes):
    model = _core.EditModel(np.array(expected, np.int32), arcs=arcs, share=share)
    model.extend(np.array(text, np.int32))
    columns, free = search(problem, nodes, copies=2, expected=[None, model]), search(problem, nodes)
    wanted = enumerated(problem, edits=Edits(expected, arcs, share, text))
    assert_best([column[1:] for column in columns], wanted, nodes)
    assert all(np.array_equal(mine[0], other[0]) for mine, other in zip(columns, free))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.booleans(), st.sampled_from((1.02, 1.3)))
def test_long_lists_of_followers(seed, nodes, tied, exponent):
    """Contexts with more followers than are read one by one, of what came and of what was predicted: against all
    prefixes of two tokens.

    tied: all of them as frequent, in several lists, and as costly. exponent: of the law of their frequencies; near 1
    hundreds of them are about as frequent.
    """
    draw, vocab, size = np.random.default_rng(seed), 160, 1200
    costs = -np.log(draw.dirichlet(np.ones(vocab)))
    text = np.where(draw.random(size) < 0.5, 0, draw.zipf(exponent, size) % vocab).astype(np.int32)
    ids = np.argsort(draw.random((100, vocab)), axis=1)[:, :4].astype(np.int32)
    p = draw.dirichlet(np.ones(5), 100)[:, :4].astype(np.float32)
    if tied:
        costs = np.full(vocab, np.log(vocab))
        text[:], ids[:], p[:] = 0, np.arange(vocab)[-4:], 0.0
        text[1 : 2 * vocab : 2] = draw.permutation(vocab)
    shares = [(-math.log(m), 1.0, -1.0) for m in (2.0, 0.5, 1.0, 0.7)]
    predicted = [(-2.0, 0.3, 0.1), (-0.5, 0.5, -0.2), (0.0, 0.8, -0.5), (0.2, 1.0, -1.0)]
    model, twin = counts(shares, predicted), Text(text.tolist(), shares, predicted)
    model.extend(text)
    for draft, of, share in zip(draw.integers(0, 3, (100, 1)).astype(np.int32), ids, p):
        model.foresee(draft, of, share)
        twin.foresee(draft.tolist(), dict(zip(of.tolist(), share)))
    assert len(twin.followers((0,))) > 24
    out = headless(costs, depth=2, nodes=nodes, texts=[model])
    first = np.log(twin.distribution((), np.exp(-costs)))
    wanted = {(w,): first[w] for w in range(vocab)}
    for w in np.argsort(-first)[:nodes].tolist():
        wanted |= {(w, v): first[w] + x for v, x in enumerate(np.log(twin.distribution((w,), np.exp(-costs))))}
    assert_best(out, wanted, nodes)


@pytest.mark.parametrize("depth, nodes", [(33, 64), (100, 150), (4096, 200)])
def test_copies_run_on(depth, nodes):
    """A text that begins again: trees far deeper than any lattice, against best-first search over all tokens."""
    draw, vocab = np.random.default_rng(nodes), 20
    shares = [(-math.log(m), 1.0, -1.0) for m in (2.0, 0.5, 0.05, 0.01)]
    p = draw.dirichlet(np.ones(vocab))
    once = draw.integers(0, vocab, 150).tolist()
    text, twin = counts(shares), Text(once + once[:12], shares)
    text.extend(np.array(twin.tokens, np.int32))
    out = headless(-np.log(p), depth=depth, nodes=nodes, texts=[text])
    queue, wanted = [(0.0, ())], {}
    while len(wanted) <= nodes:
        cost, prefix = heapq.heappop(queue)
        wanted[prefix] = -cost
        if len(prefix) < depth:
            steps = -np.log(twin.distribution(prefix, p))
            for w in range(vocab):
                heapq.heappush(queue, (cost + steps[w], (*prefix, w)))
    assert_best(out, {prefix: logq for prefix, logq in wanted.items() if prefix}, nodes)
    assert out[2].max() == min(depth, max(map(len, wanted))) > 32


@pytest.mark.parametrize("unseen_cost", [40.0, 1000.0])
def test_a_token_that_the_model_never_saw_is_no_rarer_for_its_cost(unseen_cost):
    """The text has token 4, a candidate too: its cost in the model, which stands for no count, must not make its q."""
    seen = [-math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    sausage, weights = [[(2, 0.5), (4, 3.0)]], ([0.5], [0.75], [0.2], [-3.5])
    shares = [(-3.3, 1.0, -1.0), (-2.2, 1.0, -1.0)]
    problem = (unigrams([*seen, unseen_cost]), sausage, weights, [1, 4, 2], shares, False, 1)
    assert_best(search(problem, 2), enumerated(problem), 2)
    assert enumerated(problem)[4,] == pytest.approx(enumerated((unigrams([*seen, RAREST]), *problem[1:]))[4,], abs=1e-5)


def test_a_text_that_is_searched_grows_afterwards():
    """A search counts on lists that stay where they are."""
    text, ids, cost = text_of(*range(VOCAB)), np.zeros((16, 8, 1), np.int32), np.ones((16, 8, 1), np.float32)
    rows = {"histories": np.zeros((16, 0), np.int32), "ids": ids, "cost": cost, "texts": [text] * 16}

    def search():
        for _ in range(100):
            call(**rows, alpha=np.ones((1, 8)), weights=np.ones((3, 8)), depth=8, nodes=64)

    with ThreadPoolExecutor(2) as pool:
        searches = [pool.submit(search) for _ in range(2)]
        added, draw = [], np.random.default_rng(0)
        while not all(one.done() for one in searches):
            added.append(draw.integers(0, VOCAB, 50).astype(np.int32))
            text.extend(added[-1])
    assert [one.result() for one in searches] == [None, None] and added
    alone = text_of(*range(VOCAB))
    alone.extend(np.concatenate(added))
    same = [call(texts=[one], nodes=100) for one in (text, alone)]
    assert all(np.array_equal(mine, other) for mine, other in zip(*same))


@pytest.mark.parametrize("weights", list(itertools.product([0.0, 1e4, math.inf, math.nan], repeat=2)))
def test_absurd_weights_end(weights):
    """No crash, no endless search: `Calibration` refuses them before."""
    head, floor = weights
    call(weights=np.array([[head] * 2, [0.0] * 2, [floor] * 2]), texts=[text_of(1, 2, 1)])
