"""Whether drafts paid, and what would help: worked examples; intervals of ratios against scipy, verdicts, rounds."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from support.refusals import assert_named

from rescore.decode.loop.explanation import Explanation, Totals
from rescore.decode.loop.payoff import LONGEST_S, MOST, STUDENT, Advice, Payoff, Speedup, plain_pass_ms
from rescore.decode.loop.request import Statistics

# Two texts in four passes of 20 ms after prompts of 100 ms each, 3 draft tokens per pass, 2 ms of drafting each and
# 4 ms more for the prompts.
DRAFTED = [
    Statistics(
        accepted=[1, 0, 2], drafted=[3, 3, 3], drafting_us=8e3, opening_us=4e3, verifying_us=160e3, prompt_us=100e3
    ),
    Statistics(accepted=[0], drafted=[3], drafting_us=4e3, opening_us=4e3, verifying_us=120e3, prompt_us=100e3),
]
PLAIN = [Statistics(accepted=[0] * n, drafted=[0] * n, verifying_us=1e5 + 1e4 * n, prompt_us=1e5) for n in (6, 1)]
ADVICE = Advice(plain="--drafter none", longer="--max-tokens")


def payoff(**changes) -> Payoff:
    return replace(Payoff.of(DRAFTED, plain_pass_ms(PLAIN), Speedup((0.9,))), **changes)


def test_a_worked_example():
    """Of 4 passes 2 kept a token and 1 a second one: 1.75 tokens per pass, which takes (20 + 3) / 10 plain ones."""
    found = payoff()
    assert found.accepted == (0.5, 0.25) and found.tokens == 1.75
    assert (found.nodes, found.undrafted) == (3, 0)
    assert (found.plain_ms, found.pass_ms, found.drafting_ms, found.opening_ms) == pytest.approx((10, 20, 3, 2))
    assert (found.cost, found.needed) == pytest.approx((2, 2.3))
    assert found.prompts_share == pytest.approx(200 / 292)
    first, second = found.sentences()
    assert_named(first, ("4.0", "20 ms", "2.00", "10 ms", "3 ms", "13%"))
    assert_named(second, ("1.75", "2.30"))
    figures = found.to_json()
    assert (figures["pays"], figures["tokens_per_pass"], figures["rounds"]) == (False, 1.75, [0.9])
    # An estimate takes a plain pass for every token: prompts of 200 ms and 7 more tokens of 10 ms each, in 292 ms.
    estimate = Payoff.of(DRAFTED, 10.0)
    assert estimate is not None and estimate.speedup.ratios == (pytest.approx(270 / 292),)
    begun = Payoff.of([replace(DRAFTED[0], begun=3), DRAFTED[1]], 10.0)  # which plain decoding reads one by one
    assert begun is not None and begun.speedup.ratios == (pytest.approx(300 / 292),)
    # Where plain passes, by chance slow, took longer than those with drafts, which took 20 ms.
    assert Payoff.of(DRAFTED, 30.0) == Payoff.of(DRAFTED, 20.0)


def test_passes_without_drafts():
    """Half of those without drafts, because a plain pass was expected to be faster."""
    first, _ = payoff(undrafted=0.5, rested=0.25).sentences()
    assert_named(first, ("50%", "25%"))
    statistics = [Statistics(accepted=[0] * 4, drafted=[0] * 4, verifying_us=40e3, drafting_us=4e3, rested=4)]
    found = Payoff.of(statistics, 10.0, Speedup((0.9,)))
    assert found is not None and (found.undrafted, found.rested) == (1.0, 1.0)
    assert_named(found.sentences()[0], ("100%", "1 ms", "9%"))


def test_an_explanation_begins_with_its_verdict():
    totals = Totals.of([6, 2], DRAFTED)
    lines = str(Explanation.of(payoff(), ADVICE, totals)).splitlines()
    named = ["verdict", *(name for name, _ in totals.facts()), "why", "why", "try"]
    assert [line.split()[0] for line in lines] == named and "0.90" in lines[0]
    unknown = Explanation.of_unknown(totals, replace(ADVICE, auto="--nodes auto"))
    assert unknown.remedies and "--nodes auto" in unknown.remedies[0]
    assert unknown.to_json() is None
    short = Explanation.of_unknown(Totals.of([1], [Statistics()]), ADVICE)
    assert "--max-tokens" in short.remedies[0]


BOTH = {"better": ["more"], "faster": ["threads"]}
# Longer texts, what raises acceptance or makes passes cheaper, fewer draft tokens, or no drafts.
REMEDIES = [
    # 1.75 tokens for (14 + 2) / 10: it is the prompts that no draft shortens.
    ({"pass_ms": 14.0, "drafting_ms": 2.0}, {}, [["68%", "--max-tokens"]]),
    # 1.75 for (14 + 4) / 10, of the 4 ms 3 for the first drafts.
    ({"pass_ms": 14.0, "drafting_ms": 4.0, "opening_ms": 3.0}, {}, [["75%", "--max-tokens"]]),
    # 1.75 for (20 + 3) / 10.
    ({}, BOTH, [["more"], ["threads"], ["--drafter none"]]),
    ({}, BOTH | {"size": "--ahead"}, [["fewer", "--ahead"], ["more"], ["threads"], ["--drafter none"]]),
    ({}, {"size": "--nodes", "auto": "--nodes auto"}, [["fewer", "--nodes auto"], ["--drafter none"]]),
    # Drafts pay if the whole interval is above 1; a gain that the rounds do not confirm is no reason to draft less.
    ({"speedup": Speedup((1.06,))}, {"better": ["more"]}, []),
    ({"speedup": Speedup((1.02, 1.021, 1.022))}, {}, []),
    ({"speedup": Speedup((0.8, 1.9, 1.3))}, {}, [["--max-tokens"]]),
    ({"speedup": Speedup((1.0, 1.01, 0.99))}, {}, [["--drafter none"]]),
    # Without drafts: the prompts, and better ones.
    ({"nodes": 0.0, "prompts_share": 0.4}, {"better": ["more"], "size": "--ahead"}, [["more"], ["--drafter none"]]),
    ({"nodes": 0.0, "prompts_share": 0.6}, {}, [["60%", "--max-tokens"], ["--drafter none"]]),
]


@pytest.mark.parametrize("changes, options, remedies", REMEDIES)
def test_remedies(changes, options, remedies):
    found = payoff(**changes).remedies(replace(ADVICE, **options))
    for one, named in zip(found, remedies, strict=True):
        assert_named(one, named)


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
