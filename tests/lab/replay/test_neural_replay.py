"""The replay of visited rows against one that rescores every row of a dump."""

import numpy as np
import pytest
from msgspec import structs
from support import dumps
from support.steps import texts_of
from support.tiny_blockwise import CONFIG, untrained

from rescore.decode.draft.neural_drafter import NeuralRescorer
from rescore.decode.lab.replay.replay import visited_rows
from rescore.decode.lab.report.open_neural import neural_replay
from rescore.decode.models.blockwise import BlockwiseTarget

MODEL = untrained(config=structs.replace(CONFIG, heads=1, vocab_size=dumps.V))


@pytest.mark.parametrize("paths, top_k, rows", [(1, 2, 2), (3, None, 6)])
def test_visited_rows_are_worth_what_they_are_in_a_replay_of_all(dump, paths, top_k, rows):
    rescorer = NeuralRescorer(BlockwiseTarget(MODEL), vocab_size=dumps.V, alpha=0.4, paths=paths)
    steps = gained = 0
    for block in dump.blocks():
        got = neural_replay("neural", rescorer, top_k=top_k, rows=rows).lines(block)["neural"]
        histories = [block.history(row, 1000) for row in range(block.rows)]
        trees = rescorer.trees(rescorer.open(histories, block.slots), block.sausages(k=top_k), texts_of(histories))
        accepted = np.array([trees[row].accepted(truth) for row, truth in enumerate(block.truth())])
        visited = visited_rows(accepted, block.offsets)
        np.testing.assert_array_equal(got.rows(block), visited)
        for name, everywhere in (("accepted", accepted), ("drafted", trees.count)):
            np.testing.assert_array_equal(getattr(got, name)[got.position >= 0], everywhere[visited])
        steps += len(visited)
        gained += int(got.accepted.sum())
    assert steps and gained
