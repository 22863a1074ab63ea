"""Damaged arrays through every native function: an error or an answer, never an out-of-bounds read.

The number of mutations is set by RESCORE_FUZZ; run with a core built with -DRESCORE_SANITIZE=address,undefined to see
what a crash hides.
"""

import os
import warnings

import numpy as np
import pytest
from support.oracle import Backoff
from support.refusals import refused, refuses

from rescore import _core
from rescore.lm.model.compile import Compact
from rescore.lm.model.ngram import NGram

MUTATIONS = int(os.environ.get("RESCORE_FUZZ", 300))
VOCAB = 9
ARRAYS = Compact._fields[:-1]
WIDE = 16_000  # a vocabulary whose tokens all have arcs in all contexts of one token
FORMS = [(VOCAB, False), (VOCAB, True), (70_000, False), (WIDE, False), (WIDE, True)]


def compact(vocab_size: int = VOCAB, quantise: bool = False) -> Compact:
    """A trigram model in which 9 tokens have n-grams, or all of WIDE."""
    arcs = {(): {t: 1.0 + t % 16 for t in range(vocab_size)}}
    for t in range(0, VOCAB, 2):
        arcs[(t,)] = {u: 0.5 + u % 8 for u in (range(WIDE) if vocab_size == WIDE else range(t % 3, VOCAB, 3))}
    for t in (0, 2, 4):
        for u in arcs[(t,)]:
            if (u,) in arcs:
                arcs[(t, u)] = {v: 0.25 for v in list(arcs[(u,)])[::2]}
    lm = Backoff(vocab_size, 3, arcs, {c: 0.125 * len(c) for c in arcs})
    return Compact.from_arrays(lm.arrays(), order=3, vocab_size=vocab_size, quantise=quantise)


def automaton(made: Compact, vocab_size: int = VOCAB) -> _core.Automaton:
    return _core.Automaton(**made.sections, order=3, vocab_size=vocab_size, next_bits=made.next_bits)


def mutate(draw: np.random.Generator, good: Compact) -> Compact:
    """One to four entries with bits flipped, or replaced by an extreme value."""
    bad = {name: array.copy() for name, array in good.sections.items()}
    for _ in range(draw.integers(1, 5)):
        name = draw.choice([name for name in ARRAYS if bad[name].size])
        raw = bad[name].reshape(-1).view(np.uint8).reshape(bad[name].size, -1)
        entry = draw.integers(len(raw))
        if draw.random() < 0.5:
            raw[entry, draw.integers(raw.shape[1])] ^= np.uint8(1 << draw.integers(8))
        else:
            raw[entry] = draw.choice([0, 255, 127, 128])
    return good._replace(**bad)


def walk_normalised(lattice: _core.Normalised, draw: np.random.Generator) -> None:
    """q is a distribution, or nothing where a damaged model allows nothing."""
    tokens, q, logq, lengths = lattice.sample(draw.random((2, 3, 4)))
    assert np.allclose(q.sum(axis=-1), np.arange(4) < lengths[..., None])
    lattice.rows(draw.integers(0, VOCAB, (2, 3, 4)).astype(np.int32))


def text_of(*tokens) -> _core.ContextModel:
    text = _core.ContextModel(shares=np.ones((3, 3)), predicted=np.ones((3, 3)))
    text.extend(np.array(tokens, np.int32))
    return text


def running_text() -> _core.ContextModel:
    text = text_of(0, 1, 2, 0, 1, 3)
    text.foresee(np.array([2], np.int32), np.array([4, 5], np.int32), np.array([0.5, 0.25], np.float32))
    return text


def use(lm: _core.Automaton, draw: np.random.Generator) -> None:
    """Every function once."""
    lattices = 2
    ids = np.argsort(draw.random((lattices, 4, VOCAB)), axis=-1)[:, :, :5].astype(np.int32)
    cost = np.sort(draw.exponential(1, ids.shape), axis=-1).astype(np.float32)
    states = draw.integers(0, lm.num_states, lattices).astype(np.uint32)
    histories = draw.integers(0, VOCAB, (lattices, 2)).astype(np.int32)
    lattice, texts = (histories, ids, cost, np.ones((1, 4))), [running_text()] * 2
    calls = [
        lambda: lm.start(np.array([0, 3, 2], np.int32)),
        lambda: lm.start_batch(histories),
        lambda: lm.score(draw.integers(0, VOCAB, 6).astype(np.int32), np.array([0, 2, 6], np.int64), states),
        lambda: lm.walk(draw.integers(0, VOCAB, 6).astype(np.int32), int(states[0])),
        lambda: lm.distribution(int(states[0])),
        lambda: _core.best_paths([lm], *lattice, paths=9, threads=2),
        lambda: _core.best_tree([lm], *lattice, np.zeros((3, 4)), open=True, texts=texts, depth=9, nodes=40),
        lambda: walk_normalised(_core.Normalised([lm], *lattice, threads=2), draw),
    ]
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            assert "damaged" in str(error)


