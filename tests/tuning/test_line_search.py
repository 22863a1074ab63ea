"""Line searches on functions with a known optimum."""

from hypothesis import given
from hypothesis import strategies as st

from rescore.decode.tuning.tune_paths import Trials, climb, refine

GRID = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


@given(st.floats(0.1, 10))
def test_refine_closes_in_on_a_hill(top):
    trials = Trials(lambda x: -abs(x - top))
    found = refine(trials, GRID, 12)
    at = min(range(len(GRID)), key=lambda i: abs(GRID[i] - top))
    assert abs(found - top) <= 0.02 * (GRID[min(at + 1, 5)] - GRID[max(at - 1, 0)])
    assert len(trials.values) <= len(GRID) + 2 + 12


@given(st.lists(st.floats(-5, 5), min_size=6, max_size=6), st.integers(0, 5))
def test_the_best_trial_counts(values, start):
    """For any function the result is the best number tried, the smallest on ties."""
    known = dict(zip(GRID, values))
    for search in (lambda trials: refine(trials, GRID, 3), lambda trials: climb(trials, GRID, start)):
        trials = Trials(lambda x: known.get(x, -9.0))
        found = search(trials)
        assert trials.values[found] == max(trials.values.values())
        assert found == min(x for x, value in trials.values.items() if value == trials.values[found])


@given(st.integers(0, 5), st.integers(0, 5))
def test_climb_reaches_the_top_of_a_hill(top, start):
    tried = []
    assert climb(Trials(lambda x: tried.append(x) or -abs(GRID.index(x) - top)), GRID, start) == GRID[top]
    assert len(tried) == len(set(tried)) <= abs(top - start) + 3
