"""Damaged arrays of n-grams through every native function: an error or an answer, never a read outside.

The number of mutations is set by RESCORE_FUZZ; run with a core built with -DRESCORE_SANITIZE=address,undefined to see
what a crash hides.
"""

import re

import numpy as np
import pytest
from support.fuzz import times
from support.oracle_lm import random_text
from support.refusals import refused, refuses

from rescore import _core
from rescore.lm.build.counts import count
from rescore.lm.build.estimate import estimate_model
from rescore.lm.model.grams import NO_CONTEXT, NOTHING
from rescore.lm.model.tables import links

VOCAB = 9
NAMES = ("context_token", "context_parent", "begin", "token")
NONE = np.zeros(0)


def healthy() -> dict[str, np.ndarray]:
    """All arrays of a 4-gram model: those of its levels, and what is computed of them."""
    counts = count([random_text(5, VOCAB, 150)], order=4, vocab_size=VOCAB, end_of_text=0)
    tables = estimate_model(counts)
    found = {}
    for n, level in enumerate(tables.levels, 1):
        found |= {f"{n}.{name}": np.array(getattr(level, name)) for name in NAMES}
        found[f"{n}.cost"], found[f"{n}.count"] = np.array(tables.cost[n - 1]), np.array(counts.count[n - 1])
    first = NOTHING
    for n in range(2, 5):
        found[f"{n}.backoff"], found[f"{n}.total"] = np.array(tables.backoff[n - 2]), np.array(counts.total[n - 2])
        first = _core.first_by_last_token(tables.levels[n - 1].native, first, VOCAB)
        found[f"{n}.first"] = first
        found[f"{n}.logp"] = np.zeros(tables.levels[n - 1].contexts)
    found |= {f"{n}.link": np.array(own) for n, own in enumerate(links(tables.levels), 1)}
    found["4.link"] = np.full(len(tables.levels[3]), NO_CONTEXT, np.uint32)
    return found


def level(arrays: dict[str, np.ndarray], n: int) -> _core.Level:
    return _core.Level(*(arrays[f"{n}.{name}"] for name in NAMES))


def calls(arrays: dict[str, np.ndarray], levels, n: int) -> list[tuple]:
    """Every function on order n, with its arguments before the range, and whether it takes one."""

    def of(order: int, *names: str) -> list[np.ndarray]:
        return [arrays[f"{order}.{name}"] for name in names]

    def each_context(order: int, value, dtype=np.float64) -> np.ndarray:
        return np.full(len(arrays[f"{order}.begin"]) - 1, value, dtype)

    below, own, above = levels[n - 2], levels[n - 1], levels[n] if n < 4 else None
    (below_cost,), (cost, link) = of(n - 1, "cost"), of(n, "cost", "link")
    counted = (below_cost, *of(n, "count", "total"))
    found = [
        (_core.suffixes, own, below),
        (_core.estimate, own, below, *counted, np.array([0.5, 0.9])),
        (_core.kneser_ney, own, below, *counted, np.full(3, 0.5)),
        (_core.normalise, own, below, below_cost, cost),
        (_core.sums, own, below, below_cost, cost, *of(n, "backoff"), each_context(n - 1, 1)),
        (_core.losses, own, below, below_cost, cost, *of(n, "backoff", "logp")),
        (_core.scores, own, cost, None, NONE, NONE, NOTHING),
        (_core.select, own, cost, 0.5, cost, each_context(n - 1, 0, np.uint32)),
        (_core.next_states, own, below, link, np.zeros(len(below_cost), np.uint32), 7),
    ]
    if above is not None:
        (first,) = of(n + 1, "first")
        found += [
            (_core.link, own, below, *of(n - 1, "link"), above, first, first[:-1].copy()),
            (_core.context_logps, own, cost, *of(n, "logp"), link, each_context(n + 1, 0)),
            (_core.scores, own, cost, above, *of(n + 1, "cost"), each_context(n + 1, 0), link),
        ]
    return found