@pytest.mark.parametrize("vocab_size, quantise", FORMS)
def test_damaged_models(vocab_size, quantise):
    good = compact(vocab_size, quantise)
    healthy = automaton(good, vocab_size)
    healthy.check()
    draw = np.random.default_rng(7)
    use(healthy, draw)
    refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(MUTATIONS if vocab_size == VOCAB else MUTATIONS // 10):
            bad = mutate(draw, good)
            try:
                lm = automaton(bad, vocab_size)
            except ValueError:
                refused += 1
                continue
            same = all(np.array_equal(getattr(bad, name), getattr(good, name)) for name in ARRAYS)
            try:
                lm.check()
            except ValueError as error:
                assert "expected" in str(error) or "damaged" in str(error)
                assert not same
            use(lm, draw)
    assert refused < MUTATIONS


# "wide" is read by numbers that are compared with its length.
@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "wide"])
def test_short_and_long_arrays_are_refused(name):
    good = compact()
    array = getattr(good, name)
    for other in (array[:-1].copy(), np.concatenate([array, np.zeros_like(array, shape=(1, *array.shape[1:]))])):
        with refused(ValueError, name):
            automaton(good._replace(**{name: other}))
    with pytest.raises(TypeError):
        automaton(good._replace(**{name: array.astype(np.int64)}))


@pytest.mark.parametrize(
    "name, index, value, message",
    [
        ("sizes", (0, 0), 8, ["order 1", "9"]),
        ("sizes", (1, 0), 2**32, ["order 2", "4294967296"]),
        ("sizes", (1, 3), 10, ["order 2", "10"]),
        ("sizes", (1, 3), 0, ["order 2"]),
        ("sizes", (1, 1), 3, ["order 2", "4", "1"]),
        ("sizes", (1, 1), 1, ["order 2", "4", "1"]),
        ("sizes", (2, 4), 8, ["order 3", "4", "1", "2"]),
        ("arc_token", 1, 0, ["arc_token[10]", "9"]),
        ("root_cost", 4, np.nan, ["root_cost[4]"]),
        ("first_state", 0, 1, ["first_state[0]", "5", "1"]),
        ("first_state", 2, 5, ["first_state[1]"]),
        ("contexts", 0, 1, ["contexts[1]", "0"]),
        ("contexts", 4 + 4, 16, ["contexts["]),
        ("contexts", 4 + 4, 14, ["contexts[1]", "15", "14"]),
        ("backoff_state", 1, 0, ["backoff_state[6]", "2", "1"]),
        ("arcs", 5, 0, ["contexts"]),  # the code behind the first cost
        ("arcs", 4, 99, ["arcs[9]"]),
    ],
)
def test_damage_is_named(name, index, value, message):
    """Sizes that fit no model before anything is read by them, other entries by a check."""
    bad = getattr(compact(), name).copy()
    bad[index] = value
    with refused(ValueError, *message):
        made = automaton(compact()._replace(**{name: bad}))
        assert name != "sizes"
        made.check()


def test_too_many_bits_of_a_state_are_refused():
    refuses(ValueError, lambda: automaton(compact()._replace(next_bits=16)), "next_bits", "15", "16")


BEYOND = np.repeat(np.array([[[0]], [[99]]], np.int32), 2, 1)
SEARCHES = {  # the options that each needs
    "best_paths": {"paths": 1},
    "Normalised": {},
    "best_tree": {"weights": np.ones((3, 2)), "open": True, "texts": [], "depth": 2, "nodes": 4},
}


