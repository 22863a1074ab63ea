"""Tuning, with heads and without: the held-out part is not read, the result is the best of the trials, and settings
survive a round trip.
"""

import json
import math
from collections import Counter

import numpy as np
import pytest
from msgspec import structs
from support import cli, dumps
from support.changes import changed
from support.refusals import refused, refuses

from rescore.decode.draft.blended_drafter import blend_rescorer
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import ModelFile, PathWeights, Settings, TreeWeights
from rescore.decode.replay import rows
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.replay.run import replay_dump
from rescore.decode.tuning.fit import fit_calibration, fit_shares
from rescore.decode.tuning.tune import evaluate, heldout_json, tune
from rescore.decode.tuning.tune_paths import GRID, mean_efficiency
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def tuned(world):
    trials = []
    found = tune(
        Dump.open(world / "dump"), NGram.open(world / "lm.ngram"), paths=4, per_task=True, advance=trials.append
    )
    assert trials and all(isinstance(one, str) for one in trials)
    return found


def settings_of(world, found, **changes) -> Settings:
    files = (ModelFile.of(world / "lm.ngram"),)
    return found.settings(files, values={"base": 1.0}, **changes)


def of_the_tuning_part(world, dump) -> tuple:
    """All that tuning on this dump says before the held-out part is read."""
    dump, model = Dump.open(dump), NGram.open(world / "lm.ngram")
    found = tune(dump, model, paths=4)
    values = mean_efficiency(evaluate(dump, found.settings((), values={}), [model], "tune"))
    return found.paths, found.trees, found.split.tune, values


def test_nothing_of_the_held_out_part_is_read(world, tmp_path):
    made = cli.make_dump(tmp_path / "dump")
    before = of_the_tuning_part(world, tmp_path / "dump")
    seen = Counter[str]()
    for one in made:
        seen[one["task"]] += 1
        if seen[one["task"]] > before[2][one["task"]]:
            one["tokens"], one["topk_ids"] = one["tokens"][::-1].copy(), one["topk_ids"][..., ::-1].copy()
    assert sum(before[2].values()) < len(made)
    cli.dumps.write(tmp_path / "other", "forced", made)
    assert of_the_tuning_part(world, tmp_path / "other") == before
    made[0]["topk_ids"] = made[0]["topk_ids"][..., ::-1].copy()
    cli.dumps.write(tmp_path / "changed", "forced", made)
    assert of_the_tuning_part(world, tmp_path / "changed") != before


def test_the_best_of_what_was_tried(world, tuned):
    dump, model, part = Dump.open(world / "dump"), NGram.open(world / "lm.ngram"), tuned.split.part("tune")

    def log_efficiency(drafter) -> float:
        tasks = replay_dump(dump, [drafter], split=part).tasks
        return np.mean([math.log(task.tallies[name].block_efficiency) for task in tasks for name in drafter.names])

    def of_paths(weights: PathWeights) -> float:
        return log_efficiency(rows.paths(weights.rescorer([model]), {"p": 4}))

    scalar, chosen = tuned.paths.scalar, of_paths(tuned.paths.weights)
    assert set(GRID) <= set(scalar.efficiency) and scalar.best in scalar.efficiency
    for alpha in scalar.efficiency:
        assert chosen >= of_paths(PathWeights.scalar(alpha, 1)) - 1e-12
    assert chosen >= max(tuned.paths.fitted.values()) - 1e-12
    blocks = [b for task in dump.tasks for b in part.blocks(dump, task)]
    for kind in ("closed", "open", "alone"):
        tried, calibration = tuned.trees.tried[kind], tuned.trees.weights[kind].overall
        drafter = rows.trees(Rescorer(model, calibration=calibration), {"16": 16, "64": 64}, heads=kind != "alone")
        assert log_efficiency(drafter) == pytest.approx(tried[calibration], abs=1e-12)
        assert tried[calibration] == max(tried.values())
        assert [one.text for one in tried] == [None, fit_shares(blocks, model)]


def test_calibrations_are_fitted_to_the_tuning_part(world, tuned):
    found = tuned.trees.weights
    dump, model, part = Dump.open(world / "dump"), NGram.open(world / "lm.ngram"), tuned.split.part("tune")
    assert found["open"].overall == fit_calibration(
        [b for task in dump.tasks for b in part.blocks(dump, task)], model, text=found["open"].overall.text
    )
    assert set(found["closed"].by_task) == set(dump.tasks) and set(found["alone"].by_task) == set(dump.tasks)
    for task, own in found["closed"].by_task.items():
        assert own == structs.replace(fit_calibration(part.blocks(dump, task), model, text=own.text), open=False)
        assert own.text in (None, fit_shares(list(part.blocks(dump, task)), model))


