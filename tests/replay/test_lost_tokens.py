"""Acceptance by position and causes of lost tokens, against a loop over single steps."""

import numpy as np
import pytest
from support import dumps
from support.refusals import refuses
from support.slow_replay import matched, steps

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay import rows
from rescore.decode.replay.analyses.lost_tokens import CAUSES, lost_tokens
from rescore.decode.replay.measures import SLOTS
from rescore.decode.replay.run import replay_dump
from rescore.lm.build.in_memory import build


@pytest.fixture(scope="module")
def rescorer(dump) -> Rescorer:
    texts = [block.tokens.astype(np.int32) for block in dump.blocks()][:1]
    return Rescorer(build(texts, order=3, vocab_size=dumps.V, end_of_text=0), alpha=1.5)


def accepted_by(rescorer, kind, budget):
    def accepted(block, row, truth):
        sausage, history = block.sausages([row])[0], block.history(row, 5)
        if kind == "tree":
            return rescorer.tree(sausage, history, budget).accepted(np.array(truth))
        drafts = rescorer.paths(sausage, history, budget)
        return max(matched(draft, truth) for draft in drafts.tokens[: int(drafts.count)].tolist())

    return accepted


def cause_of(step, rescorer, kind, budget, larger) -> str:
    slot = step.accepted
    if step.truth[slot] not in step.block.topk_ids[step.row, slot + 1].tolist():
        return "absent"
    if accepted_by(Rescorer(), kind, budget)(step.block, step.row, step.truth) > slot:
        return "lm"
    return "budget" if accepted_by(rescorer, kind, larger)(step.block, step.row, step.truth) > slot else "heads"


@pytest.mark.parametrize("kind, budget, larger", [("tree", 3, 12), ("paths", 1, 10)])
def test_causes(dump, rescorer, kind, budget, larger):
    seen = set()
    for one in lost_tokens(dump, rescorer, kind=kind, budget=budget, larger=larger):
        counts, tokens, number, whole = dict.fromkeys(CAUSES, 0), dict.fromkeys(CAUSES, 0), 0, 0
        for step in steps(dump.blocks(one.task), accepted_by(rescorer, kind, budget)):
            number += 1
            if step.accepted == len(step.truth):
                whole += 1
                continue
            cause = cause_of(step, rescorer, kind, budget, larger)
            seen.add(cause)
            counts[cause] += 1
            tokens[cause] += len(step.truth) - step.accepted
        assert (one.steps, one.whole) == (number, whole)
        assert one.by_cause.tolist() == list(counts.values()) and one.tokens.tolist() == list(tokens.values())
        report = one.to_json()
        assert sum(report["steps_share"].values()) == pytest.approx(1)
        assert sum(report["tokens_share"].values()) == pytest.approx(1)
        assert report["lost_tokens"] == sum(tokens.values())
    assert seen == set(CAUSES)


def test_budgets_are_checked(dump, rescorer):
    refuses(ValueError, lambda: lost_tokens(dump, rescorer, kind="beam"), "kind", "'beam'")
    refuses(ValueError, lambda: lost_tokens(dump, rescorer, budget=16, larger=16), "budget", "16")


def test_acceptance_by_slot(dump, rescorer):
    ways = {"tree": ("tree", 4), "best": ("paths", 1)}
    result = replay_dump(dump, [rows.trees(rescorer, {"tree": 4}), rows.paths(rescorer, {"best": 1})])
    for task in result.tasks:
        for name, tally in task.tallies.items():
            drafts, accepted, reached = np.zeros((3, SLOTS), int)
            for step in steps(dump.blocks(task.task), accepted_by(rescorer, *ways[name])):
                for slot in range(dumps.H - 1):
                    if slot < len(step.truth):
                        drafts[slot] += 1
                        accepted[slot] += step.accepted > slot
                        reached[slot] += step.accepted >= slot
            own = tally.by_slot[:, : dumps.H - 1]
            np.testing.assert_array_equal(own, np.stack((drafts, accepted, reached))[:, : dumps.H - 1])
            assert drafts[0] == tally.steps and accepted.sum() == tally.accepted
