"""Measuring the cost of passes."""

import numpy as np
from support.tiny_blockwise import CONFIG, trained

from rescore.decode.draft.pace import PassCosts
from rescore.decode.loop.payoff import WIDTHS, measure_passes
from rescore.decode.models.blockwise import BlockwiseTarget


class Counting(BlockwiseTarget):
    def __init__(self):
        super().__init__(trained())
        self.blocks = []

    def read(self, block, cache):
        self.blocks.append(block)
        return super().read(block, cache)


def test_times_that_fall_are_noise():
    costs = PassCosts.of_times([1, 2, 4], [0.03, 0.01, 0.02])
    assert costs.seconds.tolist() == [0.01, 0.01, 0.02]
    np.testing.assert_allclose(costs.at([0, 1, 3, 4, 6]), [0, 0.01, 0.015, 0.02, 0.03])
    np.testing.assert_allclose(PassCosts.of_times([3], [0.6]).at([1, 2, 3, 9]), [0.2, 0.4, 0.6, 0.6])


def test_passes_are_measured_as_the_loop_makes_them():
    target = Counting()
    costs = measure_passes(target, rows=2, length=7, widths=(1, 3, 9), repeats=2)
    assert costs.tokens.tolist() == [2, 6, 18] and (costs.seconds > 0).all() and (np.diff(costs.seconds) >= 0).all()
    assert [(block.rows, block.width, block.end) for block in target.blocks] == [
        (2, 7, 7),
        *[(2, w, 7 + w) for w in (1, 3, 9) for _ in range(3)],
    ]


def test_passes_over_trees():
    target = Counting()
    measure_passes(target, length=7, widths=(1, 4), repeats=1, trees=True)
    tree = target.blocks[-1]
    assert target.blocks[1].ancestors is None and tree.depths.tolist() == [[0, 1, 1, 2]]
    assert tree.ancestors.int().tolist() == [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]]


def test_what_does_not_fit_into_the_context_is_not_measured():
    target = Counting()
    costs = measure_passes(target, length=200, repeats=1)
    assert costs.tokens.tolist() == [w for w in WIDTHS if w < CONFIG.context]
    assert max(block.end for block in target.blocks) <= CONFIG.context