def test_several_models(world):
    dump, paths = Dump.open(world / "dump"), [world / name for name in ("lm.ngram", "b.ngram")]
    models = [NGram.open(path) for path in paths]
    found = tune(dump, models, paths=4)
    assert found.trees is None and len(found.paths.weights.alpha) == 2
    found.settings(tuple(map(ModelFile.of, paths)), values={}).save(world / "two.json")
    loaded = Settings.load(world / "two.json")
    tuned = [name for name in evaluate(dump, loaded, models, "heldout").names if "tuned" in name]
    assert tuned == ["parallel-rescored tuned"] and loaded.trees is None
    refuses(ValueError, lambda: loaded.calibrated("open"), "2")


def test_settings_are_kept(world, tuned, tmp_path):
    settings = settings_of(world, tuned, seed=7)
    settings.save(world / "sub" / "s.json")
    loaded = Settings.load(world / "sub" / "s.json")
    assert json.loads((world / "sub" / "s.json").read_text())["models"][0]["path"] == "../lm.ngram"
    assert loaded.to_json(tmp_path) == settings.to_json(tmp_path)
    dump = Dump.open(world / "dump")
    assert loaded.is_tuned_on(dump)
    block = next(dump.blocks("first"))
    own = Rescorer(NGram.open(world / "lm.ngram"), calibration=tuned.trees.weights["open"].overall)
    trees = [one.tree(block.sausages()[0], block.history(0, 50), 8) for one in (own, loaded.calibrated("open"))]
    assert trees[0].tokens.tolist() == trees[1].tokens.tolist() and trees[0].logq.tolist() == trees[1].logq.tolist()
    assert loaded.calibration("closed", "first") == tuned.trees.weights["closed"].by_task["first"]
    assert loaded.calibration("closed", "another") == tuned.trees.weights["closed"].overall
    refuses(ValueError, lambda: loaded.calibration("ajar"), "'ajar'")


def test_rows_of_tasks_are_those_of_their_calibrations(world, tuned):
    dump, model = Dump.open(world / "dump"), NGram.open(world / "lm.ngram")
    result = evaluate(dump, settings_of(world, tuned), [model], "heldout")
    for task in result.tasks:
        own = rows.trees(Rescorer(model, calibration=tuned.trees.weights["open"].by_task[task.task]), {"x": 16})
        (alone,) = replay_dump(dump, [own], tasks=[task.task], split=tuned.split.part("heldout")).tasks
        assert task.passes["blend tuned by task 16"].tolist() == alone.passes["x"].tolist()
    drafters = heldout_json(result, 3)["drafters"]
    assert drafters["blend tuned by task 16"]["difference"]["against"] == "blend tuned 16"
    assert drafters["tree tuned 64"]["difference"]["against"] == "tree 64" and "difference" not in drafters["tree 64"]


def test_threads_change_nothing(world, tuned):
    found = tune(Dump.open(world / "dump"), NGram.open(world / "lm.ngram"), paths=4, per_task=True, threads=3)
    assert found == tuned


def test_refusals(world, tmp_path):
    dump, model = Dump.open(world / "dump"), NGram.open(world / "lm.ngram")
    refuses(ValueError, lambda: tune(dump, []), "tune")
    refuses(ValueError, lambda: tune(dump, model, split=Split.of_dump(dump, 0)), "tune")
    cli.make_dump(tmp_path / "other", count=8)
    refuses(ValueError, lambda: tune(Dump.open(tmp_path / "other"), model, split=Split.of_dump(dump)), "split")
    refuses(ValueError, lambda: ModelFile.of("x.arpa"), "x.arpa")


@pytest.fixture(scope="module")
def good(world, tuned) -> str:
    settings_of(world, tuned).save(world / "good.json")
    return (world / "good.json").read_text()


