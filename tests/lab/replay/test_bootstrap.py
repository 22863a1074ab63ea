"""Bootstrap intervals against all resamples of a tiny sample, scipy's bootstrap, and repeated experiments."""

import itertools

import numpy as np
import pytest
from support.refusals import refuses

from rescore.decode.lab.replay.figures import Figures, p_value, resampled_sums
from rescore.decode.lab.replay.measures import Tally
from rescore.decode.lab.replay.run import DumpResult, TaskResult


def result(**tasks: dict[str, list[int]]) -> DumpResult:
    """A result with the given passes of drafters; sequences have 60 tokens, or those under "tokens"."""
    out = []
    for task, columns in tasks.items():
        passes = {name: np.array(column, np.int64) for name, column in columns.items() if name != "tokens"}
        (size, *_) = map(len, passes.values())
        tokens = np.array(columns.get("tokens", [60] * size), np.int64)
        tallies = {name: Tally(tokens=tokens, passes=own, accepted=0, verified=0) for name, own in passes.items()}
        out.append(TaskResult(task=task, tallies=tallies))
    return DumpResult(kind="forced", tasks=out, lattices=1)


TOKENS, BASE, TREE, ORACLE = [30, 60, 10, 64], [28, 41, 9, 60], [20, 41, 5, 40], [15, 31, 4, 33]
ONE = {"tokens": TOKENS, "base": BASE, "tree": TREE, "oracle": ORACLE}
OTHER = {"tokens": [40, 20, 64], "base": [40, 20, 50], "tree": [35, 12, 51], "oracle": [20, 8, 20]}


def all_draws(columns: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """Block efficiencies of every one of the S^S equally likely draws."""
    size = len(columns["tokens"])
    draws = [list(draw) for draw in itertools.product(range(size), repeat=size)]
    sums = {name: np.array([sum(column[i] for i in draw) for draw in draws]) for name, column in columns.items()}
    return {name: sums["tokens"] / sums[name] for name in columns if name != "tokens"}


def close_to_percentiles(interval, exact, level=0.9, slack=0.015):
    """The bounds lie between exact percentiles at slightly smaller and slightly larger levels."""
    for bound, at in ((interval.low, (1 - level) / 2), (interval.high, (1 + level) / 2)):
        assert np.quantile(exact, at - slack) <= bound <= np.quantile(exact, at + slack)


def test_against_all_draws():
    got = Figures.of(result(one=ONE, other=OTHER), seed=3, resamples=20000, level=0.9)
    one, other = all_draws(ONE), all_draws(OTHER)
    assert got.efficiency("tree", "one").value == sum(TOKENS) / sum(TREE)
    for name in ("base", "tree"):
        close_to_percentiles(got.efficiency(name, "one"), one[name])
    close_to_percentiles(got.difference("tree", "base", "one").interval, one["tree"] - one["base"])
    room = (one["tree"] - one["base"]) / (one["oracle"] - one["base"])
    close_to_percentiles(got.headroom("tree", "one"), room)
    # The mean over tasks draws from each by itself: all pairs of draws.
    close_to_percentiles(got.efficiency("tree"), (one["tree"][:, None] + other["tree"]).ravel() / 2)
    difference = (one["tree"] - one["base"])[:, None] + (other["tree"] - other["base"])
    close_to_percentiles(got.difference("tree", "base").interval, difference.ravel() / 2)
    exact = 2 * min((difference <= 0).mean(), (difference >= 0).mean())
    assert got.difference("tree", "base").p_value == pytest.approx(exact, abs=0.01)
    both = (room[:, None] + (other["tree"] - other["base"]) / (other["oracle"] - other["base"])).ravel() / 2
    close_to_percentiles(got.headroom("tree"), both)
    values = [got.efficiency("tree", task).value for task in ("one", "other")]
    assert got.efficiency("tree").value == pytest.approx(np.mean(values), abs=1e-15)


def test_against_scipy():
    from scipy import stats

    rng = np.random.default_rng(0)
    tokens = rng.integers(10, 65, 80)
    base = tokens - rng.integers(0, 5, 80)
    tree = np.maximum(base - rng.integers(0, 6, 80), 1)
    got = Figures.of(result(one={"tokens": tokens, "base": base, "tree": tree}), resamples=9999)

    def statistic(tokens, tree, base, axis):
        return tokens.sum(axis) / tree.sum(axis) - tokens.sum(axis) / base.sum(axis)

    want = stats.bootstrap(
        (tokens, tree, base), statistic, paired=True, n_resamples=9999, method="percentile", random_state=rng
    )
    interval = got.difference("tree", "base", "one").interval
    width = want.confidence_interval.high - want.confidence_interval.low
    assert interval.low == pytest.approx(want.confidence_interval.low, abs=0.04 * width)
    assert interval.high == pytest.approx(want.confidence_interval.high, abs=0.04 * width)


def test_coverage_and_false_alarms():
    """Of 300 experiments with a known block efficiency, the 90% interval holds it in about 90%: within four standard
    errors. Drafters that are equally good differ "significantly" at 5% in about 5% of them.
    """
    rng = np.random.default_rng(1)
    held = alarms = 0
    for seed in range(300):
        made = result(one={"a": rng.poisson(30, 60) + 1, "b": rng.poisson(30, 60) + 1})
        figures = Figures.of(made, seed=seed, resamples=400, level=0.9)
        interval = figures.efficiency("a")
        held += interval.low <= 60 / 31 <= interval.high
        alarms += figures.difference("a", "b").p_value < 0.05
    assert abs(held / 300 - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 300)
    assert alarms / 300 < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 300)


def test_the_seed_decides_and_chunks_do_not(monkeypatch):
    same, again, other = (Figures.of(result(one=ONE), seed=seed).overall for seed in (5, 5, 6))
    assert same == again != other
    counts = np.random.default_rng(0).integers(0, 9, (7, 3)).astype(float)
    whole = resampled_sums(counts, 100, np.random.default_rng(4))
    monkeypatch.setattr("rescore.decode.lab.replay.figures.CELLS", 20)
    np.testing.assert_array_equal(resampled_sums(counts, 100, np.random.default_rng(4)), whole)


def test_no_interval_of_one_sequence():
    got = Figures.of(result(one={"base": [30], "oracle": [20]}, two={"base": [30, 30], "oracle": [30, 20]}))
    assert got.efficiency("base", "one").value == 2 and got.efficiency("base", "one").low is None
    assert got.efficiency("base").low is None and got.difference("oracle", "base").p_value is None
    interval = got.efficiency("oracle", "two")
    assert interval.high > interval.low
    assert got.headroom("oracle", "one").value == 1
    assert Figures.of(result(one={"base": [30, 30], "oracle": [30, 30]})).headroom("base") is None


def test_p_value_by_hand():
    assert p_value(np.array([1.0] * 99)) == 2 / 100
    assert p_value(np.array([1.0] * 95 + [-1.0] * 4)) == 10 / 100
    assert p_value(np.zeros(99)) == 1


def test_errors():
    refuses(ValueError, lambda: Figures.of(result(one=ONE), resamples=99), "resamples", "100", "99")
    refuses(ValueError, lambda: Figures.of(result(one=ONE), level=95), "level", "0", "1", "95")
    refuses(ValueError, lambda: Figures.of(result(one=ONE)).efficiency("trees"), "drafter", "'trees'")
    refuses(ValueError, lambda: Figures.of(result(one=ONE)).efficiency("tree", "two"), "task", "'two'")
