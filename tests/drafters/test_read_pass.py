"""Reading a pass in one call gives the same counts as reading its nodes one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescore import _core
from rescore.lattice.tree import TokenTree

V, K = 12, 3
STRENGTH = np.array([2.0, 1.0, 0.5, 0.2])


def text() -> _core.ContextModel:
    found = _core.ContextModel(soft=np.array([0.0, 0.7, 0.5, 0.3]))
    found.extend(np.array([1, 5, 2, 1, 5], np.int32))
    return found


def predictions(numbers: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.stack([numbers.permutation(V)[:K] for _ in range(rows)]).astype(np.int32)
    ids[numbers.random(rows) < 0.2, -1] = -1
    return ids, numbers.dirichlet(np.ones(K), rows).astype(np.float32)


@given(seed=st.integers(0, 1000), size=st.integers(0, 12))
def test_a_call_a_pass_is_a_call_a_node(seed, size):
    numbers = np.random.default_rng(seed)
    tree = TokenTree.from_parents(
        numbers.permutation(V)[:size].tolist(), [int(numbers.integers(-1, node)) for node in range(size)]
    )
    path = np.array(tree.path_to(int(numbers.integers(-1, size))), np.int32)
    tokens = np.append(tree.tokens[path], np.int32(numbers.integers(V)))
    ids, p = predictions(numbers, 1 + size)
    whole, single = text(), text()
    _core.read_pass(whole, tokens, tree.tokens, tree.parents, path, ids, p)
    for node in sorted(set(range(size)) - set(path.tolist())):
        single.foresee(tree.tokens[tree.path_to(node)], ids[1 + node : 2 + node], p[1 + node : 2 + node])
    rows = [0, *(1 + node for node in path)]
    single.extend(tokens, ids[rows], p[rows])
    assert whole.size == single.size
    for draft in ([], [5], [1, 5], tree.tokens[: min(size, 2)]):
        got, wanted = (
            one.mixture(np.array(draft, np.int32), STRENGTH, np.arange(V, dtype=np.int32)) for one in (whole, single)
        )
        assert got[0].tobytes() == wanted[0].tobytes() and got[1] == wanted[1]


def test_what_is_refused():
    good = {
        "tokens": np.array([4, 7], np.int32),
        "drafted": np.array([4, 5], np.int32),
        "parents": np.array([-1, 0], np.int32),
        "accepted": np.array([0], np.int32),
        "ids": np.zeros((3, 1), np.int32),
        "p": np.full((3, 1), 0.5, np.float32),
    }
    for name, value, message in (
        ("tokens", [4], "tokens, the accepted nodes' and the root token: expected 2 entries, got 1"),
        ("tokens", [4, -1], "tokens: expected 0 to"),
        ("drafted", [4, -2], "drafted: expected 0 to"),
        ("parents", [-1, 1], "parents: expected -1 to 0, got 1"),
        ("accepted", [2], "accepted: expected 0 to 1, got 2"),
        ("ids", [[0]], "ids, one row for the root and each node: expected 3 entries, got 1"),
        ("p", [[0.5], [1.5], [0.5]], r"p\[1, 0\]: expected a probability, got 1.5"),
    ):
        wrong = good | {name: np.array(value, good[name].dtype)}
        one = text()
        with pytest.raises(ValueError, match=message):
            _core.read_pass(one, **wrong)
        assert one.size == 5
