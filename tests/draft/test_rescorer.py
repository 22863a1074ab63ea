"""The Python API: the worked example by hand, batches against single calls, token ids and options that are refused."""

import math

import numpy as np
import pytest
import torch
from support import forms
from support.refusals import refused, refuses
from support.steps import texts_of

from rescore import Calibration, NGram, Rescorer, Sausage, TextMemory, ngram_drafter
from rescore.decode.draft.calibration import DEFAULT
from rescore.decode.draft.published.prompt_lookup import looked_up
from rescore.decode.engines.sglang.rows import draft_row
from rescore.decode.engines.text_drafter import DraftRow
from rescore.lattice.tree import TokenTree
from rescore.lm.build.counts import count
from rescore.lm.model import example
from rescore.lm.model.gram_rows import tables_of_ngrams, tables_of_rows

MODEL, ONE = example.model(), example.sausage()
BATCH = Sausage.batch([ONE])
PLAIN, CALIBRATED = Rescorer(MODEL, alpha=1.0), Rescorer(MODEL)
TEXTLESS = Rescorer(MODEL, calibration=Calibration(text=None))
PUSHED, OF_TWO_SLOTS = PLAIN.normalise(ONE, [0]), Rescorer(MODEL, calibration=Calibration(head=(0.5, 0.5), text=None))


def text(tokens) -> str:
    return " ".join(example.WORDS[token] for token in tokens)


def test_worked_example():
    assert text(ONE.first) == "Lionel Ronaldo scored"
    assert text(Rescorer().paths(ONE, example.HISTORY, 1).tokens[0]) == "Lionel Ronaldo scored"
    drafts = PLAIN.paths(ONE, example.HISTORY, 3)
    wanted = ["Lionel Messi scored", "Cristiano Ronaldo scored", "Cristiano Ronaldo ."]
    assert [text(draft) for draft in drafts.tokens] == wanted
    # Heads .5 .4 .6, then p(Lionel) .1, p(Messi | Lionel) .8, p(scored | Lionel Messi) .9.
    assert drafts.cost[0] == pytest.approx(-math.log(0.5 * 0.4 * 0.6) - math.log(0.1 * 0.8 * 0.9), abs=1e-6)
    # Heads .4 .5 .6, then .1, .8, and p(scored | Cristiano Ronaldo) backs off to the unigram at no cost.
    assert drafts.cost[1] == pytest.approx(-math.log(0.4 * 0.5 * 0.6) - math.log(0.1 * 0.8 * 0.2), abs=1e-6)
    logq = PLAIN.normalise(ONE, example.HISTORY).logq(drafts.tokens)
    assert logq - logq[0] == pytest.approx(drafts.cost[0] - drafts.cost, abs=1e-6)
    tree = PLAIN.tree(ONE, example.HISTORY, 4)
    # q(Lionel) = .5 / .9; then Messi .4 * .8 against Ronaldo .5 * p(Ronaldo | Lionel) = .5 * 2/9 * .1.
    assert [text([token]) for token in tree.tokens[:2]] == ["Lionel", "Messi"]
    assert tree.logq[0] == pytest.approx(math.log(0.5 / 0.9), abs=1e-6)
    messi = 0.4 * 0.8 / (0.4 * 0.8 + 0.5 * (0.2 / 0.9) * 0.1)
    assert tree.logq[1] == pytest.approx(math.log(0.5 / 0.9 * messi), abs=1e-6)
    assert TokenTree.from_drafts(drafts.tokens).size == 7  # two drafts of three tokens, and the last word of the third


HISTORIES = np.array([[-1, -1, 0], [1, 2, 3]], np.int32)
TWO = Sausage.batch([ONE, ONE])
EVERY_RESCORER = pytest.mark.parametrize(
    "rescorer", [PLAIN, CALIBRATED, TEXTLESS], ids=["plain", "calibrated", "textless"]
)


def alike(mine, theirs) -> None:
    for name in ("tokens", "parents", "logq", "count"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))


