"""Acceptance learned by what q says."""

import numpy as np
import pytest

from rescore.decode.engines.acceptance_rates import EDGES, RATES, AcceptanceRates


def test_before_anything_is_known_the_table_says():
    assert np.shape(RATES) == (4, len(EDGES) + 1)
    # Conditional q 0.55, 0.85 and 0.9999: bins 5, 8 and 16 of the first three rows.
    q = np.cumprod([0.55, 0.85, 0.9999])
    assert AcceptanceRates().paths(q) == pytest.approx(np.cumprod([RATES[0][5], RATES[1][8], RATES[2][16]]))


def test_what_was_accepted_is_learned():
    learned, draw = AcceptanceRates(), np.random.default_rng(0)
    q = np.cumprod([0.85, 0.85])
    for _ in range(3000):  # the first token is accepted four times in five, the second never
        learned.note(q, int(draw.random() < 0.8))
    assert learned.paths(q)[0] == pytest.approx(0.8, abs=0.06)
    assert learned.paths(q)[1] / learned.paths(q)[0] < 0.02
    assert AcceptanceRates().paths(q)[0] == pytest.approx(RATES[0][8])


def test_tokens_behind_a_rejected_one_say_nothing():
    learned = AcceptanceRates()
    q = np.cumprod([0.85, 0.65, 0.65])
    for _ in range(100):
        learned.note(q, 0)
    assert learned.paths(q)[0] < 0.2
    assert learned.paths(q)[2] / learned.paths(q)[0] == pytest.approx(RATES[1][6] * RATES[2][6])


def test_an_empty_chain():
    learned = AcceptanceRates()
    learned.note(np.empty(0), 0)
    assert learned.paths(np.empty(0)).shape == (0,)
