"""The analyses of a dump against loops over rows, replays of one lattice at a time, and examples worked by hand."""

import math

import numpy as np
import pytest
from support import dumps
from support.refusals import refuses
from support.slow_replay import block_efficiency, by_paths, by_tree, in_candidates, steps

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.lab.replay.analyses import efficiency
from rescore.decode.lab.replay.analyses.entropies import BINS, entropies, h_max, regression
from rescore.decode.lab.replay.analyses.lost_tokens import CAUSES, lost_tokens
from rescore.decode.lab.replay.analyses.recall import recall
from rescore.decode.lab.replay.measures import SLOTS
from rescore.decode.lab.replay.rows import path_replay, tree_replay
from rescore.decode.lab.replay.run import replay_dump
from rescore.lattice.split import Split
from rescore.lm.build.in_memory import build


def test_entropies_are_those_of_loops(dump):
    found = entropies(dump)
    width = math.log(dumps.V) / BINS
    assert found.edges.tolist() == pytest.approx([width * i for i in range(BINS + 1)])
    for one in found.tasks:
        values = [row.tolist() for block in dump.blocks(one.task) for row in block.entropy]
        for head in range(dumps.H):
            counts = [0] * BINS
            for row in values:
                counts[min(int(row[head] / width), BINS - 1)] += 1
            assert one.density[head].tolist() == pytest.approx([count / len(values) / width for count in counts])
            assert one.mean[head] == pytest.approx(sum(row[head] for row in values) / len(values))
            assert one.density[head].sum() * width == pytest.approx(1)
    assert [one.task for one in found.tasks] == list(dump.tasks)


def test_h_max_by_hand():
    assert h_max(np.array([1.0, 2.0, 2.0, 1.9, 5.0])) == 3
    assert h_max(np.array([3.0, 2.0])) == 1
    assert h_max(np.array([1.0, 2.0, 3.0])) == 3
    assert h_max(np.array([1.0])) == 1


def test_regression_by_hand():
    # Means 2 and 3; sum of dx dy = 3, of dx^2 = 2, of dy^2 = 6.
    found = regression([1, 2, 3], [1.0, 4.0, 4.0])
    assert (found.slope, found.intercept, found.r) == pytest.approx((1.5, 0.0, 3 / math.sqrt(12)))
    assert regression([2, 2], [1.0, 2.0]) is None and regression([1, 2], [1.0, 1.0]) is None
    assert regression([], []) is None


ALPHA = np.array([[0.5, 0.3, 0.2], [0.1, 0.0, 0.4]])


def slow_recall(blocks, models, k):
    """{head: shares of hits at 1..k} of heads 1..h, and of slots on the path by head cost and rescored."""
    heads, on_path, rescored = ({head: [] for head in range(first, dumps.H + 1)} for first in (1, 2, 2))
    for block in blocks:
        for row in range(block.rows):
            end = int(block.sequence_ends[row])
            history, follows = block.history(row, 9).tolist(), True
            for head in range(1, dumps.H + 1):
                if row + head - 1 >= end:
                    break
                token, ids = int(block.tokens[row + head - 1]), block.topk_ids[row, head - 1, :k].tolist()
                rank = ids.index(token) if token in ids else None
                heads[head].append(rank)
                if head == 1:
                    continue
                if follows:
                    on_path[head].append(rank)
                    score = [-float(x) for x in block.topk_logp[row, head - 1, :k]]
                    for j, model in enumerate(models):
                        state = model.core.start(np.array(history, np.int32))
                        score = [s + ALPHA[j, head - 2] * model.core.step(state, w)[1] for s, w in zip(score, ids)]
                    better = rank is not None and sum((s, i) < (score[rank], rank) for i, s in enumerate(score))
                    rescored[head].append(None if rank is None else better)
                follows = follows and rank is not None
                history.append(token)
    return {"heads": shares(heads, k), "on_path": shares(on_path, k), "rescored": shares(rescored, k)}


def shares(ranks, k):
    """How many of each head's ranks are among the first 1..k."""
    found = {head: np.array([k if rank is None else rank for rank in own])[:, None] for head, own in ranks.items()}
    return {str(head): (own <= np.arange(k)).mean(axis=0).tolist() if len(own) else None for head, own in found.items()}


@pytest.mark.parametrize("k, part", [(2, "all"), (6, "all"), (6, "tune"), (6, "heldout")])
def test_recall_is_that_of_loops(dump, models, k, part):
    split = Split.of_dump(dump).part(part)
    found = recall(dump, Rescorer(models, alpha=ALPHA), top_k=k, split=split)
    for one in found:
        told, wanted = one.to_json(), slow_recall(split.blocks(dump, one.task), models, k)
        assert {name: told[name] for name in wanted} == wanted, one.task
    assert found[0].rescored.to_json() != found[0].on_path.to_json()


@pytest.fixture(scope="module")
def rescorer(models) -> Rescorer:
    return Rescorer(models[1], alpha=1.5)


def cause_of(step, rescorer, budget, larger) -> str:
    slot, place = step.accepted, (step.block, step.row, step.truth)
    if step.truth[slot] not in step.block.topk_ids[step.row, slot + 1].tolist():
        return "absent"
    if by_tree(Rescorer(), budget)(*place) > slot:
        return "lm"
    return "budget" if by_tree(rescorer, larger)(*place) > slot else "heads"


