"""Entropies of heads against plain loops and examples worked by hand."""

import math

import numpy as np
import pytest
from support import dumps
from support.refusals import refuses

from rescore.decode.replay.analyses.entropies import entropies, h_max, regression


def test_against_loops(dump):
    found = entropies(dump, bins=7)
    assert found.edges.tolist() == pytest.approx([math.log(dumps.V) * i / 7 for i in range(8)])
    width = math.log(dumps.V) / 7
    for one in found.tasks:
        values = [row.tolist() for block in dump.blocks(one.task) for row in block.entropy]
        for head in range(dumps.H):
            counts = [0] * 7
            for row in values:
                counts[min(int(row[head] / width), 6)] += 1
            assert one.density[head].tolist() == pytest.approx([count / len(values) / width for count in counts])
            assert one.mean[head] == pytest.approx(sum(row[head] for row in values) / len(values))
            assert one.density[head].sum() * width == pytest.approx(1)
    assert [one.task for one in found.tasks] == list(dump.tasks)


def test_h_max_by_hand():
    assert h_max(np.array([1.0, 2.0, 2.0, 1.9, 5.0])) == 3
    assert h_max(np.array([3.0, 2.0])) == 1
    assert h_max(np.array([1.0, 2.0, 3.0])) == 3
    assert h_max(np.array([1.0])) == 1


def test_regression_by_hand():
    # Means 2 and 3; sum of dx dy = 3, of dx^2 = 2, of dy^2 = 6.
    found = regression([1, 2, 3], [1.0, 4.0, 4.0])
    assert (found.slope, found.intercept, found.r) == pytest.approx((1.5, 0.0, 3 / math.sqrt(12)))
    assert regression([2, 2], [1.0, 2.0]) is None and regression([1, 2], [1.0, 1.0]) is None
    assert regression([], []) is None


def test_bins_are_checked(dump):
    refuses(ValueError, lambda: entropies(dump, bins=0), "bins", "1", "0")
