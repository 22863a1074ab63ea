"""Trees as passes: the worked example by hand, trees in tensors, and the loop that drafts with kernels."""

import inspect
import re
from textwrap import indent

import numpy as np
import pytest
import torch
from support.tiny_blockwise import END, V, text, trained

from rescore import HeadsLattice, Options, Rescorer, TreeDrafter, generate
from rescore.decode.draft.heads_lattice import TensorRescorer
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget
from rescore.lattice.tensors import TensorSausage
from rescore.lm.build.in_memory import build
from rescore.lm.model import example

TREE = Rescorer(example.model(), alpha=1.0).tree(example.sausage(), example.HISTORY, n=5)
CPU = torch.device("cpu")
LM = build([text(3000, seed=5)], vocab_size=V, end_of_text=END, order=3)


def test_the_best_tree_by_hand():
    lines = re.findall(r"q\((.*)\) += (.*) = ([\d.]+)$", inspect.getdoc(Rescorer.tree), re.M)
    assert len(lines) == TREE.size
    for node, (prefix, sum_, q) in enumerate(lines):
        assert prefix == " ".join(example.WORDS[x] for x in TREE.tokens[TREE.path_to(node)])
        parent, _, share = sum_.rpartition(" times ")
        part, whole = (eval(one) for one in share.split(" of "))
        assert np.exp(TREE.logq[node]) == pytest.approx(float(parent or 1) * part / whole, abs=5e-4)
        assert float(q) == pytest.approx(np.exp(TREE.logq[node]), abs=5e-4)


def test_a_tree_in_a_pass():
    block = TreeLayout().lay([TREE], [example.STOP], [3], CPU).block
    assert block.seen()[0, 0, :, :3].all()
    names = [example.WORDS[x] for x in block.ids[0]]
    rows = zip(names, block.depths[0].tolist(), block.positions[0].tolist(), block.seen()[0, 0, :, 3:].tolist())
    lines = [
        f"{'  ' * max(0, depth - 1) + name:13}{column:<8}{position:<11}{' '.join('FT'[x] for x in seen)}"
        for column, (name, depth, position, seen) in enumerate(rows)
    ]
    assert indent("\n".join(lines), "    ") in inspect.getdoc(TreeLayout)


def test_trees_in_tensors_are_laid_as_trees():
    """Of different sizes, so that there is padding."""
    ids = torch.tensor([[[1, 2], [3, 4]], [[5, -1], [-1, -1]], [[-1, -1], [-1, -1]]], dtype=torch.int32)
    sausage = TensorSausage(ids=ids, cost=torch.where(ids < 0, torch.inf, torch.tensor([0.5, 1.5])))
    histories = torch.tensor([[1], [2], [3]], dtype=torch.int32)
    trees = TensorRescorer(Rescorer(LM, alpha=1.0)).trees(sausage, histories, 6)
    found = TreeLayout().lay_tensors(trees, torch.tensor([7, 8, 9]), torch.tensor([3, 0, 5]), 12)
    wanted = TreeLayout().lay([trees.host()[b] for b in range(3)], [7, 8, 9], [3, 0, 5], CPU).block
    assert found.end == 12 and wanted.end == 5 + 7
    for name in ("ids", "start", "depths", "ancestors"):
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels are compiled here: test_cuda.py has this on the GPU")
def test_the_loop_with_kernels_writes_the_text_of_the_target(monkeypatch):
    pytest.importorskip("triton")
    from support.device_rescorer import device_rescorer

    opened = []

    def on(tensors, device):
        opened.append(device)
        return device_rescorer(tensors._rescorer)

    monkeypatch.setattr("rescore.decode.draft.heads_lattice.has_kernels", lambda device: True)
    monkeypatch.setattr(TensorRescorer, "on", on)
    model = trained()
    slots, rescorer = HeadsLattice(heads=BlockwiseHeads(model), top_k=4), Rescorer(LM, alpha=0.5)
    prompts, options = [text(12, seed=70).astype(np.int64)], Options(max_tokens=8)
    (found,) = generate(BlockwiseTarget(model), prompts, TreeDrafter(slots, rescorer, nodes=6), options)
    assert set(opened) == {CPU} and sum(found.statistics.accepted) > 0
    (plain,) = generate(BlockwiseTarget(model), prompts, None, options)
    assert found.tokens.tolist() == plain.tokens.tolist()
