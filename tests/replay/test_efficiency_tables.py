"""Tables of block efficiencies against replays of one lattice at a time."""

import numpy as np
import pytest
from support import dumps
from support.refusals import refuses
from support.slow_replay import block_efficiency, in_candidates, matched

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.analyses.efficiency import (
    GRID,
    compare_models,
    compare_orders,
    oracle_efficiency,
    weights_by_task,
)
from rescore.lattice.split import Split
from rescore.lm.build.in_memory import build


@pytest.fixture(scope="module")
def model(dump):
    return build([block.tokens.astype(np.int32) for block in dump.blocks()], order=3, vocab_size=dumps.V, end_of_text=0)


def slow(dump, accepted_of) -> dict[str, float]:
    return {task: pytest.approx(block_efficiency(dump.blocks(task), accepted_of), abs=1e-12) for task in dump.tasks}


def best_of(rescorer, p):
    """The accepted length of the p best paths of a row's lattice."""

    def accepted(block, row, truth):
        drafts = rescorer.paths(block.sausages([row])[0], block.history(row, 5), p)
        return max(matched(draft, truth) for draft in drafts.tokens[: int(drafts.count)].tolist())

    return accepted


def test_oracle_of_widths_and_heads(dump):
    table = oracle_efficiency(dump, widths=[1, 2, 6], heads=[2, 3, 4])
    assert len(table.rows) == 9
    for name, facts in table.rows.items():

        def accepted(block, row, truth, k=facts["k"], heads=facts["heads"]):
            return in_candidates(block, row, truth[: heads - 1], k)

        assert table.efficiency(name) == slow(dump, accepted)


def test_oracle_by_default(dump):
    rows = oracle_efficiency(dump).rows.values()
    assert [(row["heads"], row["k"]) for row in rows] == [(heads, k) for heads in (3, 4) for k in (1, 2, 4, 6)]
    refuses(ValueError, lambda: oracle_efficiency(dump, widths=[7]), "1..6", "7")
    refuses(ValueError, lambda: oracle_efficiency(dump, heads=[3, 5]), "2..4", "5")


def test_orders(dump, model):
    table = compare_orders(dump, model, alpha=0.4, paths=4)
    assert list(table.rows) == ["base", "2-gram", "2-gram p=4", "3-gram", "3-gram p=4", "oracle k=2", "oracle k=6"]
    assert table.efficiency("base") == slow(dump, best_of(Rescorer(), 1))
    texts = [block.tokens.astype(np.int32) for block in dump.blocks()]
    for order in (2, 3):
        rescorer = Rescorer(build(texts, order=order, vocab_size=dumps.V, end_of_text=0), alpha=0.4)
        assert table.efficiency(f"{order}-gram") == slow(dump, best_of(rescorer, 1))
        assert table.efficiency(f"{order}-gram p=4") == slow(dump, best_of(rescorer, 4))


def test_models_side_by_side(dump, model):
    other = build([[1, 2, 3]], order=2, vocab_size=dumps.V, end_of_text=0)
    weights = [0.5, 0.3, 0.1]
    report = compare_models(dump, {"mine": model, "other": other}, alpha=weights, paths=2).to_json(seed=1)
    assert report["cites"] == "table 7" and report["tasks"] == list(dump.tasks)
    rows = {row["name"]: row for row in report["rows"]}
    for name, one in (("mine", model), ("other", other)):
        assert rows[name]["block_efficiency"] == slow(dump, best_of(Rescorer(one, alpha=[weights]), 1))
        assert rows[name]["mean"] == pytest.approx(np.mean(list(rows[name]["block_efficiency"].values())), abs=1e-12)
        low, high = rows[name]["mean_interval"]
        assert low <= rows[name]["mean"] <= high and rows[name]["model"] == name
    assert rows["mine p=2"]["verified_per_pass"] == 2 * (dumps.H - 1)
    sixty = build([[1, 2, 3]], order=2, vocab_size=60, end_of_text=0)
    refuses(ValueError, lambda: compare_models(dump, {"sixty": sixty}, alpha=1.0), "60", "50")


def test_weights_are_chosen_on_one_part_and_reported_on_the_other(dump, model):
    split = Split.of_dump(dump)
    grid = (10.0, 0.1, 0.75)
    found = weights_by_task(dump, model, split, grid=grid, seed=4)
    assert found.grid == (0.1, 0.75, 10.0) and len(GRID) == 10
    for one in found.tasks:
        efficiencies = {}
        for alpha in found.grid:
            accepted = best_of(Rescorer(model, alpha=alpha), 1)
            efficiencies[alpha] = [
                block_efficiency(split.part(part).blocks(dump, one.task), accepted) for part in ("tune", "heldout")
            ]
        assert one.tuned == pytest.approx([efficiencies[alpha][0] for alpha in found.grid], abs=1e-12)
        assert one.best == max(found.grid, key=lambda alpha: efficiencies[alpha][0])
        assert one.heldout == pytest.approx(efficiencies[one.best][1], abs=1e-12)
        base = block_efficiency(split.part("heldout").blocks(dump, one.task), best_of(Rescorer(), 1))
        assert one.gain.interval.value == pytest.approx(one.heldout - base, abs=1e-12)
    refuses(ValueError, lambda: weights_by_task(dump, model, split, grid=[1.0, 1]), "grid", "[1.0, 1]")
