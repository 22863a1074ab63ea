"""Drafting without the host: trees in tensors as blocks, and the loop with kernels (interpreted without a GPU)."""

import numpy as np
import pytest
import torch
from support.tiny_blockwise import END, V, text, trained

from rescore import NGram, Options, Rescorer, TreeDrafter, generate
from rescore.decode.draft.heads_lattice import HeadsLattice, TensorRescorer
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget
from rescore.lattice.tensors import TensorSausage
from rescore.lm.build.in_memory import build

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def lm() -> NGram:
    return build([text(3000, seed=5)], vocab_size=V, end_of_text=END, order=3)


def test_trees_in_tensors_are_laid_as_trees(lm):
    """Of different sizes, so that there is padding."""
    ids = torch.tensor([[[1, 2], [3, 4]], [[5, -1], [-1, -1]], [[-1, -1], [-1, -1]]], dtype=torch.int32)
    cost = torch.where(ids < 0, torch.inf, torch.tensor([0.5, 1.5]))
    trees = TensorRescorer(Rescorer(lm, alpha=1.0)).trees(
        TensorSausage(ids=ids, cost=cost), torch.tensor([[1], [2], [3]], dtype=torch.int32), 6
    )
    found = TreeLayout().lay_tensors(trees, torch.tensor([7, 8, 9]), torch.tensor([3, 0, 5]), 12)
    wanted = TreeLayout().lay([trees.host()[b] for b in range(3)], [7, 8, 9], [3, 0, 5], CPU).block
    assert found.end == 12 and wanted.end == 5 + 7
    for name in ("ids", "start", "depths", "ancestors"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name


@pytest.fixture
def with_kernels(monkeypatch):
    """Rescoring by kernels on whatever device the tests have."""
    pytest.importorskip("triton")
    from support.device_rescorer import device_rescorer

    opened = []

    def on(tensors, device):
        opened.append(device)
        return device_rescorer(tensors._rescorer)

    monkeypatch.setattr("rescore.decode.draft.heads_lattice.has_kernels", lambda device: True)
    monkeypatch.setattr(TensorRescorer, "on", on)
    return opened


def test_the_loop_with_kernels_writes_the_text_of_the_target(lm, with_kernels):
    if torch.cuda.is_available():
        pytest.skip("the kernels are compiled here: test_cuda.py has this on the GPU")
    model = trained()
    slots, rescorer = HeadsLattice(heads=BlockwiseHeads(model), top_k=4), Rescorer(lm, alpha=0.5)
    prompts, options = [text(12, seed=70).astype(np.int64)], Options(max_tokens=8)
    (found,) = generate(BlockwiseTarget(model), prompts, TreeDrafter(slots, rescorer, nodes=6), options)
    assert set(with_kernels) == {CPU} and sum(found.statistics.accepted) > 0
    (plain,) = generate(BlockwiseTarget(model), prompts, None, options)
    assert found.tokens.tolist() == plain.tokens.tolist()
