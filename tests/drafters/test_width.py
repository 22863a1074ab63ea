"""The size of trees: a worked example of the choice, the measured costs, what is learned from acceptance."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.tiny_blockwise import CONFIG, END, V, text, trained

from rescore.decode.cost.pass_costs import PassCosts
from rescore.decode.drafters import width
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.drafters.tree_drafter import TreeDrafter
from rescore.decode.drafters.width import AutoWidth, WidthSession, best_size, measure_passes
from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.blockwise_target import BlockwiseHeads, BlockwiseTarget
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lm.build import build

torch.set_num_threads(1)

# Passes over 1, 2, 4 and 8 tokens take 10, 10, 12 and 20 ms: 2 ms more for each token above 4, 1 ms between 2 and 4.
COSTS = PassCosts.of_times([1, 2, 4, 8], [0.010, 0.010, 0.012, 0.020])
LOGQ = np.log(np.array([[0.6, 0.3, 0.2, 0.1, 0.05]], np.float32))


def test_a_worked_example():
    """Nodes 0..5 bring 1, 1.6, 1.9, 2.1, 2.2 and 2.25 tokens in 10, 10, 11, 12, 14 and 16 ms: 100, 160, 173, 175, 157,
    141 a second.
    """
    tokens = 1 + np.append(0.0, np.cumsum(np.exp(LOGQ[0])))
    np.testing.assert_allclose(1000 * COSTS.at([1, 2, 3, 4, 5, 6]), [10, 10, 11, 12, 14, 16])
    np.testing.assert_allclose(
        tokens / COSTS.at([1, 2, 3, 4, 5, 6]), [100, 160, 172.73, 175, 157.14, 140.63], rtol=1e-4
    )
    assert best_size(tokens, COSTS.at([1, 2, 3, 4, 5, 6])) == 3
    assert WidthSession(COSTS, 1).size(LOGQ, [10]) == 3


def test_drafting_makes_wide_passes_cheaper():
    """With 100 ms for the draft the passes' own time hardly counts; 2.25 / 116 is still more than 2.2 / 114."""
    assert WidthSession(COSTS, 1).size(LOGQ, [10], 0.1) == 5


def test_a_batch_pays_for_all_rows():
    """Two rows: sizes 0..2 are passes over 2, 4 and 6 tokens: 2, 3.2 and 3.8 tokens in 10, 12 and 16 ms."""
    session = WidthSession(COSTS, 2)
    assert session.size(np.repeat(LOGQ[:, :2], 2, axis=0), [10, 10]) == 1
    session.select([1])  # one is left, in a pass that is its own again
    assert session.size(LOGQ[:, :2], [11]) == 2


def test_what_is_not_accepted_makes_trees_smaller():
    session = WidthSession(COSTS, 1)
    sizes, lengths = [], [10]
    for _ in range(12):
        sizes.append(session.size(LOGQ, lengths))
        lengths = [lengths[0] + 1]  # nothing was accepted
    assert sizes[0] == 3 and sizes[-1] < 2 and sorted(sizes, reverse=True) == sizes
    # After the first pass 1.1 tokens had been expected: (2 + 0) / (2 + 1.1).
    again = WidthSession(COSTS, 1)
    again.size(LOGQ, [10])
    again.size(LOGQ, [11])
    assert again.ratio == pytest.approx(2 / 3.1)
    # Where no tree is worth it, what was learned fades, and trees are tried again.
    for length in range(12, 400):
        again.size(LOGQ[:, 3:], [length])
    assert again.ratio > 0.6 or again.size(LOGQ, [400]) > 0


def test_what_is_accepted_beyond_expectation_makes_them_larger():
    """Of few nodes none is worth a pass that costs twice as much, until twice as many tokens come as were expected."""
    session = WidthSession(PassCosts.of_times([1, 2], [0.01, 0.02]), 1)
    sizes, lengths = [], [10]
    for _ in range(10):
        sizes.append(session.size(np.log(np.array([[0.9]], np.float32)), lengths, 0.05))
        lengths = [lengths[0] + 4]
    assert sizes[0] == 1 and session.ratio > 2  # 1.9 / 70 ms beats 1 / 60 ms
    assert session.size(np.log(np.array([[0.5]], np.float32)), lengths) == 1  # 1 + 0.5 ratio > 2


