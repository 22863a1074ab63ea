"""Token ids in the Python API: integers in [0, V), in every function."""

import numpy as np
import pytest
from support.refusals import refused, refuses

from rescore import Rescorer, Sausage, TextMemory
from rescore.decode.draft.baselines import looked_up
from rescore.decode.engines.sglang.rows import draft_row
from rescore.decode.engines.text_drafter import DraftRow
from rescore.lattice.tree import TokenTree
from rescore.lm.build.counts import count
from rescore.lm.model import example
from rescore.lm.model.tables import Tables

MODEL, ONE = example.model(), example.sausage()
BATCH = Sausage(ids=ONE.ids[None], cost=ONE.cost[None])
PLAIN, CALIBRATED = Rescorer(MODEL, alpha=1.0), Rescorer(MODEL)
MEMORY = TextMemory(vocab_size=MODEL.vocab_size, end_of_text=0)

READERS = {
    "paths": lambda ids: PLAIN.paths(ONE, ids),
    "paths of a batch": lambda ids: PLAIN.paths(BATCH, [ids]),
    "trees": lambda ids: PLAIN.trees(ONE, ids),
    "tree": lambda ids: PLAIN.tree(ONE, ids),
    "normalise": lambda ids: PLAIN.normalise(ONE, ids),
    "calibrated trees": lambda ids: CALIBRATED.trees(BATCH, [ids], texts=[CALIBRATED.text()]),
    "calibrated trees by themselves": lambda ids: CALIBRATED.trees(BATCH, [ids]),
    "calibrated tree": lambda ids: CALIBRATED.tree(ONE, ids),
    "memory": MEMORY.add,
    "start": MODEL.start,
    "score": MODEL.score,
    "score behind": lambda ids: MODEL.score([0], history=ids),
    "walk": MODEL.walk,
    "count": lambda ids: count([ids], order=2, vocab_size=6, end_of_text=0),
    "tables": lambda ids: Tables.from_rows(
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


def test_ids_of_dictionaries_and_parents():
    for token in (-1, 6, 2**32, np.int64(2**32 + 1), 2**64):
        with refused((ValueError, TypeError)):
            Tables.from_ngrams({(token,): (0.5, 1.0)}, vocab_size=6, unseen_cost=1.0)
    refuses(ValueError, lambda: TokenTree.from_parents([3, 4], [-1, 2**33]), "parents[1]", 2**33, "-1")
