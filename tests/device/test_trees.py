"""Trees of the device's kernels against the native core's: on a GPU where there is one, else through Triton's
interpreter.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from support.device_rescorer import DEVICE, device_rescorer, on_device
from support.oracle import Backoff, padded, padded_histories
from support.problems import VOCAB, problems
from support.refusals import refused, refuses

from rescore import Dump, NGram, Rescorer, Sausage
from rescore.decode.device.models import ResidentModels, _shared, resident_models
from rescore.lattice.tensors import TensorSausage
from rescore.lm.model.compile import Arrays

INTS = partial(torch.zeros, dtype=torch.int32)


def assert_same(device, rescorer, sausages, histories, n):
    """The device's trees are the native ones; returned."""
    found = device.trees(*on_device(sausages, histories), n)
    wanted = rescorer.trees(sausages, histories, n)
    for name in ("tokens", "parents", "depths", "logq", "count"):
        assert np.array_equal(getattr(found, name).cpu().numpy(), getattr(wanted, name)), name
    return found


@settings(max_examples=8)
@given(problems(), st.integers(1, 40))
def test_equal_the_native_trees(problem, n):
    lms, batch, alphas, histories, _ = problem
    ids, cost = padded(batch)
    rescorer = Rescorer([lm.ngram() for lm in lms], alpha=np.array(alphas).reshape(len(lms), ids.shape[1]))
    asked = Sausage(ids=ids, cost=cost), padded_histories(histories), n
    assert not assert_same(device_rescorer(rescorer), rescorer, *asked).invalid.any()


def test_equal_on_the_demo(demo):
    block = next(Dump.open(demo / "sampled").blocks())
    rows, model = np.array([5, 300]), NGram.open(demo / "demo.ngram")
    alpha, head = np.array([[0.2] * 5, [0.1] * 5]), np.linspace(0.5, 1.5, 5)
    rescorer = Rescorer([model, model.of_order(3)], alpha=alpha, head=head)
    device = device_rescorer(rescorer)
    for n in (16, 100):
        assert_same(device, rescorer, block.sausages()[rows], block.histories(rows, rescorer.context), n)


def test_tokens_that_no_model_has_are_left_out_and_told():
    lm = Backoff(VOCAB, 2, {(): dict.fromkeys(range(VOCAB), 1.0), (6,): {6: 0.5}}, {(): 0.0, (6,): 0.1})
    ids = np.array([[[0, VOCAB], [2, 3]], [[1, 2], [-7, 3]], [[4, 5], [2, 2**31 - 1]], [[4, -1], [3, -1]]], np.int32)
    cost = np.array([[[1.0, 2.0], [1.0, 2.0]]] * 4, np.float32)
    cost[2, 0, 1] = np.nan
    histories = torch.tensor([[-1, 3], [-1, 3], [5, 6], [99, -5]], dtype=torch.int32, device=DEVICE)
    sausage = TensorSausage(ids=torch.from_numpy(ids).to(DEVICE), cost=torch.from_numpy(cost).to(DEVICE))
    found = device_rescorer(Rescorer(lm.ngram())).trees(sausage, histories, 6)
    assert found.invalid.tolist() == [True, True, True, True]
    rows = [row[:count].tolist() for row, count in zip(found.tokens, found.count)]
    assert rows == [[0, 2, 3], [1, 3, 2, 3], [4, 2], [4, 3]]


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"ids": torch.zeros(1, 2, 3)}, TypeError, ["ids", "torch.float32", "torch.int32"]),
        ({"ids": np.zeros((1, 2, 3), np.int32)}, TypeError, ["ids", "torch.int32"]),
        ({"cost": torch.zeros(1, 3, 2).mT}, ValueError, ["cost", "strides"]),
        ({"cost": torch.zeros(1, 2, 2)}, ValueError, ["cost", "[1, 2, 3]", "[1, 2, 2]"]),
        ({"ids": INTS(3)}, ValueError, ["ids", "[T, K]", "[B, T, K]", "[3]"]),
        ({"ids": INTS(1, 33, 3), "cost": torch.zeros(1, 33, 3)}, ValueError, ["slots T", "1..32", "33"]),
        ({"history": INTS(1, 2).long()}, TypeError, ["history", "torch.int64", "torch.int32"]),
        ({"history": INTS(2, 2)}, ValueError, ["history", "1"]),
        ({"history": INTS(1, 2).to("meta")}, ValueError, ["history"]),
        ({"n": 0}, ValueError, ["nodes", "1", "4096"]),
    ],
)
def test_misuse(change, error, message):
    call = {"ids": INTS(1, 2, 3), "cost": torch.zeros(1, 2, 3), "history": INTS(1, 2), "n": 3, **change}
    on_cpu = [name for name, one in call.items() if isinstance(one, torch.Tensor) and one.device.type == "cpu"]
    call |= {name: call[name].to(DEVICE) for name in on_cpu}
    with refused(error, *message):
        sausage = TensorSausage(ids=call["ids"], cost=call["cost"])
        device_rescorer(Rescorer()).trees(sausage, call["history"], call["n"])


def test_models_are_copied_once_while_somebody_has_them(worked):
    model, _ = worked
    one, other = resident_models([model], DEVICE), resident_models([model], DEVICE)
    assert one is other and one is not resident_models([model, model], DEVICE)
    key = id(one)
    del one, other
    assert not any(id(held) == key for held in _shared.values())


@pytest.mark.parametrize(
    "name, at, value",
    [
        ("arc_next", -1, 999),
        ("arc_token", -1, 60_000),
        ("backoff_state", -1, 999),
        ("arc_begin", 1, 10**6),
        ("arc_begin", -1, 1),
    ],
)
def test_arrays_that_lead_outside_are_refused(worked, name, at, value):
    """Arrays of a damaged file that was opened without a full check."""
    arrays = Arrays(*(array.copy() for array in worked[0].arrays))
    getattr(arrays, name)[at] = value
    refuses(ValueError, lambda: ResidentModels([changed(worked[0], arrays=arrays)], DEVICE), "model")


def test_too_many_states_are_refused(worked):
    model = changed(worked[0], core=SimpleNamespace(num_states=2**30 + 2))
    refuses(ValueError, lambda: ResidentModels([model] * 2, DEVICE), "models", "2^31", "2147483650")


def changed(model, **parts):
    """The part of a model that is read."""
    names = ("arrays", "core", "order", "vocab_size")
    return SimpleNamespace(**{name: getattr(model, name) for name in names} | parts)
