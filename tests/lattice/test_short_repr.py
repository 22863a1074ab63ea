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
LM = NGram.uniform(5000)
RESCORER = Rescorer(LM, alpha=1.0)
TREE = RESCORER.tree(BATCH[0], [1], 64)
DONE = Statistics(accepted=[2, 0], drafted=[3, 4])
GENERATION = Generation(tokens=np.arange(5, dtype=np.int32), finish=Finish.LENGTH, statistics=DONE)


@pytest.mark.parametrize(
    "value", [BATCH, TREE, LM, RESCORER, TextMemory(vocab_size=9, end_of_text=1), GENERATION, LM.to_tables()]
)
def test_a_line(value):
    assert len(repr(value)) < 300 and "\n" not in repr(value) and type(value).__name__ in repr(value)


def test_pictures():
    """What a notebook asks for; they name every candidate and node."""
    for value, ids in ((BATCH[0], BATCH.ids[0].ravel()), (TREE, TREE.tokens)):
        root = xml.fromstring(value._repr_svg_())
        words = " ".join(root.itertext())
        assert root.tag.endswith("svg") and all(str(token) in words for token in ids.tolist())
    assert BATCH._repr_svg_() is None
    assert TokenTree.from_parents([], [])._repr_svg_().startswith("<svg")
