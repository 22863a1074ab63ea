"""Best paths of the device's kernels against the native core's: on a GPU where there is one, else through Triton's
interpreter.
"""

import numpy as np
import pytest
from hypothesis import given, settings

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
from support.device_rescorer import device_rescorer, on_device, padded_histories
from support.oracle import padded
from support.problems import problems

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.dump import Dump
from rescore.lattice.sausage import Sausage
from rescore.lm.ngram import NGram


def same(found, wanted):
    for name in ("tokens", "cost", "count"):
        assert np.array_equal(getattr(found, name).cpu().numpy(), getattr(wanted, name)), name


@settings(max_examples=15)
@given(problems())
def test_equal_the_native_paths(problem):
    lms, batch, alphas, histories, p = problem
    ids, cost = padded(batch)
    sausage, rows = Sausage(ids=ids, cost=cost), padded_histories(histories)
    rescorer = Rescorer([lm.ngram() for lm in lms], alpha=np.array(alphas).reshape(len(lms), ids.shape[1]))
    found = device_rescorer(rescorer, 64).paths(*on_device(sausage, rows), p, "failure")
    same(found, rescorer.paths(sausage, rows, p))
    assert found.exact.all() and not found.invalid.any()


def test_equal_on_the_demo(demo):
    block = next(Dump.open(demo / "sampled").blocks())
    rows = np.array([5, 300])
    rescorer = Rescorer(NGram.open(demo / "demo.ngram"), alpha=0.3)
    sausages, histories = block.sausages()[rows], block.histories(rows, rescorer.context)
    found = device_rescorer(rescorer).paths(*on_device(sausages, histories), 16, "failure")
    same(found, rescorer.paths(sausages, histories, 16))
    assert found.exact.all()


@settings(max_examples=15)
@given(problems())
def test_a_beam_finds_drafts_at_their_cost_and_says_that_it_was_one(problem):
    """With room for two states in each slot."""
    lms, batch, alphas, histories, _ = problem
    ids, cost = padded(batch)
    sausage, rows = Sausage(ids=ids, cost=cost), padded_histories(histories)
    rescorer = Rescorer([lm.ngram() for lm in lms], alpha=np.array(alphas).reshape(len(lms), ids.shape[1]))
    found = device_rescorer(rescorer, 2).paths(*on_device(sausage, rows), 5, "failure")
    wanted = rescorer.paths(sausage, rows, 300)
    for b, count in enumerate(found.count.tolist()):
        known = {tuple(draft): cost for draft, cost in zip(wanted.tokens[b].tolist(), wanted.cost[b].tolist())}
        drafts = [(tuple(draft), cost) for draft, cost in zip(found.tokens[b].tolist(), found.cost[b].tolist())][:count]
        assert len(set(drafts)) == count and drafts == sorted(drafts, key=lambda draft: draft[1])
        assert all(known[draft] == cost for draft, cost in drafts)
        if found.exact[b]:
            assert [cost for _, cost in drafts] == wanted.cost[b, :5].tolist()[:count]


@pytest.mark.parametrize(
    "p, semantics, message",
    [
        (0, "failure", "paths p: expected 1 to 1024, got 0"),
        (1, "epsilon", "semantics: expected failure, the only one on .*, got epsilon; move the lattices to the CPU"),
    ],
)
def test_misuse(worked, p, semantics, message):
    model, sausage = worked
    with pytest.raises(ValueError, match=message):
        device_rescorer(Rescorer(model)).paths(*on_device(sausage, np.zeros(1, np.int32)), p, semantics)


def test_models_of_different_orders_together(worked):
    """Three, an odd number, with weights for each slot."""
    model, sausage = worked
    rescorer = Rescorer(
        [model.of_order(1), model, model.of_order(2)], alpha=[[0.5, 0.25, 1.0], [1.0, 0.0, 0.5], [0.1, 0.2, 0.3]]
    )
    history = np.array([0, 1], np.int32)
    found = device_rescorer(rescorer).paths(*on_device(sausage, history), 8, "failure")
    same(found, rescorer.paths(sausage, history, 8))
    assert found.tokens.shape == (8, 3)
    trees = device_rescorer(rescorer).trees(*on_device(sausage, history), 9)
    wanted = rescorer.trees(sausage, history, 9)
    assert trees.tokens.tolist() == wanted.tokens.tolist() and trees.logq.tolist() == wanted.logq.tolist()
