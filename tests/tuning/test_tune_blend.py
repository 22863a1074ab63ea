"""Tuning on dumps without heads: the result is the best of the trials, uses the tuning part only, and survives a round
trip through settings.
"""

import math

import numpy as np
import pytest
from msgspec import structs
from support import dumps
from support.changes import changed
from support.refusals import refused, refuses

from rescore.decode.draft.blended_drafter import blend_rescorer
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import ModelFile, Settings, TreeWeights
from rescore.decode.replay import rows
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.replay.run import replay_dump
from rescore.decode.tuning import tune as module
from rescore.decode.tuning.fit import fit_shares
from rescore.decode.tuning.tune import evaluate, tune
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module", params=["model", "none"])
def lm(request, headless) -> NGram | None:
    return NGram.open(headless / "lm.ngram") if request.param == "model" else None


@pytest.fixture(scope="module")
def tuned(headless, lm):
    told = []
    found = tune(Dump.open(headless / "dump"), lm or (), advance=told.append)
    assert len(told) == len(found.trees.tried["blend"]) == 2
    return found


def test_the_best_of_what_was_tried(headless, lm, tuned):
    dump = Dump.open(headless / "dump")
    part = tuned.split.part("tune")
    blocks = [block for task in dump.tasks for block in part.blocks(dump, task)]
    fitted = structs.replace(HEADLESS, text=fit_shares(blocks, lm or NGram.uniform(dumps.V)))
    tried = tuned.trees.tried["blend"]
    assert list(tried) == [HEADLESS, fitted]
    for calibration, found in tried.items():
        drafter = rows.trees(blend_rescorer(dumps.V, lm, calibration), {"16": 16, "64": 64})
        tasks = replay_dump(dump, [drafter], split=part).tasks
        value = np.mean([math.log(one.tallies[name].block_efficiency) for one in tasks for name in drafter.names])
        assert found == pytest.approx(value, abs=1e-12)
    assert tried[tuned.trees.weights["blend"].overall] == max(tried.values())


def test_shares_that_draft_worse_are_not_kept(headless, monkeypatch):
    never = ((-20.0, 0.0, 0.0),) * len(HEADLESS.text)
    monkeypatch.setattr(module, "fit_shares", lambda *_: never)
    found = tune(Dump.open(headless / "dump"))
    tried = found.trees.tried["blend"]
    assert found.trees.weights["blend"].overall == HEADLESS
    assert tried[HEADLESS] > tried[structs.replace(HEADLESS, text=never)]


def test_settings_are_kept_and_replayed(headless, lm, tuned):
    dump, best = Dump.open(headless / "dump"), tuned.trees.weights["blend"].overall
    files = (ModelFile.of(headless / "lm.ngram"),) if lm else ()
    tuned.settings(files, values={"blend 16": 1.5}, seed=7).save(headless / "sub" / "s.json")
    loaded = Settings.load(headless / "sub" / "s.json")
    assert loaded.calibration("blend") == best and loaded.split == tuned.split
    rescorer = loaded.calibrated("blend")
    assert rescorer.calibrated.calibration == best and rescorer.models[0].order == (3 if lm else 1)
    refuses(ValueError, lambda: loaded.calibration("open"), "'open'")
    refuses(ValueError, lambda: loaded.rescorer(), "'blend'")
    drafters = rows_of(RecordedSources(dump, Rescorer(lm or ())), Budgets(), settings=loaded)
    result = replay_dump(dump, drafters, split=loaded.split.part("heldout"))
    for name in ("blend-without-lm 16", "blend-without-lm tuned 64", "lm-alone 16"):
        assert (name in result.names) == (lm is not None)
    for task in evaluate(dump, loaded, [lm] if lm else [], "heldout").tasks:
        (own,) = (one for one in result.tasks if one.task == task.task)
        for name in ("blend 16", "blend 64", "blend tuned 16", "blend tuned 64"):
            assert task.passes[name].tolist() == own.passes[name].tolist()


def test_refusals(headless):
    dump, heads = Dump.open(headless / "dump"), Dump.open(headless / "heads")
    refuses(ValueError, lambda: tune(heads), "tune")
    refuses(ValueError, lambda: tune(dump, [NGram.open(headless / "lm.ngram")] * 2), "tune", "2")
    refuses(ValueError, lambda: tune(dump, split=Split.of_dump(dump, 0)), "tune")
    refuses(ValueError, lambda: tune(dump, NGram.uniform(60)), "60", "50")


@pytest.fixture(scope="module")
def good(headless) -> dict:
    dump = Dump.open(headless / "dump")
    settings = tune(dump, NGram.open(headless / "lm.ngram")).settings((ModelFile.of(headless / "lm.ngram"),), values={})
    settings.trees["blend"] = TreeWeights(overall=HEADLESS)
    return settings.to_json(headless)


@pytest.mark.parametrize(
    "path, value, message",
    [
        ("slots", -1, ["slots", "-1"]),
        ("slots", 3, ["top_k", "0"]),
        ("paths", {"way": "fitted", "head": [1], "alpha": [[1]]}, ["paths"]),
        ("models", [{"path": "a", "bytes": 1, "crc32": 1}] * 2, ["models"]),
        ("trees", {}, ["trees"]),
        ("trees.blend.overall.text", None, ["blend"]),
        ("trees.blend.overall.alpha", [1.0, 1.0], ["calibration", "2"]),
        ("trees.blend.overall.open", False, ["blend"]),
        ("trees.blend.overall.text", [[0, 1]], ["text[0]", "3", "[0, 1]"]),
        ("trees.blend.overall.text", [[0, 1, math.nan]], ["text[0]", "[2]", "nan"]),
        ("trees.blend.overall.soft", [0.5], ["'soft'"]),
    ],
)
def test_hostile_settings(good, headless, path, value, message):
    with refused(ValueError, *message):
        Settings.from_json(changed(good, path, value), headless)


def test_default_weights_of_settings_keep_their_own_model(headless):
    """Beside another --lm: the tuned row is that of the settings' model, the other that of the given one."""
    dump, mine = Dump.open(headless / "dump"), NGram.open(headless / "lm.ngram")
    other = NGram.uniform(mine.vocab_size)
    settings = tune(dump, mine).settings((), values={})
    settings.trees["blend"] = TreeWeights(overall=HEADLESS)
    sources = RecordedSources(dump, Rescorer(other), tuned=[mine])
    (given, tuned) = rows_of(sources, Budgets(nodes=(16,)), settings=settings, only=("blend",))
    block = next(dump.blocks())
    for row, lm in ((given, other), (tuned, mine)):
        assert row.make(block).rescorer.models[0].order == lm.order
    assert other.order != mine.order
