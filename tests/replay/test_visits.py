"""Drafting at visited rows, each with the largest budget that visits it, against drafting at all rows."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from support import every_row
from support.refusals import refused

from rescore.decode.draft.calibration import DEFAULT, HEADLESS, Calibration, propose_trees
from rescore.decode.draft.pace import AutoWidth
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.tree_drafter import TreeDrafter, ngram_drafter
from rescore.decode.replay.recorded import RecordedHeads
from rescore.decode.replay.replay import DrafterReplay, visited_rows
from rescore.decode.replay.rows import path_replay, tree_replay
from rescore.decode.replay.run import replay_blocks
from rescore.lattice.dump import Dump
from rescore.lm.model.ngram import NGram

BUDGETS = {"small": 2, "middle": 7, "large": 24}
MOST = max(BUDGETS.values())


@pytest.fixture(scope="module")
def blocks(world):
    return list(Dump.open(world / "dump").blocks(rows=60))


@pytest.fixture(scope="module")
def model(world) -> NGram:
    return NGram.open(world / "lm.ngram")


def check(block, drafter, trees) -> None:
    found, truth = drafter.outcomes(block), block.truth(slots=MOST)
    assert list(found) == list(BUDGETS)
    for name, n in BUDGETS.items():
        accepted = np.array([tree.head(n).accepted(ahead) for tree, ahead in zip(trees, truth)])
        visited = visited_rows(accepted, block.offsets)
        assert found[name].visited.tolist() == visited.tolist()
        assert found[name].accepted[visited].tolist() == accepted[visited].tolist()
        assert found[name].verified[visited].tolist() == [trees[row].head(n).size for row in visited]
        assert (found[name].seconds[visited] > 0).all()


TEXT = Calibration(open=False, text=((0.0, 1.0, -1.0), (0.7, 0.8, -1.2)))
WEIGHTS = [{"calibration": one} for one in (DEFAULT, HEADLESS, Calibration(), TEXT)]


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("weights, top_k", [*((one, None) for one in WEIGHTS), ({"alpha": 0.7}, 3)])
def test_of_lattices(blocks, model, weights, top_k, everywhere):
    rescorer = Rescorer(model, **weights)
    for block in blocks:
        trees = every_row.trees_of(rescorer, block, MOST, top_k=top_k)
        check(block, tree_replay(rescorer, BUDGETS, top_k=top_k, everywhere=everywhere), trees)


def of_the_model(model, block):
    return ngram_drafter(model, slots=block.slots, nodes=MOST)


def test_of_a_model_alone(blocks, model):
    drafter = DrafterReplay(budgets=BUDGETS, make=partial(of_the_model, model), at_once=2)
    for block in blocks:
        histories = block.histories(slice(None), model.order - 1)
        trees = propose_trees(model, histories, n=MOST, depth=block.slots)
        check(block, drafter, [trees[row] for row in range(block.rows)])


def test_paths_are_kept_where_they_are_drafted(blocks, model):
    rescorer = Rescorer(model, alpha=0.5)
    for block in blocks:
        found = path_replay(rescorer, {"best": 1, "all": 5}).outcomes(block)
        wanted = rescorer.paths(block.sausages(), block.histories(slice(None), rescorer.context), 5)
        for name, p in (("best", 1), ("all", 5)):
            at = found[name].visited
            assert found[name].drafts.tokens[at].tolist() == wanted.tokens[at, :p].tolist()
            assert found[name].drafts.cost[at].tolist() == wanted.cost[at, :p].tolist()
            assert found[name].verified[at].tolist() == (np.minimum(wanted.count[at], p) * block.slots).tolist()


def test_sizes_by_measured_times_are_refused(blocks):
    class Target:
        vocab_size, device = 50, torch.device("cpu")

    def make(block):
        return TreeDrafter(RecordedHeads(block), Rescorer(), nodes=AutoWidth(Target()))

    with refused(ValueError, "auto", "those", "TreeDrafter"):
        DrafterReplay(budgets={"auto": None}, make=make).outcomes(blocks[0])


def test_blocks_side_by_side(blocks, model):
    drafter = DrafterReplay(budgets=BUDGETS, make=partial(of_the_model, model))
    one, several = (replay_blocks(blocks, [drafter], kind="greedy", workers=workers) for workers in (1, 3))
    assert [task.to_json() for task in one.tasks] == [task.to_json() for task in several.tasks]
    assert one.lattices == several.lattices
    assert all(math.isfinite(several.ms_per_lattice(name)) for name in several.names)
