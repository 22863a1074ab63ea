"""Calibrated thresholds on halves of texts that they were not calibrated on."""

from __future__ import annotations

import numpy as np
import pytest
from support.tools import load_tool

calm_risk = load_tool("check/calm_risk")


def test_halves_of_texts_of_known_risk():
    random = np.random.default_rng(2)
    thresholds, risks = [0.9, 0.8, 0.7], [0.0, 0.05, 0.6]
    losses = np.array([(random.random(400) < risk).astype(float) for risk in risks])
    found = calm_risk.kept(thresholds, losses, [30.0, 28.0, 20.0], delta=0.2, epsilon=0.1, splits=50)
    assert (found.found, found.held_out_exceeds, found.all_exceed) == (1.0, 0.0, 0.0)
    assert (found.threshold, found.layers) == pytest.approx((0.8, 28.0))
    assert found.risk == pytest.approx(losses[1].mean(), abs=0.01)


def test_where_nothing_is_valid_nothing_exceeds():
    found = calm_risk.kept([0.9], np.ones((1, 40)), [20.0], delta=0.2, epsilon=0.1, splits=10)
    assert (found.found, found.held_out_exceeds, found.all_exceed) == (0.0, 0.0, 0.0) and np.isnan(found.threshold)