def use(arrays: dict[str, np.ndarray]) -> int:
    """Every function, on every order, for two ranges; how many calls were refused."""
    refused = []

    def attempt(body, *args):
        try:
            return body(*args)
        except ValueError as error:
            assert re.search("expected|not in the model", str(error)), error
            refused.append(error)
            return None

    for n in range(2, 5):
        levels = [attempt(level, arrays, order) for order in range(1, 5)]
        if levels[n - 1] is None or levels[n - 2] is None:
            continue
        first = arrays[f"{n - 1}.first"] if n > 2 else NOTHING
        attempt(_core.first_by_last_token, levels[n - 1], first, VOCAB)
        contexts = len(arrays[f"{n}.begin"]) - 1
        for a, b in ((0, contexts), (contexts // 3, contexts // 2)):
            for function, *args in calls(arrays, levels, n):
                attempt(function, *args, a, b)
    return len(refused)


def mutate(draw: np.random.Generator, good: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One to four entries with bits flipped, or replaced by an extreme value."""
    bad = dict(good)
    names = [name for name, array in good.items() if len(array)]
    for _ in range(draw.integers(1, 5)):
        name = names[draw.integers(len(names))]
        bad[name] = bad[name].copy()
        raw = bad[name].view(np.uint8).reshape(len(bad[name]), -1)
        entry = draw.integers(len(raw))
        if draw.random() < 0.5:
            raw[entry, draw.integers(raw.shape[1])] ^= np.uint8(1 << draw.integers(8))
        else:
            raw[entry] = draw.choice([0, 255, 127, 128])
    return bad


def test_damaged_levels():
    good = healthy()
    assert use(good) == 0
    draw = np.random.default_rng(3)
    refused = [use(mutate(draw, good)) for _ in times(400)]
    assert 0 < sum(map(bool, refused)) < len(refused)


def suffixes(good, n: int, begin: int = 0, end: int = 5):
    return _core.suffixes(level(good, n), level(good, n - 1), begin, end)


@pytest.mark.parametrize(
    "change, body, message",
    [
        ({"3.context_parent": (2, 999)}, lambda g: suffixes(g, 3), ["2", "999"]),
        ({"2.token": (0, 77)}, lambda g: suffixes(g, 2), ["0", "9", "77"]),
        ({"3.token": (0, 1)}, lambda g: suffixes(g, 3), ["0"]),
        ({"3.begin": (2, 10**9)}, lambda g: suffixes(g, 3), ["begin 3"]),
        ({"2.begin": (1, 10**9)}, lambda g: suffixes(g, 3, end=9), ["15", "1000000000"]),
        ({"2.begin": (9, 5)}, lambda g: level(g, 2), ["begin", "0"]),
        ({}, lambda g: suffixes(g, 3, 5, 4), ["range"]),
        ({}, lambda g: _core.first_by_last_token(level(g, 1), NOTHING, VOCAB), ["level", "2"]),
    ],
)
def test_errors_name_the_entry(change, body, message):
    good = healthy()
    for name, (entry, value) in change.items():
        good[name][entry] = value
    refuses(ValueError, lambda: body(good), *message)


def test_arrays_of_other_sizes_and_types_are_refused():
    good = healthy()
    contexts = len(good["3.begin"]) - 1
    every = calls(good, [level(good, n) for n in range(1, 5)], 3)
    for function, *args in [(_core.Level, *(good[f"3.{name}"] for name in NAMES)), *every]:
        rest = [] if function is _core.Level else [0, contexts]
        function(*args, *rest)
        for at, array in enumerate(args):
            if not isinstance(array, np.ndarray) or not len(array):
                continue
            others = [array.astype(np.float32), array.astype(np.int64), np.tile(array, 2)[::2], array.reshape(1, -1)]
            if not (function is _core.estimate and at == 5):  # any number of discounts
                others.append(array[:-1].copy())
            for wrong in others:
                with pytest.raises((TypeError, ValueError)):
                    function(*args[:at], wrong, *args[at + 1 :], *rest)
        if rest:
            with refused(ValueError, "range"):
                function(*args, 0, contexts + 1)
