"""Searching visited rows, each with the largest budget that visits it, against searching all rows with the largest."""

import numpy as np
import pytest
from support import cli

from rescore.decode.replay.drafters.calibrated import CalibratedReplay, trees_of_block
from rescore.decode.replay.drafters.model_trees import ModelReplay
from rescore.decode.replay.run import replay_blocks
from rescore.decode.replay.worth import visited_rows, worth_of_trees
from rescore.decode.rescoring.calibrated import CalibratedTrees
from rescore.decode.rescoring.calibration import DEFAULT, HEADLESS, Calibration
from rescore.decode.rescoring.propose import propose_trees
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

BUDGETS = {"small": 2, "middle": 7, "large": 24}


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("visits")
    cli.make_dump(folder / "dump")
    return list(Dump.open(folder / "dump").blocks(rows=60))


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> NGram:
    path = tmp_path_factory.mktemp("visits") / "a.ngram"
    cli.make_model(path, cli.make_dump(path.parent / "dump"))
    return NGram.open(path)


def check(block, drafter, trees, truth) -> None:
    everywhere, found = worth_of_trees(trees, truth, BUDGETS), drafter.worth(block)
    assert list(found) == list(BUDGETS)
    for name, one in everywhere.items():
        rows = visited_rows(one.accepted, block.offsets)
        assert visited_rows(found[name].accepted, block.offsets).tolist() == rows.tolist()
        assert found[name].accepted[rows].tolist() == one.accepted[rows].tolist()
        assert found[name].verified[rows].tolist() == one.verified[rows].tolist()
        assert found[name].seconds > 0


@pytest.mark.parametrize(
    "calibration",
    [DEFAULT, HEADLESS, Calibration(), Calibration(open=False, text=((0.0, 1.0, -1.0), (0.7, 0.8, -1.2)))],
)
def test_calibrated(blocks, model, calibration):
    drafter = CalibratedReplay(rescorer=CalibratedTrees(model, calibration), budgets=BUDGETS)
    for block in blocks:
        check(
            block,
            drafter,
            trees_of_block(drafter.rescorer, block, max(BUDGETS.values())),
            drafter.truth(block),
        )


def test_of_a_model_alone(blocks, model):
    for block in blocks:
        histories = block.histories(slice(None), model.order - 1)
        trees = propose_trees(model, histories, n=max(BUDGETS.values()), depth=block.slots)
        check(block, ModelReplay(model=model, budgets=BUDGETS), trees, block.truth())


def test_each_row_is_searched_once_and_as_large_as_wanted(blocks, model):
    drafter = CalibratedReplay(rescorer=CalibratedTrees(model, DEFAULT), budgets=BUDGETS)
    for block in blocks:
        worth = drafter.worth(block)
        wanted: dict[int, int] = {}
        for name, n in BUDGETS.items():
            for row in visited_rows(worth[name].accepted, block.offsets).tolist():
                wanted[row] = max(wanted.get(row, 0), n)
        searched = [
            (row, visit.trees.tokens.shape[1]) for visit in drafter.visits(block) for row in visit.rows.tolist()
        ]
        assert sorted(searched) == sorted(wanted.items())


def test_blocks_side_by_side(blocks, model):
    drafter = ModelReplay(model=model, budgets=BUDGETS)
    one, several = (replay_blocks(blocks, [drafter], kind="greedy", workers=workers) for workers in (1, 3))
    assert [task.to_json() for task in one.tasks] == [task.to_json() for task in several.tasks]
    assert one.lattices == several.lattices and np.isfinite(list(several.seconds.values())).all()
