"""What cannot be counted of a pass's predictions after rejected nodes; what is, test_running_texts.py has."""

import numpy as np
from support.refusals import refused

from rescore import _core
from rescore.decode.draft.calibration import HEADLESS

V = 12


def text() -> _core.ContextModel:
    found = HEADLESS.counts()
    found.extend(np.array([1, 5, 2, 1, 5], np.int32))
    return found


def test_what_is_refused():
    good = {
        "drafted": np.array([4, 5], np.int32),
        "parents": np.array([-1, 0], np.int32),
        "accepted": np.array([0], np.int32),
        "ids": np.zeros((2, 1), np.int32),
        "p": np.full((2, 1), 0.5, np.float32),
    }
    ids = np.arange(V, dtype=np.int32)
    untouched = text().mixture(np.array([4], np.int32), ids)
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
        found = one.mixture(np.array([4], np.int32), ids)
        assert found[0].tobytes() == untouched[0].tobytes() and found[1] == untouched[1]