@EVERY_RESCORER
@pytest.mark.parametrize("form", forms.IDS)
def test_histories_in_every_form(rescorer, form):
    history = forms.IDS[form](HISTORIES)
    alike(rescorer.trees(TWO, history, 5), rescorer.trees(TWO, HISTORIES, 5))
    np.testing.assert_array_equal(PLAIN.paths(TWO, history).cost, PLAIN.paths(TWO, HISTORIES).cost)
    np.testing.assert_array_equal(PLAIN.states(history), PLAIN.states(HISTORIES))


@EVERY_RESCORER
@pytest.mark.parametrize("empty", [np.zeros((2, 0), np.int32), [[], []], [[-1, -1], [-1, -1]], torch.zeros(2, 0)])
def test_histories_without_tokens(rescorer, empty):
    """The trees of a single lattice after no text."""
    single = rescorer.tree(ONE, [], 5)
    for tree in rescorer.trees(TWO, empty, 5):
        assert tree.tokens.tolist() == single.tokens.tolist() and tree.logq.tolist() == single.logq.tolist()
    padded = rescorer.trees(TWO, [[-1, -1], [1, 2]], 5)
    assert padded[0].logq.tolist() == single.logq.tolist()
    assert padded[1].logq.tolist() == rescorer.tree(ONE, [1, 2], 5).logq.tolist()


@EVERY_RESCORER
@pytest.mark.parametrize(
    "wrong", [None, [[1], [1, 2]], [[], [1]], [[1.0]] * 2, [["a"]] * 2, [[[1]]], [[1]], [[2**40]] * 2]
)
def test_histories_that_are_none_are_named(rescorer, wrong):
    for call in (rescorer.trees, PLAIN.paths, PLAIN.normalise):
        with refused((TypeError, ValueError), "history", "expected", "got"):
            call(TWO, wrong)


@EVERY_RESCORER
def test_sizes_in_every_form(rescorer):
    for form in forms.SIZES.values():
        alike(rescorer.trees(TWO, HISTORIES, form(5)), rescorer.trees(TWO, HISTORIES, 5))
        assert PLAIN.paths(TWO, HISTORIES, form(2)).tokens.shape[1] == 2
        assert PUSHED.trees(form(2)).tokens.shape[1] == 2
    for wrong in (*forms.NO_SIZES, 2**40):
        for name, call in (("n", rescorer.trees), ("p", PLAIN.paths)):
            with refused((TypeError, ValueError), f"{name}: expected", wrong):
                call(TWO, HISTORIES, wrong)
        with refused((TypeError, ValueError), "threads: expected", wrong):
            Rescorer(MODEL, threads=wrong)


@pytest.mark.parametrize("form", forms.FLOATS)
def test_weights_and_uniforms_in_every_form(form):
    weights, uniforms = np.array([0.25, 0.5, 2], np.float32), np.full((2, 3), 0.25, np.float32)
    change = forms.FLOATS[form]
    made, known = (Rescorer(MODEL, alpha=of(weights[:1]), head=of(weights)) for of in (change, np.array))
    alike(made.trees(BATCH, [[0]], 5), known.trees(BATCH, [[0]], 5))
    np.testing.assert_array_equal(PUSHED.sample(change(uniforms)).tokens, PUSHED.sample(uniforms).tokens)


@pytest.mark.parametrize("wrong", [None, "a", [[1], [1, 2]], [None]], ids=str)
def test_weights_that_are_none_are_named(wrong):
    if wrong is not None:
        refuses((TypeError, ValueError), lambda: Rescorer(MODEL, alpha=wrong), "alpha: expected numbers")
        refuses((TypeError, ValueError), lambda: Rescorer(MODEL, alpha=1, head=wrong), "head: expected numbers")
    refuses((TypeError, ValueError), lambda: PUSHED.sample(wrong), "uniforms: expected numbers")
    refuses((TypeError, ValueError), lambda: PLAIN.normalise(ONE, [0], temperature=wrong), "temperature: expected")


