"""Trees of the device's kernels against the native core's: on a GPU where there is one, else through Triton's
interpreter.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import refused

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
from support.device_rescorer import DEVICE, device_rescorer, on_device, padded_histories
from support.oracle import Backoff, padded
from support.problems import VOCAB, problems

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.dump import Dump
from rescore.lattice.sausage import Sausage
from rescore.lattice.tensors import TensorSausage
from rescore.lm.model.ngram import NGram

FIELDS = ("tokens", "parents", "depths", "logq", "count")


def same(found, wanted):
    for name in FIELDS:
        assert np.array_equal(getattr(found, name).cpu().numpy(), getattr(wanted, name)), name


@settings(max_examples=15)
@given(problems(), st.integers(1, 40))
def test_equal_the_native_trees(problem, n):
    lms, batch, alphas, histories, _ = problem
    ids, cost = padded(batch)
    rescorer = Rescorer([lm.ngram() for lm in lms], alpha=np.array(alphas).reshape(len(lms), ids.shape[1]))
    found = device_rescorer(rescorer).trees(*on_device(Sausage(ids=ids, cost=cost), padded_histories(histories)), n)
    same(found, rescorer.trees(Sausage(ids=ids, cost=cost), padded_histories(histories), n))
    assert not found.invalid.any()


def test_equal_on_the_demo(demo):
    block = next(Dump.open(demo / "sampled").blocks())
    rows = np.array([5, 300])
    rescorer = Rescorer(NGram.open(demo / "demo.ngram"), alpha=0.3, head=np.linspace(0.5, 1.5, 5))
    sausages, histories = block.sausages()[rows], block.histories(rows, rescorer.context)
    device = device_rescorer(rescorer)
    for n in (16, 100):
        same(device.trees(*on_device(sausages, histories), n), rescorer.trees(sausages, histories, n))


def test_ties_go_to_shallow_prefixes_then_to_low_ranks():
    """Every candidate costs the same: the order is that of depths and ranks alone."""
    ids, cost = np.tile(np.arange(4, dtype=np.int32), (1, 3, 1)), np.zeros((1, 3, 4), np.float32)
    found = device_rescorer(Rescorer()).trees(*on_device(Sausage(ids=ids, cost=cost), padded_histories([[]])), 11)
    assert found.tokens[0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert found.parents[0].tolist() == [-1] * 4 + [0] * 4 + [1] * 3


def test_tokens_that_no_model_has_are_left_out_and_told():
    rescorer = Rescorer(
        Backoff(VOCAB, 2, {(): dict.fromkeys(range(VOCAB), 1.0), (6,): {6: 0.5}}, {(): 0.0, (6,): 0.1}).ngram()
    )
    ids = np.array([[[0, VOCAB], [2, 3]], [[1, 2], [-7, 3]], [[4, 5], [2, 2**31 - 1]], [[4, -1], [3, -1]]], np.int32)
    cost = np.array([[[1.0, 2.0], [1.0, 2.0]]] * 4, np.float32)
    cost[2, 0, 1] = np.nan
    histories = torch.tensor([[-1, 3], [-1, 3], [5, 6], [99, -5]], dtype=torch.int32, device=DEVICE)
    found = device_rescorer(rescorer).trees(
        TensorSausage(ids=torch.from_numpy(ids).to(DEVICE), cost=torch.from_numpy(cost).to(DEVICE)), histories, 6
    )
    assert found.invalid.tolist() == [True, True, True, True]
    assert [row[:count].tolist() for row, count in zip(found.tokens, found.count)] == [
        [0, 2, 3],
        [1, 3, 2, 3],
        [4, 2],
        [4, 3],
    ]


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"ids": torch.zeros(1, 2, 3)}, TypeError, ["ids", "torch.float32", "torch.int32"]),
        ({"ids": np.zeros((1, 2, 3), np.int32)}, TypeError, ["ids", "torch.int32"]),
        ({"cost": torch.zeros(1, 3, 2).mT}, ValueError, ["cost", "strides"]),
        ({"cost": torch.zeros(1, 2, 2)}, ValueError, ["cost", "[1, 2, 3]", "[1, 2, 2]"]),
        ({"ids": torch.zeros(3, dtype=torch.int32)}, ValueError, ["ids", "[T, K]", "[B, T, K]", "[3]"]),
        (
            {"ids": torch.zeros(1, 33, 3, dtype=torch.int32), "cost": torch.zeros(1, 33, 3)},
            ValueError,
            ["slots T", "1..32", "33"],
        ),
        ({"history": torch.zeros(1, 2, dtype=torch.int64)}, TypeError, ["history", "torch.int64", "torch.int32"]),
        ({"history": torch.zeros(2, 2, dtype=torch.int32)}, ValueError, ["history", "1"]),
        ({"history": torch.zeros(1, 2, dtype=torch.int32, device="meta")}, ValueError, ["history"]),
        ({"n": 0}, ValueError, ["nodes", "1", "4096"]),
    ],
)
def test_misuse(change, error, message):
    call = {
        "ids": torch.zeros(1, 2, 3, dtype=torch.int32),
        "cost": torch.zeros(1, 2, 3),
        "history": torch.zeros(1, 2, dtype=torch.int32),
        "n": 3,
        **change,
    }
    with refused(error, *message):
        moved = {
            name: call[name].to(DEVICE)
            if isinstance(call[name], torch.Tensor) and call[name].device.type == "cpu"
            else call[name]
            for name in ("ids", "cost", "history")
        }
        history = moved.pop("history")
        device_rescorer(Rescorer()).trees(TensorSausage(**moved), history, call["n"])
