"""Risks of texts: ROUGE-L against an enumeration of subsequences, and cases worked by hand."""

from itertools import combinations

import numpy as np
import pytest

from rescore.decode.calm.consistency import rouge_l_risk, token_risk


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
    full = np.array([5, 6, 7, 8])
    assert rouge_l_risk(full, full) == token_risk(full, full) == 0.0
    assert rouge_l_risk(np.array([6, 7, 8]), full) == pytest.approx(1 - 6 / 7)  # a token left out
    assert token_risk(np.array([6, 7, 8]), full) == 1.0
    assert token_risk(np.array([5, 6, 1]), full) == 0.5
    none = np.array([], np.int64)
    assert rouge_l_risk(none, none) == token_risk(none, none) == 0.0
    assert rouge_l_risk(none, full) == token_risk(none, full) == 1.0