@pytest.mark.parametrize(
    "path, value, message",
    [
        ("format", "other", ["format", "'other'"]),
        ("version", 2, ["version", "3", "2"]),
        ("more", 1, ["'more'"]),
        ("models", [], ["models"]),
        ("models", [{"path": "a", "bytes": 1, "crc32": 1}] * 65, ["models", "64"]),
        ("models.0.path", "", ["models[0]", "''"]),
        ("slots", 0, ["top_k", "6"]),
        ("slots", 4, ["4", "3"]),
        ("paths.way", "guessed", ["paths.way", "scalar", "fitted", "'guessed'"]),
        ("paths.alpha", [[1, 2]], ["paths", "2"]),
        ("paths.head", [math.nan], ["NaN"]),
        ("paths.head", [10**400], ["paths.head[0]", "1000"]),
        ("scalar_alpha.trees", 1001, ["scalar_alpha['trees']", "1001"]),
        ("trees.open.overall.head", [0.1, 0.2], ["calibration"]),
        ("split", {}, ["split.dump_sha256"]),
        ("tokenizer_sha256", "xyz", ["tokenizer_sha256", "'xyz'"]),
        ("seed", 1 << 64, ["seed", "18446744073709551616"]),
        ("program", "x" * 101, ["program"]),
    ],
)
def test_hostile_settings(good, world, path, value, message):
    (world / "bad.json").write_text(json.dumps(changed(json.loads(good), path, value)))
    with refused(ValueError, "bad.json", *message):
        Settings.load(world / "bad.json")


@pytest.mark.parametrize("content, named", [(b"", ["Expecting"]), (b"[]", ["list"]), (b"\xff\xfe{}", [])])
def test_files_that_are_no_settings(tmp_path, content, named):
    (tmp_path / "s.json").write_bytes(content)
    refuses(ValueError, lambda: Settings.load(tmp_path / "s.json"), "s.json", *named)


@pytest.fixture(scope="module", params=["model", "none"])
def lm(request, headless) -> NGram | None:
    return NGram.open(headless / "lm.ngram") if request.param == "model" else None


@pytest.fixture(scope="module")
def blended(headless, lm):
    told = []
    found = tune(Dump.open(headless / "dump"), lm or (), advance=told.append)
    assert len(told) == len(found.trees.tried["blend"]) == 2
    return found


def test_the_best_of_what_was_tried_without_heads(headless, lm, blended):
    dump = Dump.open(headless / "dump")
    part = blended.split.part("tune")
    blocks = [block for task in dump.tasks for block in part.blocks(dump, task)]
    fitted = structs.replace(HEADLESS, text=fit_shares(blocks, lm or NGram.uniform(dumps.V)))
    tried = blended.trees.tried["blend"]
    assert list(tried) == [HEADLESS, fitted]
    for calibration, found in tried.items():
        drafter = rows.trees(blend_rescorer(dumps.V, lm, calibration), {"16": 16, "64": 64})
        tasks = replay_dump(dump, [drafter], split=part).tasks
        value = np.mean([math.log(one.tallies[name].block_efficiency) for one in tasks for name in drafter.names])
        assert found == pytest.approx(value, abs=1e-12)
    assert tried[blended.trees.weights["blend"].overall] == max(tried.values())


def test_shares_that_draft_worse_are_not_kept(headless, monkeypatch):
    never = ((-20.0, 0.0, 0.0),) * len(HEADLESS.text)
    monkeypatch.setattr("rescore.decode.tuning.tune.fit_shares", lambda *_: never)
    found = tune(Dump.open(headless / "dump"))
    tried = found.trees.tried["blend"]
    assert found.trees.weights["blend"].overall == HEADLESS
    assert tried[HEADLESS] > tried[structs.replace(HEADLESS, text=never)]


def test_settings_without_heads_are_kept_and_replayed(headless, lm, blended):
    dump, best = Dump.open(headless / "dump"), blended.trees.weights["blend"].overall
    files = (ModelFile.of(headless / "lm.ngram"),) if lm else ()
    blended.settings(files, values={"blend 16": 1.5}, seed=7).save(headless / "sub" / "s.json")
    loaded = Settings.load(headless / "sub" / "s.json")
    assert loaded.calibration("blend") == best and loaded.split == blended.split
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


def test_refusals_without_heads(headless):
    dump, heads = Dump.open(headless / "dump"), Dump.open(headless / "heads")
    refuses(ValueError, lambda: tune(heads), "tune")
    refuses(ValueError, lambda: tune(dump, [NGram.open(headless / "lm.ngram")] * 2), "tune", "2")
    refuses(ValueError, lambda: tune(dump, split=Split.of_dump(dump, 0)), "tune")
    refuses(ValueError, lambda: tune(dump, NGram.uniform(60)), "60", "50")


@pytest.fixture(scope="module")
def good_blend(headless) -> dict:
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
def test_hostile_settings_without_heads(good_blend, headless, path, value, message):
    with refused(ValueError, *message):
        Settings.from_json(changed(good_blend, path, value), headless)


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
