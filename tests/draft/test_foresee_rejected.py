"""Counting the predictions of a pass in one call gives the same counts as one call for each rejected node."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused

from rescore import _core
from rescore.decode.draft.calibration import HEADLESS
from rescore.lattice.tree import TokenTree

V, K = 12, 3


def text() -> _core.ContextModel:
    found = HEADLESS.counts()
    found.extend(np.array([1, 5, 2, 1, 5], np.int32))
    return found


def predictions(numbers: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.argsort(numbers.random((rows, V)), axis=1)[:, :K].astype(np.int32)
    ids[numbers.random(rows) < 0.2, -1] = -1
    return ids, numbers.dirichlet(np.ones(K), rows).astype(np.float32)


@given(seed=st.integers(0, 1000), size=st.integers(0, 12))
def test_a_call_a_pass_is_a_call_a_node(seed, size):
    numbers = np.random.default_rng(seed)
    tree = TokenTree.from_parents(
        numbers.permutation(V)[:size].tolist(), [int(numbers.integers(-1, node)) for node in range(size)]
    )
    accepted = np.array(tree.path_to(int(numbers.integers(-1, size))), np.int32)
    ids, p = predictions(numbers, size)
    whole, single = text(), text()
    _core.foresee_rejected(whole, tree.tokens, tree.parents, accepted, ids, p)
    for node in sorted(set(range(size)) - set(accepted.tolist())):
        single.foresee(tree.tokens[tree.path_to(node)], ids[node], p[node])
    assert whole.size == single.size == 5
    for draft in ([], [5], [1, 5], tree.tokens[: min(size, 2)]):
        got, wanted = (one.mixture(np.array(draft, np.int32), np.arange(V, dtype=np.int32)) for one in (whole, single))
        assert got[0].tobytes() == wanted[0].tobytes() and got[1] == wanted[1]


def test_what_is_refused():
    good = {
        "drafted": np.array([4, 5], np.int32),
        "parents": np.array([-1, 0], np.int32),
        "accepted": np.array([0], np.int32),
        "ids": np.zeros((2, 1), np.int32),
        "p": np.full((2, 1), 0.5, np.float32),
    }
    untouched = text().mixture(np.array([4], np.int32), np.arange(V, dtype=np.int32))
    for name, value, message in (
        ("drafted", [4, -2], ["drafted[1]", "-2"]),
        ("parents", [-1, 1], ["parents", "-1", "0"]),
        ("parents", [-1], ["parents", "2", "1"]),
        ("accepted", [2], ["accepted", "0", "1", "2"]),
        ("ids", [[0]], ["2", "1"]),
        ("p", [[0.5]], ["2", "1"]),
        ("p", [[0.5], [1.5]], ["p[1, 0]", "1.5"]),
    ):
        wrong = good | {name: np.array(value, good[name].dtype)}
        one = text()
        with refused(ValueError, *message):
            _core.foresee_rejected(one, **wrong)
        found = one.mixture(np.array([4], np.int32), np.arange(V, dtype=np.int32))
        assert found[0].tobytes() == untouched[0].tobytes() and found[1] == untouched[1]
