"""Intervals of ratios against scipy, verdicts, and when rounds end."""

import numpy as np
import pytest
from scipy import stats

from rescore.decode.loop.payoff import LONGEST_S, MOST, STUDENT, Speedup


@pytest.mark.parametrize("rounds", [2, 3, 5, 7, 11])
def test_the_interval_is_that_of_a_paired_t_test(rounds):
    draw = np.random.default_rng(rounds)
    drafted, plain = np.exp(draw.normal(0.2, 0.1, (2, rounds)))
    found = Speedup(tuple(drafted / plain))
    expected = stats.ttest_rel(np.log(drafted), np.log(plain)).confidence_interval(0.95)
    assert found.interval == pytest.approx(np.exp(expected), rel=1e-3)
    assert found.times == pytest.approx(stats.gmean(drafted) / stats.gmean(plain))


def test_quantiles():
    assert STUDENT == pytest.approx(stats.t.ppf(0.975, 1 + np.arange(len(STUDENT))), abs=5e-4)
    many = Speedup((1.0, 1.1) * 20)  # more rounds than quantiles: no narrower than it should be
    low, high = stats.t.interval(0.95, 39, np.log(many.ratios).mean(), stats.sem(np.log(many.ratios)))
    assert many.interval[0] < np.exp(low) and many.interval[1] > np.exp(high)


@pytest.mark.parametrize(
    "ratios, verdict",
    [
        ((1.022, 1.02, 1.021), "faster"),  # little, but sure
        ((0.7, 1.9, 1.2), "no difference"),  # much, but unsure
        ((0.92, 0.9, 0.91, 0.93), "slower"),
        ((1.06,), "faster"),  # without an interval: from 5% on
        ((1.04,), "no difference"),
        ((0.97,), "no difference"),
        ((0.94,), "slower"),
    ],
)
def test_verdicts(ratios, verdict):
    found = Speedup(ratios)
    assert str(found).endswith(f": {verdict}") and found.to_json()["verdict"] == verdict
    assert found.to_json()["interval"] == (None if len(ratios) == 1 else [*found.interval])
    assert ratios[found.middle] == sorted(ratios)[(len(ratios) - 1) // 2]


def test_rounds_end_once_the_interval_is_narrow_or_the_time_is_up():
    close, wide = (1.5, 1.51, 1.49), (1.0, 1.3, 1.6)
    assert not Speedup(close[:1]).settled(0) and not Speedup(close[:2]).settled(10 * LONGEST_S)
    assert Speedup(close).settled(0)
    assert not Speedup(wide).settled(LONGEST_S - 1) and Speedup(wide).settled(LONGEST_S)
    assert Speedup((wide * MOST)[:MOST]).settled(0) and not Speedup((wide * MOST)[: MOST - 1]).settled(0)