def test_steps_rest_while_plain_passes_bring_more():
    """Drafting for 30 ms is worth it for no tree: 1 token in 10 ms against 2.25 in 46.

    Rests are of 1, 2, 4, 8, 16, 16 steps.
    """
    session = WidthSession(COSTS, 1)
    drafted = []
    for step in range(70):
        if not session.rests([10 + step]):
            session.size(LOGQ, [10 + step], 0.03)
            drafted.append(step)
    assert np.diff(drafted).tolist() == [2, 3, 5, 9, 17, 17]
    assert session.size(LOGQ, [80], 0.0) >= 0 and not session.rests([81])  # drafts cost nothing any more


def test_times_that_fall_are_noise():
    costs = PassCosts.of_times([1, 2, 4], [0.03, 0.01, 0.02])
    assert costs.seconds.tolist() == [0.01, 0.01, 0.02]
    np.testing.assert_allclose(costs.at([0, 1, 3, 4, 6]), [0.01, 0.01, 0.015, 0.02, 0.03])
    assert PassCosts.of_times([3], [0.5]).at([1, 9]).tolist() == [0.5, 0.5]


class Counting(BlockwiseTarget):
    def __init__(self):
        super().__init__(trained())
        self.blocks = []

    def read(self, block, cache):
        self.blocks.append(block)
        return super().read(block, cache)


def test_passes_are_measured_as_the_loop_makes_them():
    target = Counting()
    costs = measure_passes(target, rows=2, length=7, widths=(1, 3, 9), repeats=2)
    assert costs.tokens.tolist() == [2, 6, 18] and (costs.seconds > 0).all() and (np.diff(costs.seconds) >= 0).all()
    assert [(block.rows, block.width, block.end) for block in target.blocks] == [
        (2, 7, 7),
        *[(2, w, 7 + w) for w in (1, 3, 9) for _ in range(3)],
    ]


def test_what_does_not_fit_into_the_context_is_not_measured():
    target = Counting()
    costs = measure_passes(target, length=200, repeats=1)
    assert costs.tokens.tolist() == [w for w in width.WIDTHS if w < CONFIG.context]
    assert max(block.end for block in target.blocks) <= CONFIG.context


def test_passes_that_no_draft_is_worth_are_not_measured_further(monkeypatch):
    # A pass of w tokens takes w^2 ms.
    clock = iter(np.cumsum([0, *(size for w in (1, 2, 3, 5) for size in (0.001 * w**2, 0) * 2)]))
    monkeypatch.setattr(width, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    costs = measure_passes(Counting(), repeats=1, most=8)
    assert costs.tokens.tolist() == [1, 2, 3]
    np.testing.assert_allclose(costs.seconds, [0.001, 0.004, 0.009])


def test_costs_are_measured_once(monkeypatch):
    monkeypatch.setattr(width, "WIDTHS", (1, 2))
    target = Counting()
    for length in (9, 16, 12):
        AutoWidth(target).open([np.zeros(length, np.int64)] * 3, 3)
    assert len({id(AutoWidth(target).open([np.zeros(9, np.int64)] * 4, 3).costs)}) == 1
    read = len(target.blocks)
    AutoWidth(target).open([np.zeros(10, np.int64)] * 4, 3)
    assert len(target.blocks) == read and target.blocks[0].rows == 4
    with pytest.raises(ValueError, match="most: expected trees of 1..1024 nodes, got 0"):
        AutoWidth(target, most=0)


def test_trees_of_all_sizes_give_the_same_text():
    words = Rescorer(build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, eot=END), alpha=0.6)
    target = BlockwiseTarget(trained())
    slots = HeadsLattice(heads=BlockwiseHeads(trained()), top_k=5)
    prompts = [text(4 + i, seed=50 + i).astype(np.int64) for i in range(5)]
    options = Options(max_tokens=24)
    plain = generate(target, prompts, None, options)
    auto = generate(target, prompts, TreeDrafter(slots, words, nodes=AutoWidth(target, most=40)), options)
    assert [one.tokens.tolist() for one in auto] == [one.tokens.tolist() for one in plain]
    assert all(0 <= n <= 40 for one in auto for n in one.statistics.drafted)
    assert all(n <= 24 for one in auto for n in one.statistics.accepted)
