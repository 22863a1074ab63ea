"""Fixed-sequence testing: p-values against exact sums, and the guarantee by simulation."""

import math
from itertools import combinations

import numpy as np
import pytest
from support.refusals import refuses

from rescore.decode.train.calm.calibration import rouge_l_risk, token_risk
from rescore.decode.train.calm.learn_then_test import fixed_sequence, hoeffding, hoeffding_bentkus, least_valid

DELTA, EPSILON, N = 0.1, 0.1, 60
THRESHOLDS = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]


def binomial(n: int, p: float) -> np.ndarray:
    return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


@pytest.mark.parametrize(("n", "delta"), [(5, 0.3), (40, 0.1), (200, 0.02)])
def test_p_values_are_the_bounds_as_they_are_written_and_seldom_small_where_the_risk_is_delta(n, delta):
    """Super-uniform for losses of 0 and 1, the widest with this mean; exactly, by sums."""
    p_values = np.array([hoeffding_bentkus(k / n, n, delta) for k in range(n + 1)])
    below = binomial(n, delta).cumsum()
    for k, got in enumerate(p_values):
        risk = k / n
        kl = sum(a * math.log(a / b) for a, b in ((risk, delta), (1 - risk, 1 - delta)) if a > 0)
        expected = min(1.0 if risk >= delta else math.exp(-n * kl), math.e * below[k])
        assert got == pytest.approx(min(expected, 1.0), rel=1e-9)
        assert hoeffding(risk, n, delta) <= max(math.exp(-2 * n * max(0.0, delta - risk) ** 2), got) + 1e-12
    for level in (0.01, 0.05, 0.1, 0.3):
        assert binomial(n, delta)[p_values <= level].sum() <= level


def in_sequence(thresholds, losses, delta=DELTA, epsilon=EPSILON):
    return fixed_sequence(thresholds, losses, delta=delta, epsilon=epsilon)


def simulated(risks: dict[float, float], draw, resamples: int = 2000) -> tuple[float, float]:
    """How often the returned threshold exceeds the risk, and how often one is returned."""
    random = np.random.default_rng(1)
    wrong = found = 0
    for _ in range(resamples):
        uniforms = random.random((2, N))  # the same texts at all thresholds
        best = least_valid(in_sequence(THRESHOLDS, lambda at, same=uniforms: draw(risks[at], same)))
        found += best is not None
        wrong += best is not None and risks[best.threshold] > DELTA
    return wrong / resamples, found / resamples


def bernoulli(risk: float, uniforms: np.ndarray) -> np.ndarray:
    return (uniforms[0] < risk).astype(float)


def spread(risk: float, uniforms: np.ndarray) -> np.ndarray:
    """Losses of mean `risk`: most texts unchanged, others half changed."""
    return (uniforms[0] < 2 * risk) * uniforms[1]


def all_alike(risk: float, uniforms: np.ndarray) -> np.ndarray:
    return 2 * risk * uniforms[1]


@pytest.mark.parametrize(
    "draw, values",
    [
        (bernoulli, (0.0, 0.01, 0.03, 0.1001, 0.2, 0.3)),
        (bernoulli, (0.1001,) * 6),
        (spread, (0.02, 0.1001, 0.02, 0.1001, 0.02, 0.1001)),  # no order among them
        (all_alike, (0.2, 0.01, 0.01, 0.01, 0.01, 0.01)),
    ],
)
def test_the_risk_of_what_is_returned_seldom_exceeds_delta(draw, values):
    wrong, found = simulated(dict(zip(THRESHOLDS, values)), draw)
    assert wrong <= EPSILON + 3 * math.sqrt(EPSILON * (1 - EPSILON) / 2000)
    if values[0] == 0.0:
        assert found > 0.99, "and it returns something where there is much to return"


def test_tests_end_at_the_first_that_fails():
    asked = []

    def losses(threshold: float) -> list[float]:
        asked.append(threshold)
        return [0.0] * 50 if threshold > 0.65 else [0.5] * 50

    tested = in_sequence(THRESHOLDS, losses)
    assert asked == [0.9, 0.8, 0.7, 0.6] and [one.valid for one in tested] == [True, True, True, False]
    assert least_valid(tested).threshold == 0.7 and tested[2].risk == 0.0
    assert tested[3].p_value == 1.0 and tested[0].p_value == pytest.approx(0.9**50)
    assert least_valid(in_sequence([0.5], losses)) is None
    assert least_valid([]) is None


@pytest.mark.parametrize(
    "thresholds, losses, options, named",
    [
        ([0.5, 0.5], [0.0] * 50, {}, ["thresholds", "0.5"]),
        ([0.5], [], {}, ["losses", "0", "1"]),
        ([0.5], [0.0, float("nan")], {}, ["losses", "0", "1"]),
        ([0.5], [0.0], {"delta": 0.0}, ["delta", "1", "0.0"]),
        ([0.5], [0.0], {"epsilon": 1.0}, ["epsilon", "1.0"]),
    ],
)
def test_what_cannot_be_tested_is_refused(thresholds, losses, options, named):
    refuses(ValueError, lambda: in_sequence(thresholds, lambda _: losses, **options), *named)


def longest_common(left, right) -> int:
    """By enumerating all subsequences of the first."""
    for size in range(min(len(left), len(right)), 0, -1):
        for places in combinations(range(len(left)), size):
            rest = iter(right)
            if all(left[place] in rest for place in places):
                return size
    return 0


def test_rouge_l_is_that_of_all_subsequences():
    random = np.random.default_rng(1)
    for _ in range(200):
        left, right = (random.integers(0, 3, random.integers(1, 9)) for _ in range(2))
        common = longest_common(left.tolist(), right.tolist())
        precision, recall = common / len(left), common / len(right)
        f1 = 2 * precision * recall / (precision + recall) if common else 0.0
        assert rouge_l_risk(left, right) == pytest.approx(1 - f1)


def test_risks_by_hand():
    full, less, none = np.array([5, 6, 7, 8]), np.array([6, 7, 8]), np.array([], np.int64)
    for text, other, rouge, tokens in (
        (full, full, 0, 0),
        (less, full, 1 - 6 / 7, 1),  # a token left out
        (np.array([5, 6, 1]), full, 1 - 4 / 7, 0.5),
        (none, none, 0, 0),
        (none, full, 1, 1),
    ):
        assert (rouge_l_risk(text, other), token_risk(text, other)) == pytest.approx((rouge, tokens))
