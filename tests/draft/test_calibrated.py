"""Calibrated rescorers: the API against recounting the whole text, and options that are refused."""

import numpy as np
import pytest
from support.refusals import refused, refuses

from rescore import Calibration, NGram, Rescorer, Sausage
from rescore.lm.model import example

SHARE = (0.0, 1.0, -1.0)


@pytest.fixture(scope="module")
def lm() -> NGram:
    return example.model()


def test_without_candidates_an_open_lattice_is_the_model_alone(lm):
    nothing = Sausage(ids=np.full((3, 1), -1, np.int32), cost=np.full((3, 1), np.inf, np.float32))
    tree = Rescorer(lm, calibration=Calibration(text=None)).tree(nothing, [0], 30)
    top = tree.depths == 1
    first = np.exp(-lm.distribution(lm.start([0])).astype(np.float64))
    assert tree.tokens[top].tolist() == np.argsort(-first, kind="stable")[: top.sum()].tolist()
    assert np.exp(tree.logq[top]) == pytest.approx(np.sort(first)[::-1][: top.sum()], abs=1e-6)


def test_no_lattices(lm):
    none = Sausage(ids=np.zeros((0, 2, 1), np.int32), cost=np.ones((0, 2, 1), np.float32))
    assert Rescorer(lm).trees(none, np.zeros((0, 2), np.int32), 5).tokens.shape == (0, 5)


def test_trees_count_the_histories_if_no_texts_are_given(lm):
    """As `tree` does; histories may differ in length."""
    sausage, texts, rescorer = example.sausage(), ([1, 2, 3], [4]), Rescorer(lm)
    batch = Sausage.batch([sausage] * 2)
    trees = rescorer.trees(batch, np.array([texts[0], [-1, -1, *texts[1]]]), 9)
    for row, text in enumerate(texts):
        counted = rescorer.trees(batch[:1], [text[-lm.order + 1 :]], 9, texts=[rescorer.text(text)])
        for other in (rescorer.tree(sausage, text, 9), counted[0]):
            for name in ("tokens", "parents", "logq"):
                assert np.array_equal(getattr(trees[row], name), getattr(other, name))


def test_misuse(lm):
    sausage = Sausage(ids=np.zeros((1, 2, 1), np.int32), cost=np.ones((1, 2, 1), np.float32))
    history = np.zeros((1, 2), np.int32)
    refuses(ValueError, lambda: Rescorer(lm).trees(sausage, history, texts=[]), "texts", "1", "0")
    without = Rescorer(lm, calibration=Calibration(text=None))
    refuses(ValueError, lambda: without.text([1, 2]), "text")
    refuses(ValueError, lambda: without.trees(sausage, history, texts=[Rescorer(lm).text()]), "texts")
    of_three = Calibration(head=(0.5, 0.5, 0.5), text=None)
    refuses(ValueError, lambda: Rescorer(lm, calibration=of_three).trees(sausage, history), "calibration", "3", "2")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"head": (-0.1,)}, ["head[0]", "-0.1"]),
        ({"alpha": (float("nan"),)}, ["alpha[0]", "nan"]),
        ({"floor": (1e5,)}, ["floor[0]", "100000"]),
        ({"prior": (True,)}, ["prior[0]", "True"]),
        ({"head": 0.5}, ["head", "0.5"]),
        ({"head": ()}, ["head"]),
        ({"head": (1.0, 1.0), "alpha": (1.0, 1.0, 1.0)}, ["calibration", "[2, 3, 1, 1]"]),
        ({"text": ()}, ["text"]),
        ({"text": (SHARE,) * 17}, ["text", "16"]),
        ({"text": (1.0, 2.0, 3.0)}, ["text[0]", "1.0"]),
        ({"text": (SHARE, (0.0, 1.0))}, ["text[1]", "3"]),
        ({"text": ((0.0, 1.0, True),)}, ["text[0]", "[2]", "True"]),
        ({"text": ((0.0, 1.0, float("nan")),)}, ["text[0]", "[2]", "nan"]),
        ({"text": ((0.0, -1e5, 1.0),)}, ["text[0]", "[1]", "-100000"]),
    ],
)
def test_calibrations_that_are_refused(changes, message):
    with refused(ValueError, *message):
        Calibration(**changes)
