"""Drafting at visited rows, each with the largest budget that visits it, against drafting at all rows."""

import math
from dataclasses import replace
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
from rescore.decode.lab.replay.recorded import RecordedHeads
from rescore.decode.lab.replay.replay import DrafterReplay, OracleReplay, visited_rows
from rescore.decode.lab.replay.rows import path_replay, tree_replay
from rescore.decode.lab.replay.run import replay_blocks
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
    found, truth = drafter.lines(block), block.truth(slots=MOST)
    assert list(found) == list(BUDGETS)
    for name, n in BUDGETS.items():
        accepted = np.array([tree.head(n).accepted(ahead) for tree, ahead in zip(trees, truth)])
        visited, lines = visited_rows(accepted, block.offsets), found[name]
        rows, drafts = lines.rows(block), lines.position >= 0
        assert rows[lines.made].tolist() == visited.tolist()
        assert drafter.everywhere or lines.made.all()
        assert lines.accepted[drafts].tolist() == accepted[rows].tolist()
        assert lines.drafted[drafts].tolist() == [trees[row].head(n).size for row in rows]
        assert (lines.seconds[drafts] > 0).all()


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
        found = path_replay(rescorer, {"best": 1, "all": 5}).lines(block)
        wanted = rescorer.paths(block.sausages(), block.histories(slice(None), rescorer.context), 5)
        for name, p in (("best", 1), ("all", 5)):
            lines, at = found[name], found[name].rows(block)
            assert lines.drafts.tokens.tolist() == wanted.tokens[at, :p].tolist()
            assert lines.drafts.cost.tolist() == wanted.cost[at, :p].tolist()
            verified = (np.minimum(wanted.count[at], p) * block.slots).tolist()
            assert lines.drafted[lines.position >= 0].tolist() == verified


@pytest.mark.parametrize("everywhere", [False, True])
def test_trees_that_are_kept_are_those_of_their_budget(blocks, model, everywhere):
    rescorer = Rescorer(model)
    drafter = replace(tree_replay(rescorer, BUDGETS, everywhere=everywhere), keep="middle")
    for block in blocks:
        found, trees = drafter.lines(block), every_row.trees_of(rescorer, block, MOST)
        assert found["small"].drafts is found["large"].drafts is None
        for kept, row in zip(found["middle"].drafts, found["middle"].rows(block), strict=True):
            wanted = trees[row].head(BUDGETS["middle"])
            assert kept.tokens.tolist() == wanted.tokens.tolist() and kept.logq.tolist() == wanted.logq.tolist()


def test_sizes_by_measured_times_are_refused(blocks):
    class Target:
        vocab_size, device = 50, torch.device("cpu")

    def make(block):
        return TreeDrafter(RecordedHeads(block), Rescorer(), nodes=AutoWidth(Target()))

    with refused(ValueError, "auto", "those", "TreeDrafter"):
        DrafterReplay(budgets={"auto": None}, make=make).lines(blocks[0])


@pytest.mark.parametrize("rows", [1, 100, 10**6])
def test_blocks_that_are_drafted_for_together(blocks, model, monkeypatch, rows):
    """One by one, some at once and all at once: the same lines of every block, in order."""
    drafters = [
        DrafterReplay(budgets=BUDGETS, make=partial(of_the_model, model)),
        path_replay(Rescorer(model, alpha=0.5), {"paths": 3}),
        OracleReplay(widths={"oracle": None}),
    ]
    monkeypatch.setattr("rescore.decode.lab.replay.run.ROWS", rows)
    heard = []
    result = replay_blocks(blocks, drafters, kind="greedy", listeners=[lambda *told: heard.append(told)])
    assert [block for block, _ in heard] == blocks and result.lattices == sum(block.rows for block in blocks)
    for block, lines in heard:
        for name, alone in [pair for drafter in drafters for pair in drafter.lines(block).items()]:
            for column in ("sequence", "position", "visited", "drafted", "accepted", "tokens"):
                assert getattr(lines[name], column).tolist() == getattr(alone, column).tolist()
        assert lines["paths"].drafts.tokens.tolist() == drafters[1].lines(block)["paths"].drafts.tokens.tolist()
    assert all(math.isfinite(result.ms_per_lattice(name)) for name in result.names)