@pytest.mark.parametrize("budget, larger", [(3, 12), (1, 10)])
def test_causes(dump, rescorer, budget, larger):
    seen = set()
    for one in lost_tokens(dump, rescorer, budget=budget, larger=larger):
        counts, tokens, number = dict.fromkeys(CAUSES, 0), dict.fromkeys(CAUSES, 0), 0
        for step in steps(dump.blocks(one.task), by_tree(rescorer, budget)):
            number += 1
            if step.accepted < len(step.truth):
                cause = cause_of(step, rescorer, budget, larger)
                counts[cause] += 1
                tokens[cause] += len(step.truth) - step.accepted
        assert (one.steps, one.whole) == (number, number - sum(counts.values()))
        assert one.by_cause.tolist() == list(counts.values()) and one.tokens.tolist() == list(tokens.values())
        report = one.to_json()
        assert sum(report["steps_share"].values()) == pytest.approx(1)
        assert sum(report["tokens_share"].values()) == pytest.approx(1)
        assert report["lost_tokens"] == sum(tokens.values())
        seen |= {cause for cause, n in counts.items() if n}
    assert seen == set(CAUSES)


def test_acceptance_by_slot(dump, rescorer):
    ways = {"tree": by_tree(rescorer, 4), "best": by_paths(rescorer, 1)}
    result = replay_dump(dump, [tree_replay(rescorer, {"tree": 4}), path_replay(rescorer, {"best": 1})])
    for task in result.tasks:
        for name, tally in task.tallies.items():
            drafts, accepted, reached = np.zeros((3, SLOTS), int)
            for step in steps(dump.blocks(task.task), ways[name]):
                for slot in range(dumps.H - 1):
                    if slot < len(step.truth):
                        drafts[slot] += 1
                        accepted[slot] += step.accepted > slot
                        reached[slot] += step.accepted >= slot
            own = tally.by_slot[:, : dumps.H - 1]
            np.testing.assert_array_equal(own, np.stack((drafts, accepted, reached))[:, : dumps.H - 1])
            assert drafts[0] == tally.steps and accepted.sum() == tally.accepted


def slow(dump, accepted_of) -> dict[str, float]:
    return {task: pytest.approx(block_efficiency(dump.blocks(task), accepted_of), abs=1e-12) for task in dump.tasks}


def test_oracle_of_widths_and_heads(dump):
    table = efficiency.oracle_efficiency(dump, widths=[1, 2, 6], heads=[2, 3, 4])
    assert len(table.rows) == 9
    for name, facts in table.rows.items():

        def accepted(block, row, truth, k=facts["k"], heads=facts["heads"]):
            return in_candidates(block, row, truth[: heads - 1], k)

        assert table.efficiency(name) == slow(dump, accepted)


def test_oracle_by_default(dump):
    rows = efficiency.oracle_efficiency(dump).rows.values()
    assert [(row["heads"], row["k"]) for row in rows] == [(heads, k) for heads in (3, 4) for k in (1, 2, 4, 6)]


def test_orders(dump, model):
    table = efficiency.compare_models(dump, efficiency.of_orders(model), alpha=0.4, paths=4)
    assert list(table.rows) == ["base", "2-gram", "2-gram p=4", "3-gram", "3-gram p=4", "oracle k=2", "oracle k=6"]
    assert table.efficiency("base") == slow(dump, by_paths(Rescorer(), 1))
    texts = [block.tokens.astype(np.int32) for block in dump.blocks()]
    for order in (2, 3):
        rescorer = Rescorer(build(texts, order=order, vocab_size=dumps.V, end_of_text=0), alpha=0.4)
        assert table.efficiency(f"{order}-gram") == slow(dump, by_paths(rescorer, 1))
        assert table.efficiency(f"{order}-gram p=4") == slow(dump, by_paths(rescorer, 4))


def test_models_side_by_side(dump, model):
    other = build([[1, 2, 3]], order=2, vocab_size=dumps.V, end_of_text=0)
    weights = [0.5, 0.3, 0.1]
    report = efficiency.compare_models(dump, {"mine": model, "other": other}, alpha=weights, paths=2).to_json(seed=1)
    assert report["tasks"] == list(dump.tasks)
    rows = {row["name"]: row for row in report["rows"]}
    for name, one in (("mine", model), ("other", other)):
        assert rows[name]["block_efficiency"] == slow(dump, by_paths(Rescorer(one, alpha=[weights]), 1))
        assert rows[name]["mean"] == pytest.approx(np.mean(list(rows[name]["block_efficiency"].values())), abs=1e-12)
        low, high = rows[name]["mean_interval"]
        assert low <= rows[name]["mean"] <= high and rows[name]["model"] == name
    assert rows["mine p=2"]["verified_per_pass"] == 2 * (dumps.H - 1)


def test_arguments_are_checked(dump, model):
    sixty = build([[1, 2, 3]], order=2, vocab_size=60, end_of_text=0)
    refuses(ValueError, lambda: lost_tokens(dump, Rescorer(model, alpha=1.5), budget=16, larger=16), "budget", "16")
    refuses(ValueError, lambda: efficiency.oracle_efficiency(dump, widths=[7]), "1..6", "7")
    refuses(ValueError, lambda: efficiency.oracle_efficiency(dump, heads=[3, 5]), "2..4", "5")
    refuses(ValueError, lambda: efficiency.compare_models(dump, {"sixty": sixty}, alpha=1.0), "60", "50")
