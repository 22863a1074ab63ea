"""Lattices of a small model that grow by what q drafts: against the model reading each path by itself."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs
from support.refusals import refuses
from support.steps import texts_of

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.20")

from support import tiny_transformers
from support.tiny_transformers import V

from rescore import Options, generate
from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.model_lattice import MODEL, ModelLattice
from rescore.decode.loop.request import Request
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.reader import Reader
from rescore.lattice.tree import TokenTree, Trees

DRAW = np.random.default_rng(3)
SURE = structs.replace(MODEL, alpha=(0.1,), floor=(3.0,))  # of so few ids
PROMPTS = [DRAW.integers(3, V, n).astype(np.int64) for n in (9, 4, 14)]


def random_tree(nodes: int, depth: int) -> TokenTree:
    """Siblings have different tokens."""
    tokens, parents, depths = list[int](), list[int](), list[int]()
    while len(tokens) < nodes:
        parent, token = int(DRAW.integers(-1, len(tokens))), int(DRAW.integers(3, V))
        level = 1 if parent < 0 else depths[parent] + 1
        if level <= depth and (parent, token) not in zip(parents, tokens):
            tokens.append(token)
            parents.append(parent)
            depths.append(level)
    return TokenTree.from_parents(tokens, parents)


def logp_by_hand(model, tokens, vocab_size=V) -> np.ndarray:
    """After a text that is read anew, float64 [V]; -inf where the model has no such token."""
    known = [token for token in tokens if token < model.config.vocab_size]
    with torch.no_grad():
        found = model(torch.tensor([known])).logits[0, -1].double().log_softmax(dim=-1).numpy()
    return np.append(found, np.full(vocab_size - len(found), -np.inf))


@pytest.mark.parametrize("family, context", [("llama", None), ("gemma2", None), ("llama", 24)])
def test_a_reader_reads_trees_and_keeps_the_paths_that_texts_take(family, context):
    """Over several steps, of ragged texts some of which end; also in a context that the texts outgrow."""
    model = tiny_transformers.shared(family)
    small = CausalLMTarget(model)
    small.context = context or small.context
    texts = texts_of([prompt.astype(np.int32) for prompt in PROMPTS])
    reader = Reader(small, PROMPTS, ahead=4, vocab_size=V)
    for round in range(5):
        active = texts if round < 3 else texts[1:]
        reader.sync(active)
        trees = [random_tree(int(DRAW.integers(0, 9)), depth=4) for _ in active]
        found = reader.read_trees(trees).double().log_softmax(dim=-1).numpy()
        for row, (text, tree) in enumerate(zip(active, trees)):
            begin = reader._origin(text.size)
            for node in range(-1, tree.size):
                path = [*text.tokens[begin:].tolist(), *tree.tokens[tree.path_to(node)].tolist()]
                np.testing.assert_allclose(found[row, 1 + node], logp_by_hand(model, path), atol=1e-4)
            leaf = int(DRAW.integers(-1, tree.size)) if tree.size else -1
            text.append([*tree.tokens[tree.path_to(leaf)].tolist(), int(DRAW.integers(3, V))])


def test_accepted_nodes_are_not_read_again():
    small, widths = CausalLMTarget(tiny_transformers.shared("llama")), []
    read = small.read
    small.read = lambda block, cache: widths.append(block.width) or read(block, cache)
    (text,) = texts_of([PROMPTS[0].astype(np.int32)])
    reader = Reader(small, PROMPTS[:1], ahead=4, vocab_size=V)
    reader.sync([text])
    tree = TokenTree.from_parents([5, 6, 7, 8], [-1, 0, -1, 1])
    reader.read_trees([tree])
    text.append([5, 6, 8, 9])
    widths.clear()
    reader.sync([text])
    assert widths == [1]


def step_of(texts) -> DraftStep:
    return DraftStep(texts=texts, room=[30] * len(texts))


@pytest.mark.parametrize("fewer", [0, 7])
def test_lattices_hold_what_the_model_predicts(fewer):
    """Of a model with fewer ids than the target, too: an arc has the token of each node that it can read."""
    model, vocab_size = tiny_transformers.shared("llama"), V + fewer
    lattice = ModelLattice(model=CausalLMTarget(model), vocab_size=vocab_size, top_k=3, levels=(4,))
    session, texts = lattice.open(2), texts_of([prompt.astype(np.int32) for prompt in PROMPTS[:2]])
    first = session.begun(step_of(texts))
    assert first.ids.shape == (2, 1, 3) and (first.next == -1).all()
    trees = [random_tree(n, depth=3) for n in (5, 3)]
    grown = session.grown(Trees.joined(trees))
    for row, (text, tree) in enumerate(zip(texts, trees)):
        for state in range(1 + tree.size):
            path = tree.path_to(state - 1)
            logp = logp_by_hand(model, [*text.tokens, *tree.tokens[path]], vocab_size)
            ids, cost = grown.ids[row, state], grown.cost[row, state]
            used = ids >= 0
            np.testing.assert_allclose(cost[used], -logp[ids[used]], atol=1e-4)
            assert set(np.argsort(-logp)[:3]) <= set(ids[used].tolist()) and len(set(ids[used])) == used.sum()
            children = {int(tree.tokens[n]): 1 + n for n in range(tree.size) if tree.parents[n] == state - 1}
            assert {
                int(ids[i]): int(grown.next[row, state, i]) for i in np.flatnonzero(grown.next[row, state] >= 0)
            } == (children)


def test_texts_are_the_targets_and_the_small_model_is_followed():
    """The target as its own small model is right as far as it reads; another one changes no text."""
    target, other = (CausalLMTarget(tiny_transformers.shared(name)) for name in ("llama", "llama-tied"))
    requests = [Request(prompt=prompt, max_tokens=25 - 6 * i) for i, prompt in enumerate(PROMPTS)]
    plain = generate(target, requests, None, Options())
    passes = {}
    for model in (None, other, target):
        lattice = model and ModelLattice(model=model, vocab_size=V, top_k=4, levels=(3, 6))
        drafter = blended_drafter(target, lattice=lattice, calibration=model and SURE, nodes=12)
        drafted = generate(target, requests, drafter, Options())
        assert [one.tokens.tolist() for one in drafted] == [one.tokens.tolist() for one in plain]
        passes[model] = sum(one.statistics.passes for one in drafted)
    assert passes[target] < min(passes[None], passes[other])


def test_misuse():
    chains = CausalLMTarget(tiny_transformers.shared("llama"))
    refuses(ValueError, lambda: ModelLattice(model=chains, vocab_size=V, top_k=40), "top_k", "32", "40")
    refuses(ValueError, lambda: ModelLattice(model=chains, vocab_size=V, levels=(0,)), "levels", "0")
    chains.trees = False
    refuses(ValueError, lambda: ModelLattice(model=chains, vocab_size=V), "trees", "chains", "attention alone")
