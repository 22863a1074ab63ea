"""Sausages: made from logits and top-k arrays; refusals by name and position; the oracle, against a loop over slots.
In tensors on the CPU the native core reads their memory, and answers as it does to arrays.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import forms
from support.paths import ROOT
from support.refusals import refused, refuses

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.sausage import Sausage, oracle_by_width, oracle_lengths, ranks
from rescore.lm.model import example


@pytest.mark.parametrize("value,name", [(np.nan, "NaN"), (np.inf, "+inf")])
def test_bad_logits_are_named(value, name, monkeypatch):
    monkeypatch.setattr("rescore.lattice.top.BLOCK_BYTES", 4 * 5 * 2)
    logits = np.zeros((2, 3, 5), np.float16)
    logits[1, 2, 4] = value
    refuses(ValueError, lambda: Sausage.from_logits(logits, 2), "logits[1, 2, 4]", name)


def test_from_logits_refuses():
    refuses(TypeError, lambda: Sausage.from_logits(np.zeros((2, 5), np.int64), 1), "int64", "bfloat16", "float64")
    floats = np.zeros((2, 500), np.float32)
    refuses(ValueError, lambda: Sausage.from_logits(floats[:, :5], 6), "1..V", "5", "6")
    refuses(ValueError, lambda: Sausage.from_logits(floats, 65), "k", "1..64", "65")
    refuses(ValueError, lambda: Sausage.from_logits(floats[0], 1), "logits", "[..., T, V]", "[500]")
    few = np.array([[-np.inf, 1.0, -np.inf, 2.0]], np.float32)
    assert Sausage.from_logits(few, 2).ids.tolist() == [[3, 1]]
    refuses(ValueError, lambda: Sausage.from_logits(few, 3), "logits[0, 0]", "-inf", "3", "2")
    refuses(ValueError, lambda: Sausage.from_logits(few[:, :1], 1), "logits[0, 0]", "-inf")


def test_the_worked_example():
    sausage = Sausage.from_topk(example.IDS, -np.array(example.COST), vocab_size=len(example.WORDS))
    assert (sausage.slots, sausage.width, sausage.is_batch) == (3, 2, False)
    assert [example.WORDS[i] for i in sausage.first] == ["Lionel", "Ronaldo", "scored"]
    np.testing.assert_allclose(sausage.cost, example.COST, rtol=1e-6)
    assert sausage.top_k(1).ids.tolist() == [[0], [3], [4]]
    assert sausage.head(2).slots == 2
    truth = np.array([example.LIONEL, example.MESSI, example.STOP, example.STOP])
    assert ranks(sausage, truth).tolist() == [0, 1, 1]
    assert oracle_by_width(sausage, truth).tolist() == [1, 3]
    assert ranks(sausage, truth[:1]).tolist() == [0, -1, -1]
    assert int(oracle_lengths(sausage, truth)) == 3


def test_from_topk_sorts_by_logp_and_keeps_the_order_of_ties():
    sausage = Sausage.from_topk([[5, 3, 9, -1, 7]], np.array([[-2.0, -1.0, -2.0, 0.0, -0.5]], np.float16))
    assert sausage.ids.tolist() == [[7, 3, 5, 9, -1]]
    assert sausage.cost.tolist() == [[0.5, 1.0, 2.0, 2.0, np.inf]]
    assert sausage.widths.tolist() == [4]


BAD = {
    "ids": ([[1.0, 2.0]], [[-1.0, -2.0]], TypeError, ["ids", "float64"]),
    "logp dtype": ([[1, 2]], [[-1, -2]], TypeError, ["logp", "int64"]),
    "shape": ([[1, 2]], [[-1.0]], ValueError, ["logp", "[1, 2]", "[1, 1]"]),
    "dimensions": ([1, 2], [-1.0, -2.0], ValueError, ["ids", "[T, K]", "[B, T, K]", "[2]"]),
    "range": ([[1, 6]], [[-1.0, -2.0]], ValueError, ["ids[0, 1] = 6", "0..5"]),
    "negative": ([[1, -2]], [[-1.0, -2.0]], ValueError, ["ids[0, 1] = -2", "0..5"]),
    "NaN": ([[1, 2]], [[-1.0, np.nan]], ValueError, ["logp[0, 1]", "NaN"]),
    "+inf": ([[1, 2]], [[np.inf, -1.0]], ValueError, ["logp[0, 0] = inf"]),
    "-inf": ([[1, 2]], [[-1.0, -np.inf]], ValueError, ["-1"]),
    "huge": ([[1, 2]], [[-1.0, -2e6]], ValueError, ["logp[0, 1] = -2000000.0", "1e+06"]),
    "twice": ([[1, 2, 1]], [[-1.0, -2.0, -3.0]], ValueError, ["ids[0, 2] = 1"]),
    "gap": ([[1], [-1], [2]], [[-1.0], [-1.0], [-1.0]], ValueError, ["ids[1]"]),
    "long": ([[1]] * 33, [[-1.0]] * 33, ValueError, ["slots T", "1..32", "33"]),
    "empty": (np.zeros((1, 0), int), np.zeros((1, 0)), ValueError, ["candidates K", "1..64", "0"]),
}


@pytest.mark.parametrize("name", BAD)
def test_from_topk_refuses(name):
    ids, logp, kind, text = BAD[name]
    refuses(kind, lambda: Sausage.from_topk(ids, np.array(logp), vocab_size=6), *text)


@pytest.mark.parametrize(
    "ids, cost, named",
    [
        ([[1, 2]], [[2.0, 1.0]], ["cost[0, 1]"]),
        ([[1, -1]], [[1.0, 2.0]], ["cost[0, 1] = 2.0", "+inf"]),
        ([[-1, 2]], [[np.inf, 1.0]], ["ids[0, 1]"]),
        ([[1, 2]], [[np.nan, 1.0]], ["cost[0, 0]", "NaN"]),
        ([[1, 2]], [[1.0, np.inf]], ["cost[0, 1] = inf"]),
        ([[1, 2]], [[1.0]], ["cost"]),
        ([[1, -3]], [[1.0, np.inf]], ["ids[0, 1] = -3", "-1"]),
    ],
)
def test_the_constructor_refuses(ids, cost, named):
    ids, cost = np.array(ids, np.int32), np.array(cost, np.float32)
    refuses(ValueError, lambda: Sausage(ids=ids, cost=cost), *named)
    refuses(TypeError, lambda: Sausage(ids=ids.astype(np.int64), cost=cost), "ids", "int64", "int32", "from_topk")


def test_batches_of_ragged_sausages():
    short = Sausage.from_topk([[7, 8, 9]], -np.array([[1.0, 2.0, 3.0]]))
    worked = example.sausage()
    batch = Sausage.batch([worked, short])
    assert batch.ids.shape == (2, 3, 3) and batch.batch_size == 2
    assert batch.lengths.tolist() == [3, 1]
    assert batch.widths.tolist() == [[2, 2, 2], [3, 0, 0]]
    assert batch.first.tolist() == [[0, 3, 4], [7, -1, -1]]
    assert (batch[0].ids[:, :2] == worked.ids).all()
    assert batch[1].lengths == 1 and batch[:1].batch_size == 1 and batch[np.array([1, 0])].lengths.tolist() == [1, 3]
    assert [one.lengths for one in batch] == [3, 1]
    Sausage(ids=batch.ids, cost=batch.cost)  # what batch makes passes the checks


def test_what_else_is_refused():
    worked = example.sausage()
    refuses(TypeError, lambda: worked[0], "sausage")
    refuses(TypeError, lambda: worked.batch_size, "batch")
    refuses(TypeError, lambda: Sausage.batch([worked])[0, 1])
    refuses(ValueError, lambda: Sausage.batch([]), "sausages")
    refuses(ValueError, lambda: worked.top_k(0), "top_k", "1", "0")
    refuses(ValueError, lambda: worked.head(0), "head", "1", "0")
    refuses(TypeError, lambda: ranks(worked, np.array([0.0])), "truth", "float64")
    refuses(ValueError, lambda: ranks(worked, np.array([[0, 1, 2]])), "truth", "[T]", "[3, 2]", "[1, 3]")


def test_the_examples_of_the_readme():
    import doctest

    readme = ROOT / "lattice" / "README.md"
    assert doctest.testfile(str(readme), module_relative=False).failed == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_probabilities_are_no_logits(dtype):
    draw = np.random.default_rng(1)
    logits = draw.normal(0, 3, (2, 3, 500))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    refuses(ValueError, lambda: Sausage.from_logits(p.astype(dtype), 4), "probabilities")
    for ids, wrong in (
        ([[0, 1, 2]] * 2, [[0.5, 0.25, 0.25], [0.75, 0.25, 0.0]]),
        ([[0, 1], [-1, -1]], [[0.75, 0.25], [0, 0]]),
    ):
        with refused(ValueError, "logp", "probabilities"):
            Sausage.from_topk(ids, np.array(wrong, dtype))
    right = Sausage.from_logits(np.log(p).astype(dtype), 4)
    np.testing.assert_allclose(right.cost, np.sort(-np.log(p), axis=-1)[..., :4], atol=1e-2)
    for fine in (np.eye(3), np.zeros((2, 3)), np.array([[0.5, 0.4, 0.3], [0.5, 0.25, 0.25]]), -np.log(p[0, :, :3])):
        Sausage.from_logits(fine.astype(dtype), 2)
        Sausage.from_topk(np.tile(np.arange(3), (len(fine), 1)), fine.astype(dtype))


@pytest.mark.parametrize("slots", [[1], [2], [0, 2], [1, 2]])
@pytest.mark.parametrize("rows", [1, 40])
def test_probabilities_of_some_heads_are_no_logits(monkeypatch, slots, rows):
    """Such as those of extra heads that apply softmax themselves; in any block of rows."""
    logits = np.random.default_rng(2).normal(0, 3, (rows, 3, 50)).astype(np.float32)
    wrong = logits.copy()
    wrong[:, slots] = np.exp(logits[:, slots]) / np.exp(logits[:, slots]).sum(-1, keepdims=True)
    with refused(ValueError, f"[.., {slots[0]}, :]", f"head {slots[0] + 1}", "probabilities"):
        Sausage.from_logits(wrong, 4)
    monkeypatch.setattr("rescore.lattice.top.BLOCK_BYTES", 4 * 3 * 50 * 8)
    with refused(ValueError, f"head {slots[0] + 1}", "probabilities"):
        Sausage.from_logits(np.concatenate([*[logits] * 8, *[wrong] * 8]), 4)
    Sausage.from_logits(logits, 4)
    one_hot = logits.copy()
    one_hot[:, slots] = np.eye(50)[: len(slots)]
    Sausage.from_logits(one_hot, 4)


@pytest.mark.parametrize("form", forms.FLOATS)
def test_logits_and_logp_in_every_form(form):
    logits = np.float32(np.random.default_rng(3).integers(-40, 40, (2, 3, 9)) / 4)  # exact in bfloat16
    made = Sausage.from_logits(forms.FLOATS[form](logits), np.int64(4))
    np.testing.assert_array_equal(made.ids, Sausage.from_logits(logits, 4).ids)
    ids = np.argsort(-logits, axis=-1, kind="stable")[..., :4]
    logp = -np.sort(-logits, axis=-1)[..., :4]
    for change in forms.IDS.values():
        made = Sausage.from_topk(change(ids), forms.FLOATS[form](logp), vocab_size=np.int64(9))
        np.testing.assert_array_equal(made.cost, -logp)


@pytest.mark.parametrize("wrong", [None, "abc", [[[1.0]], [[1.0, 2.0]]], [[["a"]]]], ids=str)
def test_what_is_no_array_is_named(wrong):
    refuses((TypeError, ValueError), lambda: Sausage.from_logits(wrong, 1), "logits: expected", "got")
    refuses((TypeError, ValueError), lambda: Sausage.from_topk([[1]], wrong), "logp: expected", "got")
    refuses((TypeError, ValueError), lambda: Sausage.from_topk(wrong, [[-1.0]]), "ids: expected", "got")


def slow_length(sausage: Sausage, truth: list[int], k: int) -> int:
    length = 0
    for slot, token in zip(sausage.ids.tolist(), truth):
        if token < 0 or token not in slot[:k]:
            break
        length += 1
    return length


def random_sausage(rng: np.random.Generator, slots: int, width: int) -> Sausage:
    ids = np.stack([rng.permutation(6)[:width] for _ in range(slots)])
    for slot in ids:
        slot[rng.integers(1, width + 1) :] = -1
    return Sausage.from_topk(ids, np.sort(-rng.random(ids.shape))[:, ::-1].copy())


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 6))
def test_equals_a_loop(seed, slots, width):
    rng = np.random.default_rng(seed)
    parts = [random_sausage(rng, rng.integers(1, slots + 1), width) for _ in range(3)]
    truth = rng.integers(0, 6, (3, slots))
    for row in truth:
        row[rng.integers(0, slots + 1) :] = -1
    batch = Sausage.batch(parts)
    by_width = oracle_by_width(batch, truth)
    assert by_width.shape == (3, batch.width) and by_width.dtype == np.int32
    for b, part in enumerate(parts):
        want = [slow_length(part, truth[b].tolist(), k) for k in range(1, batch.width + 1)]
        assert by_width[b].tolist() == want
        assert oracle_by_width(part, truth[b]).tolist() == want[: part.width]
        assert int(oracle_lengths(part, truth[b])) == want[part.width - 1]


CPU = torch.device("cpu")
HISTORY = np.array([example.HISTORY], np.int32)


def test_from_logits_of_tensors():
    logits = torch.randn(4, 3, 60, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        tensor = logits.to(dtype)
        ours = Sausage.from_logits(tensor, 5)
        want = torch.log_softmax(tensor.detach().float(), -1)
        np.testing.assert_allclose(ours.cost, -want.gather(-1, torch.from_numpy(ours.ids).long()).numpy(), atol=1e-5)
        again = Sausage.from_topk(torch.from_numpy(ours.ids), torch.from_numpy(-ours.cost).to(dtype))
        assert (again.ids[..., 0] == ours.ids[..., 0]).all() or dtype == torch.bfloat16


@pytest.mark.parametrize("call", ["tree", "trees", "paths", "normalise"])
def test_a_rescorer_takes_arrays(worked, call):
    with refused(TypeError, "Tensor", call):
        getattr(Rescorer(worked[0], alpha=1.0), call)(torch.from_numpy(worked[1].cost), HISTORY[0])