@pytest.mark.parametrize(
    "searches, change, error, message",
    [
        (SEARCHES, {"ids": BEYOND}, ValueError, ["lattice 1", "slot 0", "rank 0", "99"]),
        (SEARCHES, {"ids": np.full((2, 2, 1), -2, np.int32)}, ValueError, ["-2"]),
        (SEARCHES, {"ids": np.zeros((2, 2, 1), np.int64)}, TypeError, ["incompatible"]),
        (SEARCHES, {"histories": np.zeros((3, 1), np.int32)}, ValueError, ["2", "3"]),
        (SEARCHES, {"alpha": np.zeros((1, 3))}, ValueError, ["2", "3"]),
        (SEARCHES, {"threads": 0}, ValueError, ["threads", "1024"]),
        (SEARCHES, {"lm": None}, TypeError, []),
        (["best_paths"], {"ids": np.zeros((2, 33, 1), np.int32)}, ValueError, ["slots T", "1", "32", "33"]),
        (["best_paths"], {"ids": np.zeros((2, 2, 65), np.int32)}, ValueError, ["candidates K", "64", "65"]),
        (["best_paths"], {"paths": 0}, ValueError, ["paths p", "1024"]),
        (["best_paths"], {"paths": 1025}, ValueError, ["paths p", "1024", "1025"]),
        (["best_tree"], {"nodes": 0}, ValueError, ["nodes", "1", "4096"]),
        (["Normalised"], {"transitions": 3}, ValueError, ["3"]),
        (["best_tree"], {"depth": 0}, ValueError, ["depth", "1", "4096"]),
        (["best_tree"], {"depth": 4097}, ValueError, ["depth", "1", "4096", "4097"]),
        (["best_tree"], {"least": 1.5}, ValueError, ["least", "0", "1"]),
        (["best_tree"], {"least": float("nan")}, ValueError, ["least", "0", "1"]),
        (["best_tree"], {"weights": np.ones((2, 2))}, ValueError, ["weights", "3", "2"]),
        (["best_tree"], {"weights": np.ones((3, 3))}, ValueError, ["2", "3"]),
        (["best_tree"], {"texts": [text_of(1)]}, ValueError, ["texts", "1", "2"]),
        (["best_tree"], {"models": []}, ValueError, ["models"]),
        (["best_tree"], {"models": [None]}, TypeError, []),
        (["best_tree"], {"models": [NGram.uniform(VOCAB).core] * 3}, ValueError, ["models", "3", "2"]),
        (["best_tree"], {"models": [NGram.uniform(VOCAB + n).core for n in (0, 1)]}, ValueError, ["9", "10"]),
        (["best_tree"], {"texts": [None] * 2}, TypeError, []),
        (["best_tree"], {"texts": [text_of(1, VOCAB)] * 2}, ValueError, ["texts", "9"]),
        (["best_tree"], {"memories": [text_of(VOCAB)] * 2}, ValueError, ["texts", "9"]),
    ],
)
def test_arrays_and_options_that_searches_refuse(searches, change, error, message):
    lm = Backoff(VOCAB, 1, {(): dict.fromkeys(range(VOCAB), 1.0)}, {(): 0.0}).automaton()
    for name in searches:
        given = {"models": [lm], "histories": np.zeros((2, 1), np.int32), "ids": np.zeros((2, 2, 1), np.int32)}
        given |= {"alpha": np.ones((1, 2)), **SEARCHES[name], **change}
        cost = np.zeros(given["ids"].shape, np.float32)
        with refused(error, *message):
            getattr(_core, name)(cost=cost, **given)


PASS = {
    "drafted": np.array([4, 5], np.int32),
    "parents": np.array([-1, 0], np.int32),
    "accepted": np.array([0], np.int32),
    "ids": np.zeros((2, 1), np.int32),
    "p": np.full((2, 1), 0.5, np.float32),
}


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("drafted", [4, -2], ["drafted[1]", "-2"]),
        ("parents", [-1, 1], ["parents", "-1", "0"]),
        ("parents", [-1], ["parents", "2", "1"]),
        ("accepted", [2], ["accepted", "0", "1", "2"]),
        ("ids", [[0]], ["2", "1"]),
        ("p", [[0.5]], ["2", "1"]),
        ("p", [[0.5], [1.5]], ["p[1, 0]", "1.5"]),
    ],
)
def test_a_pass_that_cannot_be_counted_leaves_the_text_as_it_was(name, value, message):
    text, ids = running_text(), np.arange(12, dtype=np.int32)
    with refused(ValueError, *message):
        _core.foresee_rejected(text, **PASS | {name: np.array(value, PASS[name].dtype)})
    for mine, other in zip(*(one.mixture(np.array([4], np.int32), ids) for one in (text, running_text()))):
        assert np.array_equal(mine, other)