def test_models_of_different_vocabularies_are_those_of_the_greatest():
    other = NGram.from_tables(tables_of_ngrams({(0,): (0.5, 1.0), (1,): (0.5, 1.0)}, vocab_size=2))
    assert [model.vocab_size for model in Rescorer([MODEL, other], alpha=1.0).models] == [6, 6]


@pytest.mark.parametrize("head", [0.5, [0.25, 2.0, 0.0]])
def test_weights_of_heads_are_those_of_their_costs(head):
    """As if the lattice itself had had those costs; candidates that are missing stay so."""
    ids, cost = ONE.ids.copy(), ONE.cost.copy()
    ids[2, -1], cost[2, -1] = -1, np.inf
    finite = np.where(ids >= 0, cost, 0) * np.broadcast_to(head, 3)[:, None]
    weighed = np.where(ids >= 0, finite, np.inf).astype(np.float32)
    found = []
    for rescorer, of in ((Rescorer(MODEL, alpha=0.5, head=head), cost), (Rescorer(MODEL, alpha=0.5), weighed)):
        asked = Sausage(ids=ids, cost=of), example.HISTORY, 8
        paths, tree = rescorer.paths(*asked), rescorer.tree(*asked)
        found.append([one.tolist() for one in (paths.tokens, paths.cost, tree.tokens, tree.logq)])
    assert found[0] == found[1]


def test_without_candidates_an_open_lattice_is_the_model_alone():
    nothing = Sausage(ids=np.full((3, 1), -1, np.int32), cost=np.full((3, 1), np.inf, np.float32))
    tree = TEXTLESS.tree(nothing, [0], 30)
    top = tree.depths == 1
    first = np.exp(-MODEL.distribution(MODEL.start([0])).astype(np.float64))
    assert tree.tokens[top].tolist() == np.argsort(-first, kind="stable")[: top.sum()].tolist()
    assert np.exp(tree.logq[top]) == pytest.approx(np.sort(first)[::-1][: top.sum()], abs=1e-6)


def test_no_lattices():
    assert CALIBRATED.trees(BATCH[:0], np.zeros((0, 2), np.int32), 5).tokens.shape == (0, 5)


def test_trees_count_the_histories_if_no_texts_are_given():
    """As `tree` does; histories may differ in length."""
    trees = CALIBRATED.trees(Sausage.batch([ONE] * 2), np.array([[1, 2, 3], [-1, -1, 4]]), 9)
    for row, text in enumerate(([1, 2, 3], [4])):
        counted = CALIBRATED.trees(BATCH, [CALIBRATED.text(text)], 9)
        for other in (CALIBRATED.tree(ONE, text, 9), counted[0]):
            for name in ("tokens", "parents", "logq"):
                assert np.array_equal(getattr(trees[row], name), getattr(other, name))


READERS = {
    "paths": lambda ids: PLAIN.paths(ONE, ids),
    "paths of a batch": lambda ids: PLAIN.paths(BATCH, [ids]),
    "trees": lambda ids: PLAIN.trees(ONE, ids),
    "tree": lambda ids: PLAIN.tree(ONE, ids),
    "normalise": lambda ids: PLAIN.normalise(ONE, ids),
    "calibrated trees": lambda ids: CALIBRATED.trees(BATCH, [ids]),
    "calibrated tree": lambda ids: CALIBRATED.tree(ONE, ids),
    "memory": TextMemory(vocab_size=MODEL.vocab_size, end_of_text=0).add,
    "start": MODEL.start,
    "score": MODEL.score,
    "score behind": lambda ids: MODEL.score([0], history=ids),
    "walk": MODEL.walk,
    "count": lambda ids: count([ids], order=2, vocab_size=6, end_of_text=0),
    "tables": lambda ids: tables_of_rows(
        [np.reshape(ids, (-1, 1))], [np.zeros(len(ids))], [], vocab_size=6, unseen_cost=1.0
    ),
}
OF_ANY_V = {  # or that let searches refuse their text
    "paths of no model": lambda ids: Rescorer().paths(ONE, ids),
    "logq": lambda ids: PLAIN.normalise(ONE, [0]).logq(np.resize(ids, (1, 3))),
    "rows": lambda ids: PLAIN.normalise(ONE, [0]).rows(np.resize(ids, (1, 3))),
    "text": CALIBRATED.text,
    "tree of drafts": lambda ids: TokenTree.from_drafts([ids]),
    "draft row": DraftRow.of_tokens,
    "request of SGLang": lambda ids: draft_row("r", [0], ids, []).since(0),
    "prompt lookup": lambda ids: looked_up(np.asarray(ids), 1),
    "tree of parents": lambda ids: TokenTree.from_parents(ids, [-1] * len(ids)),
}
ALL = READERS | OF_ANY_V


