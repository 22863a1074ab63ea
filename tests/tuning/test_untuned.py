"""Untuned drafters on the demo."""

from __future__ import annotations

from rescore.decode.replay.run import replay_dump
from rescore.decode.tuning.tuned_drafters import untuned_drafters
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram


def test_heads_help_untuned_trees_on_every_task(demo):
    dump, model = Dump.open(demo / "sampled"), NGram.open(demo / "demo.ngram")
    for task in replay_dump(dump, untuned_drafters(model)).tasks:
        found = task.to_json()["block_efficiency"]
        for n in (16, 32, 64):
            assert found[f"open tree {n}"] > found[f"LM and text {n}"], (task.task, n)
