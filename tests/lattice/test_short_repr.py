"""What values look like in a session: a line for everything, a picture for lattices and trees."""

import xml.etree.ElementTree as xml

import numpy as np
import pytest

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.loop.request import Finish, Generation, Statistics
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import TokenTree
from rescore.lm.model.ngram import NGram

BATCH = Sausage.from_logits(np.random.default_rng(0).standard_normal((3, 5, 5000)).astype(np.float32), 8)
LATTICE = Sausage(ids=BATCH.ids[0], cost=BATCH.cost[0])
LM = NGram.uniform(5000)
TREE = Rescorer(LM, alpha=1.0).tree(LATTICE, [1], 64)
GENERATION = Generation(
    tokens=np.arange(5, dtype=np.int32), finish=Finish.LENGTH, statistics=Statistics(accepted=[2, 0], drafted=[3, 4])
)


RESCORER, HISTORIES = Rescorer(LM, alpha=1.0), np.zeros((3, 1), np.int32)


@pytest.mark.parametrize(
    "value",
    [
        *(BATCH, TREE, LM, RESCORER, TextMemory(vocab_size=9, end_of_text=1), GENERATION, LM.to_tables()),
        *(RESCORER.paths(BATCH, HISTORIES, 4), RESCORER.trees(BATCH, HISTORIES, 4)),
    ],
)
def test_a_line(value):
    assert len(repr(value)) < 300 and "\n" not in repr(value) and type(value).__name__ in repr(value)


def test_pictures():
    """What a notebook asks for; they name every candidate and node."""
    for value, ids in ((LATTICE, LATTICE.ids.ravel()), (TREE, TREE.tokens)):
        root = xml.fromstring(value._repr_svg_())
        words = " ".join(root.itertext())
        assert root.tag.endswith("svg") and all(str(token) in words for token in ids.tolist())
    assert BATCH._repr_svg_() is None
    assert TokenTree.from_parents([], [])._repr_svg_().startswith("<svg")
