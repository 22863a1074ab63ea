"""Why drafts do not pay, as commands tell it: which passes are measured, and what only the command line knows."""

import argparse
from pathlib import Path

import pytest
from support.tiny_blockwise import trained

from rescore.decode.cli.comparison import explain_payoff, measure_of
from rescore.decode.draft.pace import PassCosts
from rescore.decode.loop.payoff import Speedup
from rescore.decode.loop.request import Statistics
from rescore.decode.models.blockwise import BlockwiseTarget

# Ten passes of 30 ms with trees of 15 nodes, each second of which kept one token; plain ones take 10 ms.
DRAFTED = [Statistics(accepted=[1, 0] * 5, drafted=[15] * 10, verifying_us=300e3)]
PLAIN = [Statistics(accepted=[0] * 15, drafted=[0] * 15, verifying_us=150e3)]
COSTS = PassCosts.of_times([1, 2, 4, 8, 16], [0.010, 0.011, 0.014, 0.02, 0.03])  # of trees of 0, 1, 3, 7, 15 nodes


def lines(kind, *, nodes=15, speedup=0.5, **given):
    args = argparse.Namespace(**{"lm": [], "settings": None, "threads": 1, "device": None, **given})
    asked = []

    def measure(plain_s):
        asked.append(plain_s)
        return COSTS

    found = explain_payoff(args, kind, DRAFTED, PLAIN, Speedup((speedup,)), measure, nodes=nodes)
    assert found.to_json()["try"] == list(found.remedies)
    return list(found.remedies), asked


@pytest.mark.parametrize(
    "kind, options, named",
    [
        ("blend", {}, ["--nodes 1", "--lm"]),
        ("blend", {"lm": [(Path("lm.ngram"), 1.0)]}, ["--nodes 1"]),
        ("lm-alone", {"lm": [(Path("lm.ngram"), 1.0)]}, ["--nodes 1", "--drafter blend"]),
        ("draft-model", {}, ["--ahead 1"]),
        # Nothing is measured where it is of no use: drafts pay; sizes are chosen already; the drafter has no size.
        ("blend", {"speedup": 1.2}, []),
        ("blend", {"nodes": "auto"}, ["--lm", "--drafter none"]),
        ("base", {}, ["--drafter none"]),
    ],
)
def test_remedies_of_each_drafter(kind, options, named):
    remedies, asked = lines(kind, **options)
    assert len(remedies) == len(named) and all(one in remedy for one, remedy in zip(named, remedies))
    measured = "speedup" not in options and "nodes" not in options and kind != "base"
    assert asked == ([pytest.approx(0.01)] if measured else [])


@pytest.mark.parametrize("threads, device, more", [(1, None, 1), (4, "cpu", 0), (1, "cuda", 0)])
def test_processors_that_rest(monkeypatch, threads, device, more):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    costly = PassCosts.of_times([1, 2, 4, 8, 16], [0.010, 0.020, 0.040, 0.08, 0.16])
    args = argparse.Namespace(lm=[], settings=None, threads=threads, device=device)
    found = explain_payoff(args, "blend", DRAFTED, PLAIN, Speedup((0.5,)), lambda plain_s: costly, nodes=15)
    assert sum("--threads 4" in one for one in found.remedies) == more


def test_passes_are_measured_once_and_only_where_that_is_quick():
    measure = measure_of(BlockwiseTarget(trained()), rows=2)
    costs = measure(0.05)
    assert costs.tokens.tolist() == [2, 4, 8, 16, 32, 64, 128] and measure(10.0) is costs
    assert measure_of(BlockwiseTarget(trained()))(0.4) is None
