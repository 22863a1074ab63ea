"""Trees as passes: the worked example by hand."""

import inspect
import re
from textwrap import indent

import numpy as np
import pytest
import torch

from rescore import Rescorer
from rescore.decode.loop.layout import TreeLayout
from rescore.lm.model import example

TREE = Rescorer(example.model(), alpha=1.0).tree(example.sausage(), example.HISTORY, n=5)
CPU = torch.device("cpu")


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
