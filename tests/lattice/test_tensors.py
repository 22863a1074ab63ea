"""Lattices in tensors on the CPU: the native core reads their memory, and answers as it does to arrays."""

import numpy as np
import pytest
import torch
from support.refusals import refused, refuses

from rescore.decode.draft.heads_lattice import TensorRescorer
from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.sausage import Sausage
from rescore.lattice.tensors import TensorSausage, TensorTrees
from rescore.lattice.tree import TokenTree, Trees
from rescore.lm.model import example

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


def test_tensors_are_answered_in_tensors(worked, batch):
    rescorer = Rescorer(worked[0], alpha=0.5)
    tensors, history = TensorSausage.of(batch, CPU), torch.from_numpy(HISTORY)
    trees = TensorRescorer(rescorer).trees(tensors, history, 9)
    equal(trees, rescorer.trees(batch, HISTORY, 9), ("tokens", "parents", "depths", "logq", "count"))
    assert np.array_equal(trees.ancestor_mask()[0].numpy(), rescorer.trees(batch, HISTORY, 9)[0].ancestor_mask())
    assert trees.position_ids(torch.tensor([4])).tolist() == (trees.depths + 4).tolist()


@pytest.mark.parametrize("n", [1, 2, 40, 64])
def test_masks_of_chains(n):
    tree = TokenTree.from_drafts(np.arange(n, dtype=np.int32)[None])
    columns = (tree.tokens, tree.parents, tree.depths, np.zeros(n, np.float32), np.array(n, np.int32))
    trees = TensorTrees.of(Trees.of_core(tuple(column[None] for column in columns)))
    assert np.array_equal(trees.ancestor_mask()[0].numpy(), tree.ancestor_mask())


def test_a_single_sausage(worked):
    model, sausage = worked
    rescorer, single = TensorRescorer(Rescorer(model, alpha=1.0)), TensorSausage.of(sausage, CPU)
    assert rescorer.trees(single, torch.from_numpy(HISTORY[0]), 2).tokens.shape == (1, 2)


def test_the_candidates_of_logits():
    logits = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(0))
    found, wanted = TensorSausage.from_logits(logits, 7), Sausage.from_logits(logits, 7)
    assert np.array_equal(found.ids.numpy(), wanted.ids) and np.abs(found.cost.numpy() - wanted.cost).max() < 1e-5


def test_a_device_without_kernels_is_refused(worked):
    refuses(ValueError, lambda: TensorRescorer(Rescorer(worked[0], alpha=1.0)).on(torch.device("meta")), "rescoring")


def test_a_calibrated_q_has_no_trees_in_tensors(worked):
    refuses(ValueError, lambda: TensorRescorer(Rescorer(worked[0])), "rescorer")


@pytest.mark.parametrize("call", ["tree", "trees", "paths", "normalise"])
def test_a_rescorer_takes_arrays(worked, call):
    with refused(TypeError, "TensorSausage", call):
        getattr(Rescorer(worked[0], alpha=1.0), call)(TensorSausage.of(worked[1], CPU), HISTORY[0])