@pytest.mark.parametrize("name", ALL)
def test_ids_are_integers(name):
    for wrong in ([1.0], [1.7, 2.0], [True], ["1"], [None]):
        for ids in (wrong, np.array(wrong)):
            with refused(TypeError, "integers"):
                ALL[name](ids)


@pytest.mark.parametrize("name", ALL)
def test_ids_are_below_v(name):
    """An id beyond V is named with V, whatever holds it: none is wrapped to one that is right."""
    for value in (2**31, 2**32 + 1, -(2**40), 2**63):
        with refused(ValueError, value):
            ALL[name]([value])
    for value in (6, 2**31 - 1, -5) if name in READERS else ():
        for ids in ([value], np.array([value], np.int32), np.array([value], np.int64)):
            with refused(ValueError, value):
                ALL[name](ids)


@pytest.mark.parametrize("weight", [1001.0, 1e30, np.inf, np.nan, -0.5])
def test_weights_that_make_costs_infinite_are_refused(weight):
    for name in ("alpha", "head"):
        with refused(ValueError, name, "1000", weight):
            Rescorer(MODEL, **{name: weight})


def test_costs_are_finite_with_the_greatest_weights():
    """Of the worked example all 8 drafts, as with any other weight."""
    found = Rescorer(MODEL, alpha=1000, head=1000).paths(ONE, [0], 8)
    assert found.count == 8 and np.isfinite(found.cost).all()


