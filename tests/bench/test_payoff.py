"""Whether drafts paid, and what would help: worked examples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rescore.decode.bench.payoff import Payoff, TreeSize
from rescore.decode.cost.pass_costs import PassCosts
from rescore.decode.loop.request import Statistics

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
COSTS = PassCosts.of_times([1, 2, 4, 8], [0.010, 0.011, 0.012, 0.030])


def payoff(speedup: float = 0.9, **changes) -> Payoff:
    found = Payoff.of(DRAFTED, PLAIN, speedup)
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
        "it yields 1.75 tokens and needs 2.30 to break even: drafting does not pay, 0.90 times plain decoding",
    ]
    assert payoff(undrafted=0.5).sentences()[0].endswith("(13%); 50% of the passes drafted nothing")
    figures = found.to_json()
    assert (figures["pays"], figures["tokens_per_pass"], figures["needed_per_pass"]) == (False, 1.75, found.needed)


def test_drafts_that_pay_need_no_remedy():
    found = payoff(1.05)
    assert found.pays and found.remedies(better=["more"]) == [] and "drafting pays, 1.05 times" in found.sentences()[1]


def test_nothing_is_said_where_nothing_was_drafted_or_timed():
    assert Payoff.of(PLAIN, PLAIN, 1.0) is None
    assert Payoff.of(DRAFTED, [Statistics()], 1.0) is None  # one token each
    assert Payoff.of([Statistics(accepted=[1], drafted=[3])], PLAIN, 1.0) is None  # another program's passes


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


SMALL = [TreeSize(nodes=1, cost=1.1, most=1.5), TreeSize(nodes=3, cost=1.2, most=1.75)]


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
            {"option": "--nodes", "auto": True, "better": ["more"], "faster": ["never"]},
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
            {"option": "--nodes"},
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
        ({}, [], {"auto": True}, ["plain decoding is faster: try --nodes auto, or --drafter none"]),
    ],
)
def test_remedies(changes, smaller, options, remedies):
    assert payoff(**changes).remedies(smaller, **options) == remedies
