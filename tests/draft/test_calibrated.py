"""Calibrated rescorers: the API against recounting the whole text, the replay against the rows that decoding visits."""

import numpy as np
import pytest
from support import dumps
from support.refusals import refused, refuses

from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay import rows
from rescore.lattice.dump import Dump
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import TokenTree
from rescore.lm.build.in_memory import build
from rescore.lm.model import example
from rescore.lm.model.ngram import NGram

SHARE = (0.0, 1.0, -1.0)
FORMS = {
    "closed": Calibration(open=False, text=None),
    "open": Calibration(head=(0.4,), alpha=(0.9,), prior=(0.2,), floor=(-2.0,), text=None),
    "closed, text": Calibration(open=False, text=((-1.1, 1.0, -1.0), (0.0, 1.0, -1.0))),
    "open, text": Calibration(text=((-1.6, 1.0, -1.0), (-0.7, 0.7, -0.9), (0.2, 0.5, -1.5))),
}


@pytest.fixture(scope="module")
def lm() -> NGram:
    return example.model()


@pytest.fixture(scope="module", params=["forced", "sampled"])
def dump(request, tmp_path_factory) -> Dump:
    path = tmp_path_factory.mktemp("calibrated") / "dump"
    dumps.write(path, kind=request.param, made=dumps.sequences(request.param, 8))
    return Dump.open(path)


def drafted(rescorer, block, sausage, row, n):
    """The tree of a row, with its prompt and the text so far counted anew."""
    s, history = int(block.sequence_of[row]), block.history(row, 10_000)
    prompt = int(block.prompt_offsets[s + 1] - block.prompt_offsets[s])
    batch, texts = Sausage(ids=sausage.ids[None], cost=sausage.cost[None]), []
    if rescorer.calibrated.reads_text:
        texts = [rescorer.text(history[:prompt])]
        texts[0].extend(np.array(history[prompt:], np.int32))
    return rescorer.trees(batch, np.array(history)[None], n, texts=texts)[0]


@pytest.mark.parametrize("form", FORMS)
def test_replay_equals_drafting_row_by_row(dump, form):
    model = build(
        [block.tokens.astype(np.int32) for block in dump.blocks()], order=3, vocab_size=dumps.V, end_of_text=0
    )
    rescorer = Rescorer(model, calibration=FORMS[form], threads=2)
    replay = rows.trees(rescorer, {"small": 3, "large": 9})
    assert replay.names == ("small", "large")
    for block in dump.blocks():
        found = replay.outcomes(block)
        sausages, truth = block.sausages(), block.truth(slots=9)
        for name, n in replay.budgets.items():
            for row in found[name].visited.tolist():
                tree = drafted(rescorer, block, sausages[row], row, n)
                assert found[name].accepted[row] == tree.accepted(truth[row]) and found[name].verified[row] == tree.size


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


def same(one: TokenTree, other: TokenTree) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("tokens", "parents", "logq"))


def test_trees_count_the_histories_if_no_texts_are_given(lm):
    """As `tree` does; histories may differ in length."""
    sausage, texts = example.sausage(), ([1, 2, 3], [4])
    batch = Sausage(ids=np.stack([sausage.ids] * 2), cost=np.stack([sausage.cost] * 2))
    rescorer = Rescorer(lm)
    padded = np.array([texts[0], [-1, -1, *texts[1]]])
    for tree, text in zip(rescorer.trees(batch, padded, 9), texts):
        assert same(tree, rescorer.tree(sausage, text, 9))
        counted = rescorer.trees(batch[:1], [text[-lm.order + 1 :]], 9, texts=[rescorer.text(text)])
        assert same(counted[0], tree)


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
        (
            {"head": (1.0, 1.0), "alpha": (1.0, 1.0, 1.0)},
            ["calibration", "[2, 3, 1, 1]"],
        ),
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
