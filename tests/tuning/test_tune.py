"""Tuning: the held-out part is not read, the result is the best of the trials, and settings survive a round trip."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from msgspec import structs
from support import cli
from support.changes import changed
from support.refusals import refused, refuses

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import ModelFile, PathWeights, Settings
from rescore.decode.replay import rows
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
