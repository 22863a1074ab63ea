"""Untuned drafters on the demo."""

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.replay.run import replay_dump
from rescore.lattice.dump import Dump
from rescore.lm.model.ngram import NGram


def test_heads_help_untuned_trees_on_every_task(demo):
    dump, model = Dump.open(demo / "sampled"), NGram.open(demo / "demo.ngram")
    sources = RecordedSources(dump, Rescorer(model))
    drafters = rows_of(sources, Budgets(), only=("blend", "blend-without-heads"))
    for task in replay_dump(dump, drafters).tasks:
        found = task.to_json()["block_efficiency"]
        for n in (16, 32, 64):
            assert found[f"blend {n}"] > found[f"blend-without-heads {n}"], (task.task, n)
