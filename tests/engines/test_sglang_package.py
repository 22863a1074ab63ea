"""The plug-in in SGLang itself, as far as it runs without a GPU: registry, tree functions, arguments of the worker.
Runs where SGLang is installed (`make check-engines`).
"""

import importlib.abc
import importlib.machinery
import os
import re
import subprocess
import sys
from array import array
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from support.refusals import refuses

pytest.importorskip("sglang.srt.speculative.spec_info")
torch = pytest.importorskip("torch")


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stubs of packages that SGLang imports and that need a GPU; nothing in them is called here."""

    names = ("sgl_kernel", "torchvision", "flashinfer", "xgrammar", "torchao", "torchcodec", "decord")

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name.split(".")[0] in self.names else None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Absent())  # last, after the finders of installed packages

import sglang
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from rescore import TextDrafter
from rescore.decode.engines.plugin import VARIABLE, EmptyOnError
from rescore.decode.engines.sglang.plugin import NAME, register
from rescore.decode.engines.sglang.rows import RequestTexts, tree_arrays
from rescore.decode.engines.text_drafter import DraftRow
from rescore.lattice.tree import TokenTree

SOURCES = Path(sglang.__file__).parent
DRIVER = r"""
#include "result.h"
#include <iostream>
using namespace sglang::ngram;
int main() {  // last token, n, nodes, then token and parent of each; node 0 of `tree` is the root
  int last, n, size;
  while (std::cin >> last >> n >> size) {
    std::vector<Node> tree(size + 1);
    for (int i = 1; i <= size; ++i) {
      int token, parent;
      std::cin >> token >> parent;
      tree[parent + 1].next[token] = i;
    }
    Result found = fillResult(last, n, tree, 0);
    for (int token : found.token) std::cout << token << ' ';
    for (int one : found.mask) std::cout << one << ' ';
    std::cout << '\n';
  }
}
"""


@pytest.fixture(scope="module", autouse=True)
def registered():
    refuses(ValueError, lambda: SpeculativeAlgorithm.from_string(NAME), NAME)
    register()


def random_tree(seed, n):
    """A tree of fewer than n nodes with distinct tokens."""
    draw = np.random.default_rng(seed)
    size = int(draw.integers(0, n))
    parents = [-1, *(int(draw.integers(-1, node)) for node in range(1, size))][:size]
    return TokenTree.from_parents((1 + draw.permutation(50)[:size]).tolist(), parents)


def in_order(tree, tokens):
    """The same tree with its nodes in the order of these tokens."""
    nodes = [tree.tokens.tolist().index(token) for token in tokens]
    parents = [-1 if tree.parents[node] < 0 else nodes.index(tree.parents[node]) for node in nodes]
    return TokenTree.from_parents(tree.tokens[nodes].tolist(), parents)


def test_sglang_knows_the_algorithm():
    algorithm = SpeculativeAlgorithm.from_string(NAME)
    assert algorithm.name == NAME and algorithm.supports_overlap
    predicates = [name for name in vars(SpeculativeAlgorithm) if re.match("is_|supports_|has_", name)]
    assert "is_ngram" in predicates and algorithm.is_ngram() and algorithm.is_speculative()
    for name in predicates:
        same = getattr(algorithm, name)() == getattr(SpeculativeAlgorithm.NGRAM, name)()
        assert same or name == "supports_mixed_chunk", name


def test_arrays_are_those_of_its_own_worker(tmp_path):
    """SGLang's own C++ fills equal tokens and masks for the same trees."""
    folder = SOURCES / "kernels/jit/csrc/ngram_corpus"
    (tmp_path / "driver.cc").write_text(DRIVER)
    program = tmp_path / "driver"
    words = f"g++ -std=c++20 -I{folder} {program}.cc {folder}/result.cpp -o {program}"
    subprocess.run(words.split(), check=True)
    trees = [random_tree(seed, 12) for seed in range(40)]
    lines = [
        " ".join(map(str, [row, 12, tree.size, *np.stack([tree.tokens, tree.parents]).T.ravel()]))
        for row, tree in enumerate(trees)
    ]
    said = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    theirs = np.array([line.split() for line in said.splitlines()], np.int64)
    # Level by level, siblings in the order of a hash table.
    ordered = [in_order(tree, row[1 : 1 + tree.size]) for tree, row in zip(trees, theirs)]
    tokens, mask = tree_arrays(ordered, range(40), 12)
    assert np.array_equal(theirs[:, :12], tokens.reshape(40, 12))
    assert np.array_equal(theirs[:, 12:], mask.reshape(40, 144))


