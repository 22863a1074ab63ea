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


def test_tensors_are_answered_in_tensors(worked):
    rescorer, batch = Rescorer(worked[0], alpha=0.5), Sausage.batch([worked[1]])
    found = TensorRescorer(rescorer).trees(TensorSausage.of(batch, CPU), torch.from_numpy(HISTORY), 9)
    wanted = rescorer.trees(batch, HISTORY, 9)
    for name in ("tokens", "parents", "depths", "logq", "count"):
        assert np.array_equal(getattr(found, name).numpy(), getattr(wanted, name)), name
    assert np.array_equal(found.ancestor_mask()[0].numpy(), wanted[0].ancestor_mask())
    assert found.position_ids(torch.tensor([4])).tolist() == (found.depths + 4).tolist()
    single = TensorRescorer(rescorer).trees(TensorSausage.of(worked[1], CPU), torch.from_numpy(HISTORY[0]), 2)
    assert np.array_equal(single.tokens[0].numpy(), wanted.tokens[0, :2])


@pytest.mark.parametrize("n", [1, 2, 40, 64])
def test_masks_of_chains(n):
    tree = TokenTree.from_drafts(np.arange(n, dtype=np.int32)[None])
    columns = (tree.tokens, tree.parents, tree.depths, np.zeros(n, np.float32), np.array(n, np.int32))
    trees = TensorTrees.of(Trees.of_core(tuple(column[None] for column in columns)))
    assert np.array_equal(trees.ancestor_mask()[0].numpy(), tree.ancestor_mask())


def test_the_candidates_of_logits():
    logits = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(0))
    found, wanted = TensorSausage.from_logits(logits, 7), Sausage.from_logits(logits, 7)
    assert np.array_equal(found.ids.numpy(), wanted.ids) and np.abs(found.cost.numpy() - wanted.cost).max() < 1e-5


def test_refusals(worked):
    rescorer = Rescorer(worked[0], alpha=1.0)
    refuses(ValueError, lambda: TensorRescorer(rescorer).on(torch.device("meta")), "rescoring")
    refuses(ValueError, lambda: TensorRescorer(Rescorer(worked[0])), "rescorer")  # a calibrated q


@pytest.mark.parametrize("call", ["tree", "trees", "paths", "normalise"])
def test_a_rescorer_takes_arrays(worked, call):
    with refused(TypeError, "TensorSausage", call):
        getattr(Rescorer(worked[0], alpha=1.0), call)(TensorSausage.of(worked[1], CPU), HISTORY[0])
