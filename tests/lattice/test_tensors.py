"""Lattices in tensors on the CPU: the native core reads their memory, and answers as it does to arrays."""

import re

import numpy as np
import pytest
from support.paths import ROOT

from rescore.lm import example

torch = pytest.importorskip("torch")

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.sausage import Sausage
from rescore.lattice.tensors import TensorSausage, TensorTrees
from rescore.lattice.tree import TokenTree
from rescore.lattice.trees import Trees

CPU = torch.device("cpu")
HISTORY = np.array([example.HISTORY], np.int32)


@pytest.fixture
def batch(worked) -> Sausage:
    return Sausage.batch([worked[1]])


def equal(found, wanted, names):
    for name in names:
        assert np.array_equal(getattr(found, name).numpy(), getattr(wanted, name)), name


def test_the_native_core_reads_the_tensors_memory(batch):
    tensors = TensorSausage.of(batch, CPU)
    host = tensors.host()
    assert np.shares_memory(host.ids, batch.ids) and host.ids.ctypes.data == tensors.ids.data_ptr()
    assert np.shares_memory(host.cost, batch.cost) and host.cost.ctypes.data == tensors.cost.data_ptr()


@pytest.mark.parametrize("semantics", ["failure", "epsilon"])
def test_tensors_are_answered_in_tensors(worked, batch, semantics):
    rescorer = Rescorer(worked[0], alpha=0.5)
    tensors, history = TensorSausage.of(batch, CPU), torch.from_numpy(HISTORY)
    drafts = rescorer.paths(tensors, history, 3, semantics=semantics)
    equal(drafts, rescorer.paths(batch, HISTORY, 3, semantics=semantics), ("tokens", "cost", "count"))
    assert drafts.exact.all() and not drafts.invalid.any()
    trees = rescorer.trees(tensors, history, 9)
    equal(trees, rescorer.trees(batch, HISTORY, 9), ("tokens", "parents", "depths", "logq", "count"))
    assert np.array_equal(trees.ancestor_mask()[0].numpy(), rescorer.trees(batch, HISTORY, 9)[0].ancestor_mask())
    assert trees.position_ids(torch.tensor([4])).tolist() == (trees.depths + 4).tolist()


@pytest.mark.parametrize("n", [1, 2, 40, 64])
def test_masks_of_chains(n):
    tree = TokenTree.from_drafts(np.arange(n, dtype=np.int32)[None])
    columns = (tree.tokens, tree.parents, tree.depths, np.zeros(n, np.float32), np.array(n, np.int32))
    trees = TensorTrees.of(Trees.of_core(tuple(column[None] for column in columns)))
    assert np.array_equal(trees.ancestor_mask()[0].numpy(), tree.ancestor_mask())


@pytest.mark.parametrize("local", [False, True])
def test_distributions(worked, batch, local):
    rescorer = Rescorer(worked[0], alpha=1.0)
    found = rescorer.normalise(TensorSausage.of(batch, CPU), torch.from_numpy(HISTORY), temperature=0.5, local=local)
    wanted = rescorer.normalise(batch, HISTORY, temperature=0.5, local=local)
    uniforms = np.random.default_rng(0).random((1, 4, 3))
    drawn = found.sample(torch.from_numpy(uniforms))
    equal(drawn, wanted.sample(uniforms), ("tokens", "q", "ids", "logq", "lengths"))
    assert np.array_equal(found.rows(drawn.tokens).numpy(), wanted.rows(drawn.tokens.numpy()))
    assert np.array_equal(found.logq(drawn.tokens).numpy(), wanted.logq(drawn.tokens.numpy()))
    equal(found.trees(5), wanted.trees(5), ("tokens", "parents", "depths", "logq", "count"))
    assert (
        found.exact.all()
        and (found.log_mass.isnan() if local else found.log_mass == torch.from_numpy(wanted.log_mass)).all()
    )


def test_a_single_sausage(worked):
    model, sausage = worked
    rescorer, single = Rescorer(model, alpha=1.0), TensorSausage.of(sausage, CPU)
    assert rescorer.paths(single, torch.from_numpy(HISTORY[0]), 2).tokens.shape == (2, 3)
    assert rescorer.trees(single, torch.from_numpy(HISTORY[0]), 2).tokens.shape == (1, 2)
    assert rescorer.normalise(single, torch.from_numpy(HISTORY[0])).sample(
        torch.zeros(1, 2, 3, dtype=torch.float64)
    ).tokens.shape == (1, 2, 3)


def test_the_candidates_of_logits():
    logits = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(0))
    found, wanted = TensorSausage.from_logits(logits, 7), Sausage.from_logits(logits, 7)
    assert np.array_equal(found.ids.numpy(), wanted.ids) and np.abs(found.cost.numpy() - wanted.cost).max() < 1e-5


def test_a_device_without_kernels_is_refused(worked):
    with pytest.raises(
        ValueError,
        match=(
            r"rescoring on meta: expected a CUDA device and the package triton \(pip install .*triton.*\); "
            r"move the tensors to the CPU"
        ),
    ):
        Rescorer(worked[0]).on(torch.device("meta"))


def test_one_tree_is_one_of_arrays(worked):
    with pytest.raises(
        TypeError,
        match="tree: expected a Sausage of arrays, got TensorSausage; use trees, whose result stays on the device",
    ):
        Rescorer(worked[0], alpha=1.0).tree(TensorSausage.of(worked[1], CPU), HISTORY[0])


def test_capacity_is_checked():
    with pytest.raises(ValueError, match="capacity: expected 1 to 65536, got 0"):
        Rescorer(capacity=0)


def test_the_page_s_example(demo, monkeypatch):
    page = (ROOT / "docs/use/gpu.md").read_text(encoding="utf-8")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    names: dict = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.S)[0], names)
    assert (
        names["trees"].tokens.shape == (2, 64)
        and names["mask"].shape == (2, 64, 64)
        and names["positions"].shape == (2, 64)
    )
    assert names["drafts"].tokens.shape == (2, 16, 8) and names["drawn"].q.shape == (2, 4, 8, 16)
