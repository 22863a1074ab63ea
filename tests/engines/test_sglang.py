"""Tree arrays and rows for SGLang's n-gram worker, against a reference written from the documentation of
`reconstruct_tree` in SGLang 0.5.23.
"""

from array import array

import numpy as np
import pytest
from support.drafts import strings
from support.refusals import refuses

from rescore import TextDrafter
from rescore.decode.engines.sglang.grammar import RequestGrammar
from rescore.decode.engines.sglang.rows import draft_row, tree_arrays
from rescore.lattice.tree import TokenTree

TREE = TokenTree.from_parents([7, 8, 9, 7], [-1, 0, -1, 2])


def reconstructed(mask, lengths, batch, n):
    """Positions, first child and next sibling [B, n] of each node, from the mask alone."""
    strict = mask.reshape(batch, n, n).astype(bool) & np.tri(n, k=-1, dtype=bool)
    positions = strict.sum(axis=2) + np.asarray(lengths)[:, None]
    parents = np.where(strict.any(axis=2), n - 1 - strict[:, :, ::-1].argmax(axis=2), -1)
    child, sibling = np.full((batch, n), -1), np.full((batch, n), -1)
    for b, node in np.ndindex(batch, n):
        later = range(node + 1, n)
        child[b, node] = next((other for other in later if strict[b, other, node]), -1)
        sibling[b, node] = next((other for other in later if parents[b, other] == parents[b, node] >= 0), -1)
    return positions, child, sibling


def test_a_worked_example():
    tokens, mask = tree_arrays([TREE, TokenTree.from_parents([], [])], [5, 6], 6)
    assert tokens.dtype == mask.dtype == np.int64
    assert tokens.tolist() == [5, 7, 8, 9, 7, 0, 6, 0, 0, 0, 0, 0]
    assert mask.reshape(2, 6, 6)[0].tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 0, 0, 1, 0, 0],
        [1, 0, 0, 1, 1, 0],
        [1, 0, 0, 0, 0, 1],
    ]
    positions, child, sibling = reconstructed(mask, [10, 20], 2, 6)
    assert positions.tolist() == [[10, 11, 12, 11, 12, 11], [20, 21, 21, 21, 21, 21]]
    assert child[0].tolist() == [1, 2, -1, 4, -1, -1] and sibling[0].tolist() == [-1, 3, -1, 5, -1, -1]
    assert child[1].tolist() == [1, -1, -1, -1, -1, -1] and sibling[1].tolist() == [-1, 2, 3, 4, 5, -1]
    refuses(ValueError, lambda: tree_arrays([TREE], [5], 4), "trees[0]", "3", "4")


@pytest.mark.parametrize("seed", range(20))
def test_the_mask_says_what_the_tree_is(seed):
    draw, n = np.random.default_rng(seed), 12
    trees = []
    for _ in range(3):
        size = int(draw.integers(0, n))
        parents = [-1, *(int(draw.integers(-1, node)) for node in range(1, size))][:size]
        trees.append(TokenTree.from_parents(draw.permutation(50)[:size].tolist(), parents))
    tokens, mask = tree_arrays(trees, [1, 2, 3], n)
    positions, child, sibling = reconstructed(mask, [4, 5, 6], 3, n)
    for row, tree in enumerate(trees):
        assert positions[row, 1 : 1 + tree.size].tolist() == (4 + row + tree.depths).tolist()
        for node in range(-1, tree.size):
            wanted = (1 + np.flatnonzero(tree.parents == node)).tolist()
            found, at = [], child[row, 1 + node]
            while at >= 0:
                found.append(int(at))
                at = sibling[row, at]
            padding = list(range(1 + tree.size, n)) if node < 0 else []
            assert found == wanted + padding
            assert tokens.reshape(3, n)[row, wanted].tolist() == tree.tokens[np.array(wanted, int) - 1].tolist()


@pytest.mark.parametrize("start", range(9))
def test_a_row_of_prompt_output_and_what_was_accepted_last(start):
    row = draft_row("id", array("q", [1, 2, 3]), array("q", [4, 5]), [6, 7, 8])
    assert row.size == 8 and row.key == "id" and row.since(start).dtype == np.int32
    assert row.since(start).tolist() == [1, 2, 3, 4, 5, 6, 7, 8][start:]


class XGrammarObject:
    """SGLang's grammar object over xgrammar, as far as a draft needs it."""

    def __init__(self, compiled, vocab_size):
        xgrammar = pytest.importorskip("xgrammar")
        self.compiled, self.vocab_size = compiled, vocab_size
        self.matcher = xgrammar.GrammarMatcher(compiled)

    def copy(self):
        return XGrammarObject(self.compiled, self.vocab_size)

    def accept_token(self, token):
        assert self.matcher.accept_token(token)

    def rollback(self, k):
        self.matcher.rollback(k)

    def allocate_vocab_mask(self, vocab_size, batch_size, device):
        import xgrammar

        return xgrammar.allocate_token_bitmask(batch_size, vocab_size)

    def fill_vocab_mask(self, mask, row):
        self.matcher.fill_next_token_bitmask(mask, row)


def test_grammars_of_requests_bound_drafts():
    """Masks along random walks through the tree of texts are those of a matcher that reads each text anew, and drafts
    stay inside.
    """
    xgrammar = pytest.importorskip("xgrammar")
    words = ["a", "b", "ab", "ba", "c", "</s>"]
    facts = xgrammar.TokenizerInfo(words, vocab_size=40, stop_token_ids=[5])
    grammar = XGrammarObject(xgrammar.GrammarCompiler(facts).compile_regex("(ab|ba){2,5}c?"), 40)
    structure = RequestGrammar.of(grammar, 40)
    assert structure == RequestGrammar.of(grammar, 40) and RequestGrammar.of(None, 40) is None
    draw, root = np.random.default_rng(0), structure.start(40, {5})
    states = [((), root)]
    for _ in range(200):
        path, state = states[draw.integers(len(states))]
        anew = grammar.copy()
        for token in path:
            anew.accept_token(token)
        mask = anew.allocate_vocab_mask(40, 1, "cpu")
        anew.fill_vocab_mask(mask, 0)
        bits = np.unpackbits(mask[0].numpy().view(np.uint8), bitorder="little")
        assert state.mask().tolist() == bits[:40].astype(bool).tolist()
        inside = [token for token in np.flatnonzero(state.mask()).tolist() if token != 5]
        if inside:
            token = inside[draw.integers(len(inside))]
            states.append(((*path, token), state.step(token)))

    drafter = TextDrafter(vocab_size=40, end_of_text=5)
    prompt, output = [0, 1, 4, 0, 1, 4, 4, 4], [2]  # the text alone would copy "c"
    for added in ([], [2], [3, 3]):
        (tree,) = drafter.trees([draft_row("r", prompt, output, added, structure)], 8)
        assert tree.size
        for path in strings(tree):
            structure.start(40, {5}).after([*output, *added, *path])
