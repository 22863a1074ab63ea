"""Recall of heads and on the path, against loops over rows and slots."""

import numpy as np
import pytest
from support import dumps

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.analyses.recall import recall
from rescore.lattice.split import Split
from rescore.lm.build.in_memory import build


@pytest.fixture(scope="module")
def models(dump):
    texts = [block.tokens.astype(np.int32) for block in dump.blocks()]
    return [
        build(texts, order=3, vocab_size=dumps.V, end_of_text=0),
        build(texts[:1], order=2, vocab_size=dumps.V, end_of_text=0),
    ]


ALPHA = np.array([[0.5, 0.3, 0.2], [0.1, 0.0, 0.4]])


def slow_recall(dump, task, models, k):
    """{head: [hits at 1..k], total} of heads 1..h, and of slots on the path by head cost and rescored."""
    heads = {head: [0] * (k + 1) for head in range(1, dumps.H + 1)}
    on_path = {head: [0] * (k + 1) for head in range(2, dumps.H + 1)}
    rescored = {head: [0] * (k + 1) for head in range(2, dumps.H + 1)}

    def note(counts, rank):
        counts[k] += 1
        for place in range(k):
            counts[place] += rank is not None and rank <= place

    for block in dump.blocks(task):
        for row in range(block.rows):
            end = int(block.sequence_ends[row])
            history, follows = block.history(row, 9).tolist(), True
            for head in range(1, dumps.H + 1):
                if row + head - 1 >= end:
                    break
                token, ids = int(block.tokens[row + head - 1]), block.topk_ids[row, head - 1, :k].tolist()
                rank = ids.index(token) if token in ids else None
                note(heads[head], rank)
                if head == 1:
                    continue
                if follows:
                    note(on_path[head], rank)
                    score = [-float(x) for x in block.topk_logp[row, head - 1, :k]]
                    for j, model in enumerate(models):
                        state = model.core.start(np.array(history, np.int32))
                        score = [s + ALPHA[j, head - 2] * model.core.step(state, w)[1] for s, w in zip(score, ids)]
                    better = rank is not None and sum((s, i) < (score[rank], rank) for i, s in enumerate(score))
                    note(rescored[head], None if rank is None else better)
                follows = follows and rank is not None
                history.append(token)
    return heads, on_path, rescored


def as_json(counts):
    return {str(head): [hit / row[-1] for hit in row[:-1]] if row[-1] else None for head, row in counts.items()}


@pytest.mark.parametrize("k", [2, 6])
def test_against_loops(dump, models, k):
    found = recall(dump, Rescorer(models, alpha=ALPHA), top_k=k)
    for one in found:
        expected = slow_recall(dump, one.task, models, k)
        for name, counts in zip(("heads", "on_path", "rescored"), expected):
            assert one.to_json()[name] == as_json(counts), (one.task, name)
    (first, _) = found
    assert first.rescored.to_json() != first.on_path.to_json()


def test_parts_add_up(dump, models):
    split, rescorer = Split.of_dump(dump), Rescorer(models, alpha=ALPHA)
    whole, tune, rest = (
        recall(dump, rescorer, split=part) for part in (None, split.part("tune"), split.part("heldout"))
    )
    for a, b, c in zip(whole, tune, rest):
        np.testing.assert_array_equal(a.rescored.hits, b.rescored.hits + c.rescored.hits)
        np.testing.assert_array_equal(a.heads.total, b.heads.total + c.heads.total)
