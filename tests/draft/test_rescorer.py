"""The Python API: the worked example by hand, batches against single calls, invalid options."""

import math

import numpy as np
import pytest
from support.refusals import refuses

from rescore import NGram, NGramDrafter, Rescorer, Sausage
from rescore.decode.draft.calibration import DEFAULT
from rescore.lattice.tree import TokenTree
from rescore.lm.model import example
from rescore.lm.model.tables import Tables


def text(tokens) -> str:
    return " ".join(example.WORDS[token] for token in tokens)


def test_worked_example(worked):
    lm, sausage = worked
    heads, both = Rescorer(), Rescorer(lm, alpha=1.0)
    assert text(sausage.first) == "Lionel Ronaldo scored"
    assert text(heads.paths(sausage, example.HISTORY, 1).tokens[0]) == "Lionel Ronaldo scored"
    drafts = both.paths(sausage, example.HISTORY, 3)
    wanted = ["Lionel Messi scored", "Cristiano Ronaldo scored", "Cristiano Ronaldo ."]
    assert [text(draft) for draft in drafts.tokens] == wanted
    # Heads .5 .4 .6, then p(Lionel) .1, p(Messi | Lionel) .8, p(scored | Lionel Messi) .9.
    assert drafts.cost[0] == pytest.approx(-math.log(0.5 * 0.4 * 0.6) - math.log(0.1 * 0.8 * 0.9), abs=1e-6)
    # Heads .4 .5 .6, then .1, .8, and p(scored | Cristiano Ronaldo) backs off to the unigram at no cost.
    assert drafts.cost[1] == pytest.approx(-math.log(0.4 * 0.5 * 0.6) - math.log(0.1 * 0.8 * 0.2), abs=1e-6)
    logq = both.normalise(sausage, example.HISTORY).logq(drafts.tokens)
    assert logq - logq[0] == pytest.approx(drafts.cost[0] - drafts.cost, abs=1e-6)
    tree = both.tree(sausage, example.HISTORY, 4)
    # q(Lionel) = .5 / .9; then Messi .4 * .8 against Ronaldo .5 * p(Ronaldo | Lionel) = .5 * 2/9 * .1.
    assert [text([token]) for token in tree.tokens[:2]] == ["Lionel", "Messi"]
    assert tree.logq[0] == pytest.approx(math.log(0.5 / 0.9), abs=1e-6)
    messi = 0.4 * 0.8 / (0.4 * 0.8 + 0.5 * (0.2 / 0.9) * 0.1)
    assert tree.logq[1] == pytest.approx(math.log(0.5 / 0.9 * messi), abs=1e-6)
    assert TokenTree.from_drafts(drafts.tokens).size == 7  # two drafts of three tokens, and the last word of the third


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda lm, s: Rescorer([lm, lm]), ValueError, ["alpha", "2"]),
        (lambda lm, s: Rescorer(lm, alpha=1, calibration=DEFAULT), ValueError, ["calibration"]),
        (lambda lm, s: Rescorer(lm, alpha=1).text(), ValueError, ["text"]),
        (lambda lm, s: Rescorer(lm, alpha=1).tree(s, [0], depth=9), TypeError, ["depth"]),
        (lambda lm, s: Rescorer(lm, head=[[1]]), ValueError, ["head", "[T]", "[1, 1]"]),
        (lambda lm, s: Rescorer(lm, head=[1, 2]).paths(s, [0]), ValueError, ["head", "3", "2"]),
        (lambda lm, s: NGramDrafter(lm, slots=0, nodes=8), ValueError, ["depth", "1..1024", "0"]),
        (lambda lm, s: NGramDrafter(lm, slots=4, nodes=0), ValueError, ["nodes", "1..1024", "0"]),
        (lambda lm, s: Rescorer(lm, alpha=[1, 2]), ValueError, ["alpha", "[J]", "[J, T]", "1"]),
        (lambda lm, s: Rescorer(lm, alpha=[[1, 2]]).paths(s, [0]), ValueError, ["alpha", "3", "2"]),
        (lambda lm, s: Rescorer(lm, alpha=1.0).paths(s, [[0], [1]]), ValueError, ["history", "1"]),
        (lambda lm, s: Rescorer(lm, alpha=1.0).paths(s, [99]), ValueError, ["history[0]", "6", "99"]),
        (lambda lm, s: Rescorer(lm).tree(Sausage.batch([s]), [[0]]), TypeError, ["tree"]),
    ],
)
def test_misuse(worked, call, error, message):
    refuses(error, lambda: call(*worked), *message)


def test_models_of_different_vocabularies_are_those_of_the_greatest(worked):
    lm, _ = worked
    other = NGram.from_tables(Tables.from_ngrams({(0,): (0.5, 1.0), (1,): (0.5, 1.0)}, vocab_size=2))
    assert [model.vocab_size for model in Rescorer([lm, other], alpha=1.0).models] == [6, 6]


@pytest.mark.parametrize("head", [0.5, [0.25, 2.0, 0.0]])
def test_weights_of_heads_are_those_of_their_costs(worked, head):
    """As if the lattice itself had had those costs; candidates that are missing stay so."""
    lm, sausage = worked
    ids, cost = sausage.ids.copy(), sausage.cost.copy()
    ids[2, -1], cost[2, -1] = -1, np.inf
    finite = np.where(ids >= 0, cost, 0) * np.broadcast_to(head, 3)[:, None]
    weighed = np.where(ids >= 0, finite, np.inf).astype(np.float32)
    calls = [(Rescorer(lm, alpha=0.5, head=head), cost), (Rescorer(lm, alpha=0.5), weighed)]
    got, expected = (one.paths(Sausage(ids=ids, cost=of), example.HISTORY, 8) for one, of in calls)
    assert got.tokens.tolist() == expected.tokens.tolist() and got.cost.tolist() == expected.cost.tolist()
    got, expected = (one.tree(Sausage(ids=ids, cost=of), example.HISTORY, 8) for one, of in calls)
    assert got.tokens.tolist() == expected.tokens.tolist() and got.logq.tolist() == expected.logq.tolist()