def test_ids_of_dictionaries():
    for token in (-1, 6, 2**32, np.int64(2**32 + 1), 2**64):
        with refused((ValueError, TypeError)):
            tables_of_ngrams({(token,): (0.5, 1.0)}, vocab_size=6, unseen_cost=1.0)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: Rescorer([MODEL, MODEL]), ValueError, ["alpha", "2"]),
        (lambda: Rescorer(MODEL, alpha=1, calibration=DEFAULT), ValueError, ["calibration"]),
        (lambda: PLAIN.text(), ValueError, ["text"]),
        (lambda: Rescorer([MODEL] * 2, alpha=1).tree(ONE, [0]), ValueError, ["trees", "2", "merge_models"]),
        (lambda: Rescorer(MODEL, head=[[1]]), ValueError, ["head", "[T]", "[1, 1]"]),
        (lambda: Rescorer(MODEL, head=[1, 2]).paths(ONE, [0]), ValueError, ["head", "3", "2"]),
        (lambda: ngram_drafter(MODEL, slots=0, nodes=8), ValueError, ["depth", "1..1024", "0"]),
        (lambda: ngram_drafter(MODEL, slots=4, nodes=0), ValueError, ["nodes", "1..1024", "0"]),
        (lambda: Rescorer(MODEL, alpha=[1, 2]), ValueError, ["alpha", "[J]", "[J, T]", "1"]),
        (lambda: Rescorer(MODEL, alpha=[[1, 2]]).paths(ONE, [0]), ValueError, ["alpha", "3", "2"]),
        (lambda: PLAIN.paths(ONE, [[0], [1]]), ValueError, ["history", "1"]),
        (lambda: PLAIN.paths(ONE, [99]), ValueError, ["history[0]", "6", "99"]),
        (lambda: CALIBRATED.tree(BATCH, [[0]]), TypeError, ["tree"]),
        (lambda: CALIBRATED.trees(BATCH, [CALIBRATED.text()] * 2), ValueError, ["history", "1", "2"]),
        (lambda: CALIBRATED.trees(BATCH, texts_of([[0]])), ValueError, ["history", "with counts"]),
        (lambda: TEXTLESS.text([1, 2]), ValueError, ["text"]),
        (lambda: TEXTLESS.trees(BATCH, [CALIBRATED.text()]), ValueError, ["history", "without counts"]),
        (lambda: OF_TWO_SLOTS.trees(BATCH, [[0]]), ValueError, ["calibration", "2", "3"]),
        (lambda: Calibration(head=(-0.1,)), ValueError, ["head[0]", "-0.1"]),
        (lambda: Calibration(alpha=(math.nan,)), ValueError, ["alpha[0]", "nan"]),
        (lambda: Calibration(floor=(1e5,)), ValueError, ["floor[0]", "100000"]),
        (lambda: Calibration(prior=(True,)), ValueError, ["prior[0]", "True"]),
        (lambda: Calibration(head=0.5), ValueError, ["head", "0.5"]),
        (lambda: Calibration(head=()), ValueError, ["head"]),
        (lambda: Calibration(head=(1.0, 1.0), alpha=(1.0, 1.0, 1.0)), ValueError, ["calibration", "[2, 3, 1, 1]"]),
        (lambda: Calibration(text=()), ValueError, ["text"]),
        (lambda: Calibration(text=((0.0, 1.0, -1.0),) * 17), ValueError, ["text", "16"]),
        (lambda: Calibration(text=(1.0, 2.0, 3.0)), ValueError, ["text[0]", "1.0"]),
        (lambda: Calibration(text=((0.0, 1.0, -1.0), (0.0, 1.0))), ValueError, ["text[1]", "3"]),
        (lambda: Calibration(text=((0.0, 1.0, True),)), ValueError, ["text[0]", "[2]", "True"]),
        (lambda: Calibration(text=((0.0, 1.0, math.nan),)), ValueError, ["text[0]", "[2]", "nan"]),
        (lambda: Calibration(text=((0.0, -1e5, 1.0),)), ValueError, ["text[0]", "[1]", "-100000"]),
        (lambda: PLAIN.normalise(ONE, [0], temperature=0), ValueError, ["temperature", "0.000001", "1000000"]),
        (lambda: PLAIN.normalise(ONE, [0], temperature=math.nan), ValueError, ["temperature", "nan"]),
        (lambda: PLAIN.normalise(ONE, [[0], [1]]), ValueError, ["history", "1"]),
        (lambda: PUSHED.trees(0), ValueError, ["nodes", "1", "4096"]),
        (lambda: PUSHED.sample(np.zeros((1, 2))), ValueError, ["uniforms", "[1, p, 3]", "[1, 1, 2]"]),
        (lambda: PUSHED.sample(np.zeros(3)), ValueError, ["uniforms", "[p, T]", "[3]"]),
        (
            lambda: PLAIN.normalise(BATCH, [[0]]).sample(np.zeros((1, 3))),
            ValueError,
            ["uniforms", "[B, p, T]", "[1, 3]"],
        ),
        (lambda: PUSHED.sample([[0, 0, 0], [0, 1, 0]]), ValueError, ["uniforms[0, 1, 1]", "1.0"]),
        (lambda: PUSHED.sample([[0, math.nan, 0]]), ValueError, ["nan", "uniforms[0, 0, 1]"]),
        (lambda: PUSHED.sample([[0, -0.5, 0]]), ValueError, ["uniforms[0, 0, 1]", "-0.5"]),
        (lambda: PUSHED.rows([[0, -1, 4]]), ValueError, ["drafts[0, 0, 2]", "-1", "4"]),
        (lambda: PUSHED.logq([[0, 1, -2]]), ValueError, ["drafts[0, 0, 2]", "-1", "-2"]),
        (lambda: TokenTree.from_parents([3, 4], [-1, 2**33]), ValueError, ["parents[1]", 2**33, "-1"]),
    ],
)
def test_misuse(call, error, message):
    refuses(error, call, *message)
