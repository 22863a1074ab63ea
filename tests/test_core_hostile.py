"""Damaged arrays through every native function: an error or an answer, never a read outside.

The number of mutations is set by RESCORE_FUZZ; run with a core built with -DRESCORE_SANITIZE=ON to see what a crash hides.
"""

import os
import warnings

import numpy as np
import pytest
from oracle import Backoff

from rescore import _core

MUTATIONS = int(os.environ.get("RESCORE_FUZZ", 300))
VOCAB = 9
ARRAYS = ("arc_begin", "arc_token", "arc_cost", "arc_next", "backoff_state", "backoff_cost")


def arrays(token_dtype) -> dict[str, np.ndarray]:
    """A trigram model of 9 tokens."""
    arcs = {(): {t: 1.0 + t for t in range(VOCAB)}}
    for t in range(0, VOCAB, 2):
        arcs[(t,)] = {u: 0.5 for u in range(t % 3, VOCAB, 3)}
    for t in (0, 2, 4):
        for u in list(arcs[(t,)])[:2]:
            arcs[(t, u)] = {v: 0.25 for v in range(u % 2, VOCAB, 4)}
    lm = Backoff(VOCAB, 3, arcs, {c: 0.125 * len(c) for c in arcs})
    contexts = sorted(arcs, key=lambda c: (len(c), c))
    number = {c: i for i, c in enumerate(contexts)}
    rows = [(c, t, x) for c in contexts for t, x in sorted(arcs[c].items())]
    return {
        "arc_begin": np.cumsum([0, *(len(arcs[c]) for c in contexts)], dtype=np.uint64),
        "arc_token": np.array([t for _, t, _ in rows], token_dtype),
        "arc_cost": np.array([x for _, _, x in rows], np.float32),
        "arc_next": np.array([number[lm.context((*c, t))] for c, t, _ in rows], np.uint32),
        "backoff_state": np.array([number[lm.context(c[1:])] if c else 0 for c in contexts], np.uint32),
        "backoff_cost": np.array([lm.backoff[c] for c in contexts], np.float32),
    }


def mutate(draw: np.random.Generator, good: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One to four entries with bits flipped, or replaced by an extreme value."""
    bad = {name: array.copy() for name, array in good.items()}
    for _ in range(draw.integers(1, 5)):
        name = ARRAYS[draw.integers(len(ARRAYS))]
        raw = bad[name].view(np.uint8).reshape(len(bad[name]), -1)
        entry = draw.integers(len(raw))
        if draw.random() < 0.5:
            raw[entry, draw.integers(raw.shape[1])] ^= np.uint8(1 << draw.integers(8))
        else:
            raw[entry] = draw.choice([0, 255, 127, 128])
    return bad


def use(lm: _core.Automaton, draw: np.random.Generator) -> None:
    """Every function once."""
    lattices = 2
    ids = np.argsort(draw.random((lattices, 4, VOCAB)), axis=-1)[:, :, :5].astype(np.int32)
    cost = np.sort(draw.exponential(1, ids.shape), axis=-1).astype(np.float32)
    states = draw.integers(0, lm.num_states, (1, lattices)).astype(np.uint32)
    calls = [
        lambda: lm.start(np.array([0, 3, 2], np.int32)),
        lambda: lm.start_batch(draw.integers(0, VOCAB, (3, 2)).astype(np.int32)),
        lambda: lm.score(draw.integers(0, VOCAB, 6).astype(np.int32), np.array([0, 2, 6], np.int64), states[0]),
        lambda: lm.walk(draw.integers(0, VOCAB, 6).astype(np.int32), int(states[0, 0])),
        lambda: lm.distribution(int(states[0, 0])),
        lambda: _core.best_paths([lm], states, ids, cost, np.ones((1, 4)), paths=9, threads=2),
        lambda: _core.best_paths([lm], states, ids, cost, np.ones((1, 4)), paths=9, epsilon=True),
        lambda: _core.best_tree([lm], states, ids, cost, np.ones((1, 4)), nodes=40),
        lambda: _core.model_tree(lm, states[0], slots=4, nodes=40),
    ]
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            assert "damaged" in str(error)


@pytest.mark.parametrize("token_dtype", [np.uint16, np.uint32])
def test_damaged_models(token_dtype):
    good = arrays(token_dtype)
    healthy = _core.Automaton(*good.values(), order=3, vocab_size=VOCAB)
    healthy.check()
    draw = np.random.default_rng(7)
    use(healthy, draw)
    refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(MUTATIONS):
            bad = mutate(draw, good)
            try:
                lm = _core.Automaton(*bad.values(), order=3, vocab_size=VOCAB)
            except ValueError:
                refused += 1
                continue
            same = all(np.array_equal(bad[name], good[name]) for name in ARRAYS)
            try:
                lm.check()
            except ValueError as error:
                assert "expected" in str(error)
                assert not same
            use(lm, draw)
    assert 0 < refused < MUTATIONS


@pytest.mark.parametrize("name", ARRAYS)
def test_short_arrays_are_refused(name):
    bad = arrays(np.uint16)
    bad[name] = bad[name][:-1].copy()
    with pytest.raises(ValueError, match="expected"):
        _core.Automaton(*bad.values(), order=3, vocab_size=VOCAB)


def test_wrong_dtypes_are_refused():
    good = arrays(np.uint16)
    for name in ARRAYS:
        with pytest.raises(TypeError):
            _core.Automaton(*{**good, name: good[name].astype(np.int64)}.values(), order=3, vocab_size=VOCAB)


def test_check_names_the_entry():
    for name, index, value, message in [
        ("arc_token", 10, 8, r"arc_token\[11\]: expected tokens that ascend below 9 in state 1, got 6"),
        ("arc_next", 3, 99, r"arc_next\[3\]: expected a state below"),
        ("backoff_state", 2, 2, r"backoff_state\[2\]: expected a state below 2, got 2"),
        ("arc_cost", 4, np.nan, r"arc_cost\[4\]: expected a finite cost"),
        ("backoff_cost", 1, np.inf, r"backoff_cost\[1\]: expected a finite cost"),
        ("arc_begin", 2, 2**40, r"arc_begin\[2\]: expected offsets that ascend"),
    ]:
        bad = arrays(np.uint16)
        bad[name][index] = value
        with pytest.raises(ValueError, match=message):
            _core.Automaton(*bad.values(), order=3, vocab_size=VOCAB).check()
