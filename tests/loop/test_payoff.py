"""Whether drafts paid, and what would help: worked examples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rescore.decode.draft.pace import PassCosts
from rescore.decode.loop.explanation import Explanation
from rescore.decode.loop.payoff import Advice, Payoff, TreeSize, more_sources, plain_pass_ms
from rescore.decode.loop.request import Statistics
from rescore.decode.loop.speedup import Speedup
from rescore.decode.loop.totals import Totals

# Two texts in four passes of 20 ms after prompts of 100 ms each, 3 draft tokens per pass, 2 ms of drafting each and
# 4 ms more for the prompts.
DRAFTED = [
    Statistics(
        accepted=[1, 0, 2],
        drafted=[3, 3, 3],
        drafting_us=8e3,
        opening_us=4e3,
        verifying_us=160e3,
        prompt_us=100e3,
    ),
    Statistics(accepted=[0], drafted=[3], drafting_us=4e3, opening_us=4e3, verifying_us=120e3, prompt_us=100e3),
]
PLAIN = [Statistics(accepted=[0] * n, drafted=[0] * n, verifying_us=1e5 + 1e4 * n, prompt_us=1e5) for n in (6, 1)]
ADVICE = Advice(plain="--drafter none", longer="--max-tokens")
SMALL = [TreeSize(nodes=1, cost=1.1, most=1.5), TreeSize(nodes=3, cost=1.2, most=1.75)]
COSTS = PassCosts.of_times([1, 2, 4, 8], [0.010, 0.011, 0.012, 0.030])


def payoff(*ratios: float, **changes) -> Payoff:
    found = Payoff.of(DRAFTED, plain_pass_ms(PLAIN), Speedup(ratios or (0.9,)))
    assert found is not None
    return replace(found, **changes)


def test_a_worked_example():
    """Of 4 passes 2 kept a token and 1 a second one: 1.75 tokens per pass, which takes (20 + 3) / 10 plain ones."""
    found = payoff()
    assert found.accepted == (0.5, 0.25) and found.tokens == 1.75
    assert (found.nodes, found.largest, found.undrafted) == (3, 3, 0)
    assert (found.plain_ms, found.pass_ms, found.drafting_ms, found.opening_ms) == pytest.approx((10, 20, 3, 2))
    assert (found.cost, found.needed) == pytest.approx((2, 2.3))
    assert found.prompts_share == pytest.approx(200 / 292)
    assert found.sentences() == [
        "a pass of 4.0 tokens takes 20 ms, 2.00 times a plain one (10 ms), drafting 3 ms more (13%)",
        "it yields 1.75 tokens and needs 2.30 to break even",
    ]
    figures = found.to_json()
    assert (figures["pays"], figures["tokens_per_pass"], figures["needed_per_pass"]) == (False, 1.75, found.needed)
    assert (figures["speedup"], figures["interval"], figures["rounds"]) == (pytest.approx(0.9), None, [0.9])


def test_an_estimate_takes_a_plain_pass_for_every_token():
    """Prompts of 200 ms and 7 more tokens of 10 ms each, in 292 ms."""
    found = Payoff.of(DRAFTED, 10.0)
    assert found is not None and found.speedup.ratios == (pytest.approx(270 / 292),)


def test_passes_without_drafts_are_told_by_their_reason():
    faster, nothing = "a plain pass was expected to be faster", "no source proposed a token"
    for rested, told in ((0.5, faster), (0.0, nothing), (0.25, f"{faster} (25%), {nothing} (25%)")):
        first, _ = payoff(undrafted=0.5, rested=rested).sentences()
        assert first.endswith(f"(13%); 50% of the passes drafted nothing: {told}")
    statistics = [Statistics(accepted=[0] * 4, drafted=[0] * 4, verifying_us=40e3, drafting_us=4e3, rested=4)]
    found = Payoff.of(statistics, 10.0, Speedup((0.9,)))
    assert found is not None and (found.undrafted, found.rested) == (1.0, 1.0)
    assert found.sentences() == [f"100% of the passes drafted nothing: {faster}; drafting took 1 ms per pass (9%)"]
    assert found.remedies([], replace(ADVICE, better=["more"])) == ["more", "plain decoding is faster: --drafter none"]
    longer, plainly = replace(found, prompts_share=0.6).remedies([], ADVICE)
    assert "60%" in longer and "--max-tokens" in longer and plainly == "plain decoding is faster: --drafter none"


def test_drafts_that_pay_need_no_remedy():
    found = payoff(1.06)
    assert found.pays and found.remedies([], replace(ADVICE, better=["more"])) == []


def test_an_interval_that_holds_1_does_not_pay():
    """Whatever its middle is. A gain that the rounds do not confirm is no reason to draft less."""
    noisy = payoff(0.8, 1.9, 1.3)
    assert not noisy.pays and noisy.speedup.times > 1.2
    assert noisy.remedies(SMALL, ADVICE) == [
        "the rounds differ too much to tell: longer texts (--max-tokens), or less other load"
    ]
    assert payoff(1.0, 1.01, 0.99).remedies([], ADVICE) == ["plain decoding is as fast: --drafter none"]
    assert payoff(1.02, 1.021, 1.022).pays and not payoff(0.9, 0.91, 0.9).pays


def test_nothing_is_said_where_nothing_was_timed():
    assert plain_pass_ms([Statistics()]) is None  # one token each
    assert Payoff.of(DRAFTED, None, Speedup((1.0,))) is None
    assert Payoff.of([Statistics()], 10.0) is None
    assert Payoff.of([Statistics(accepted=[1], drafted=[3])], 10.0) is None  # another program's passes


def test_an_explanation_begins_with_its_verdict():
    totals = Totals.of([6, 2], DRAFTED)
    found = Explanation.of(payoff(0.9, 0.9, 0.9), ADVICE, totals=totals)
    assert found.lines[0] == ("verdict", "drafted 0.90 times as fast (0.90 to 0.90 in 3 rounds): slower")
    assert found.lines[1:] == [*totals.facts(), *(("why", one) for one in found.why), ("try", found.remedies[0])]
    assert [line.split()[0] for line in str(found).splitlines()] == [name for name, _ in found.lines]
    unknown = Explanation.of_unknown(totals, replace(ADVICE, auto="--nodes auto"))
    assert "not known" in unknown.verdict and unknown.remedies == ("--nodes auto times plain passes too",)
    assert unknown.to_json() is None
    short = Explanation.of_unknown(Totals.of([1], [Statistics()]), ADVICE)
    assert short.verdict == "nothing was drafted" and short.remedies == ("longer texts (--max-tokens)",)


def test_only_named_sources_are_suggested():
    assert more_sources() == [] and [("ABC" in one, "DEF" in one) for one in more_sources(lm="ABC", heads="DEF")] == [
        (True, False),
        (False, True),
    ]


def test_smaller_trees_bring_no_more_than_their_depth():
    """Trees of 1 and 3 nodes in one row need passes of 2 and 4 tokens; unmeasured widths are left out."""
    found = payoff(accepted=(0.5, 0.25, 0.25, 0.25), largest=15)
    assert found.smaller(COSTS) == [
        TreeSize(nodes=1, cost=pytest.approx(1.1), most=1.5),
        TreeSize(nodes=3, cost=pytest.approx(1.2), most=2.0),
        TreeSize(nodes=7, cost=pytest.approx(3.0), most=2.25),
    ]
    assert found.smaller(COSTS, rows=2) == [
        TreeSize(nodes=1, cost=pytest.approx(12 / 11), most=1.5),
        TreeSize(nodes=3, cost=pytest.approx(30 / 11), most=2.0),
    ]
    assert [one.nodes for one in payoff(largest=3).smaller(COSTS)] == [1]


@pytest.mark.parametrize(
    "changes, smaller, options, remedies",
    [
        # 1.75 tokens for (14 + 2) / 10: it is the prompts that no draft shortens.
        (
            {"pass_ms": 14.0, "drafting_ms": 2.0},
            SMALL,
            {},
            [
                "the prompts' passes, which no draft shortens, take 68% of the time: "
                "longer texts gain more (--max-tokens)"
            ],
        ),
        # 1.75 for (14 + 4) / 10, of the 4 ms 3 for the first drafts.
        (
            {"pass_ms": 14.0, "drafting_ms": 4.0, "opening_ms": 3.0},
            SMALL,
            {},
            [
                "the first drafts, before which the prompts are read, take 75% of the time of drafting: "
                "longer texts gain more (--max-tokens)"
            ],
        ),
        # 1.5 / (1.1 + 0.1) and 1.75 / (1.2 + 0.1) tokens for each plain pass: the second is more.
        (
            {},
            SMALL,
            {"size": "--nodes {}", "auto": "--nodes auto", "better": ["more"], "faster": ["never"]},
            [
                "a pass with 3 draft tokens costs 1.20 plain passes and yields at most 1.75 tokens: "
                "try --nodes 3, or --nodes auto",
                "more",
            ],
        ),
        (
            {},
            SMALL,
            {},
            ["a pass with 3 draft tokens costs 1.20 plain passes and yields at most 1.75 tokens: draft less"],
        ),
        # (1.5 - 1.1) * 10 ms and (1.75 - 1.2) * 10 ms are less than the 8 ms of drafting; 1.75 / 1.2 is the best.
        (
            {"drafting_ms": 10.0},
            SMALL,
            {"size": "--nodes {}"},
            [
                "a pass with 3 draft tokens costs 1.20 plain passes and yields at most 1.75 tokens: "
                "it pays if drafting takes less than 5.5 ms"
            ],
        ),
        # Arithmetic alone: n tokens more cost n plain passes.
        (
            {},
            [TreeSize(nodes=1, cost=1.97, most=1.5), TreeSize(nodes=3, cost=4.0, most=1.75)],
            {"better": ["never"], "faster": ["threads"]},
            [
                "every further token costs a plain pass here: no drafts pay, --drafter none",
                "threads",
            ],
        ),
        (
            {},
            [TreeSize(nodes=1, cost=1.5, most=1.5), TreeSize(nodes=3, cost=1.8, most=1.75)],
            {"better": ["more"], "faster": ["threads"]},
            [
                "more",
                "threads",
                "no size pays for these texts, --drafter none: "
                "a pass with 1 draft token costs 1.50 plain passes and yields at most 1.50 tokens; "
                "a pass with 3 draft tokens costs 1.80 plain passes and yields at most 1.75 tokens",
            ],
        ),
        ({}, [], {"better": ["more"]}, ["more", "plain decoding is faster: --drafter none"]),
        ({}, [], {"auto": "--nodes auto"}, ["plain decoding is faster: try --nodes auto, or --drafter none"]),
    ],
)
def test_remedies(changes, smaller, options, remedies):
    assert payoff(**changes).remedies(smaller, replace(ADVICE, **options)) == remedies
