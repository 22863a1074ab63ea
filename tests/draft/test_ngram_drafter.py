"""An n-gram model alone as a drafter: its trees, no deeper than the room, and the target's own text."""

import numpy as np
import pytest
from support.refusals import refused

torch = pytest.importorskip("torch")

from support.tiny_blockwise import V, text

from rescore.decode.draft.drafter import drafts_of
from rescore.decode.draft.ngram_drafter import NGramDrafter, propose_trees
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping
from rescore.lm.build.in_memory import build

WORDS = build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, end_of_text=0)


def test_trees_are_the_models_own_and_no_deeper_than_the_room():
    histories = [np.array([3], np.int32), text(9, seed=1).astype(np.int32)]
    nothing = torch.zeros(2, 1)
    step = DraftStep(histories=histories, hidden=nothing, fresh=[nothing] * 2, room=[2, 9], random=[])
    drafts = drafts_of(NGramDrafter(WORDS, slots=4, nodes=12).open([], Shaping()).propose(step), step.room)
    contexts = np.array([[-1, 3], histories[1][-2:]], np.int32)
    trees = propose_trees(WORDS, contexts, n=12, depth=4)
    assert drafts[1].tree.tokens.tolist() == trees[1].tokens.tolist()
    kept = trees[0].depths <= 2
    assert not kept.all() and drafts[0].tree.tokens.tolist() == trees[0].tokens[kept].tolist()
    assert drafts[0].distribution is None and drafts[0].draws == ()


def test_messages():
    for name in ("slots", "nodes"):
        with refused(ValueError, name, "1"):
            NGramDrafter(WORDS, **{"slots": 4, "nodes": 8, name: 0})