@pytest.mark.skipif("TRITON_INTERPRET" not in os.environ, reason="TRITON_INTERPRET=1 runs the kernel on the CPU")
def test_its_kernel_finds_positions_and_links():
    from sglang.kernels.ops.speculative.reconstruct_tree import reconstruct_indices_from_tree_mask_triton
    from sglang.srt.speculative.ngram_worker import _derive_tree_links

    trees, n = [random_tree(seed, 12) for seed in range(6)], 12
    _, mask = tree_arrays(trees, [0] * 6, n)
    lengths = torch.arange(10, 16)
    positions, index, child, sibling = (torch.full((6 * n,), -7, dtype=torch.int64) for _ in range(4))
    reconstruct_indices_from_tree_mask_triton(
        torch.from_numpy(mask).bool(), lengths, positions, index, child, sibling, 6, n
    )
    assert index.tolist() == list(range(6 * n))
    links = _derive_tree_links(mask, 6, n)
    assert torch.equal(links[0].flatten(), child) and torch.equal(links[1].flatten(), sibling)
    for row, tree in enumerate(trees):
        wanted = [10 + row, *(10 + row + tree.depths).tolist(), *[11 + row] * (n - 1 - tree.size)]
        assert positions.view(6, n)[row].tolist() == wanted
        parents = tree.parents.tolist()
        children = [1 + parents.index(node) if node in parents else -1 for node in range(tree.size)]
        assert child.view(6, n)[row, 1 : 1 + tree.size].tolist() == children


def request(rid, prompt, output):
    prompt, output = array("q", prompt), array("q", output)
    return SimpleNamespace(rid=rid, origin_input_ids_unpadded=prompt, output_ids=output, grammar=None)


def batch_of(requests, accepted):
    tokens = torch.zeros(len(requests), 8, dtype=torch.int64)
    for row, one in zip(tokens, accepted, strict=True):
        row[: len(one)] = torch.tensor(one)
    spec = SimpleNamespace(accept_tokens=tokens.flatten(), accept_lens=torch.tensor([len(one) for one in accepted]))
    return SimpleNamespace(reqs=requests, spec_info=spec, grammar_needs_sync=lambda: False)


@pytest.mark.parametrize("overlap", [False, True])
def test_the_worker_drafts_what_the_drafter_does(overlap):
    """Two requests over three steps; one leaves. With overlap scheduling, requests lack the tokens accepted last."""
    from rescore.decode.engines.sglang.worker import RescoreWorker

    worker, alone, draw = object.__new__(RescoreWorker), TextDrafter(vocab_size=60), np.random.default_rng(0)
    worker.enable_overlap, worker.draft_token_num = overlap, 8
    worker.ngram_corpus = RequestTexts(EmptyOnError(TextDrafter(vocab_size=60)))
    texts = {rid: np.concatenate([draw.integers(0, 60, 30)] * 3).astype(np.int32) for rid in "ab"}
    ends = {"a": 40, "b": 45}
    for rids, added in (("ab", 3), ("ba", 1), ("b", 5)):
        held = {rid: texts[rid][30 : ends[rid] + (0 if overlap else added)].tolist() for rid in rids}
        accepted = [texts[rid][ends[rid] : ends[rid] + added].tolist() for rid in rids]
        batch = batch_of([request(rid, texts[rid][:30].tolist(), held[rid]) for rid in rids], accepted)
        ends.update((rid, ends[rid] + added) for rid in rids)
        tokens, mask = worker._prepare_draft_tokens(batch)
        trees = alone.trees([DraftRow.of_tokens(texts[rid][: ends[rid]], rid) for rid in rids], 7, depth=7)
        wanted = tree_arrays(trees, [int(texts[rid][ends[rid] - 1]) for rid in rids], 8)
        assert np.array_equal(tokens, wanted[0]) and np.array_equal(mask, wanted[1])
        assert all(tree.size == 7 for tree in trees)
    worker._update_ngram_corpus(batch)
    worker.ngram_corpus.erase_match_state(["a"])
    assert worker.ngram_corpus.drafter.drafter.texts == 1
    worker.clear_cache_pool()
    assert worker.ngram_corpus.drafter.drafter.texts == 0


def test_what_the_worker_asks_of_its_corpus_is_there(monkeypatch):
    monkeypatch.setenv(VARIABLE, '{"memory": true}')
    source = (SOURCES / "srt/speculative/ngram_worker.py").read_text()
    asked = set(re.findall(r"self\.ngram_corpus\.(\w+)\(", source)) - {"batch_get", "batch_put", "synchronize"}
    assert asked and all(hasattr(RequestTexts, name) for name in asked)
