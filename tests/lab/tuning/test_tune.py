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
from support.refusals import refuses

from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.blended_drafter import blend_rescorer
from rescore.decode.draft.calibration import ALIKE, HEADLESS, Calibration
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import ModelFile, PathWeights, Settings
from rescore.decode.lab.replay.rows import Budgets, path_replay, rows_of, tree_replay
from rescore.decode.lab.replay.run import replay_dump
from rescore.decode.lab.tuning.fit import fit_calibration
from rescore.decode.lab.tuning.fit_shares import fit_shares
from rescore.decode.lab.tuning.tune import FACTORS, evaluate, heldout_json, mean_efficiency, tune
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def read(world):
    return Dump.open(world / "dump"), NGram.open(world / "lm.ngram")


@pytest.fixture(scope="module")
def read_headless(headless):
    return Dump.open(headless / "dump"), NGram.open(headless / "lm.ngram")


@pytest.fixture(scope="module")
def tuned(read):
    told = []
    found = tune(*read, paths=4, advance=told.append)
    assert told and all(isinstance(one, str) for one in told)
    return found


def blocks_of(dump, part) -> list:
    return [block for task in dump.tasks for block in part.blocks(dump, task)]


def log_efficiency(dump, part, drafter) -> float:
    tasks = replay_dump(dump, [drafter], split=part).tasks
    return np.mean([math.log(task.tallies[name].block_efficiency) for task in tasks for name in drafter.names])


def settings_of(world, found, **changes) -> Settings:
    files = (ModelFile.of(world / "lm.ngram"),)
    return found.settings(files, values={"base": 1.0}, **changes)


def of_the_tuning_part(dump, model) -> tuple:
    """All that tuning on this dump says before the held-out part is read."""
    found = tune(dump, model, paths=4)
    values = mean_efficiency(evaluate(dump, found.settings((), values={}), [model], "tune"))
    return found.paths, found.trees, found.split.tune, values


def test_nothing_of_the_held_out_part_is_read(read, tmp_path):
    dump, model = read
    made = cli.make_dump(tmp_path / "same")
    before = of_the_tuning_part(dump, model)
    seen = Counter[str]()
    for one in made:
        seen[one["task"]] += 1
        if seen[one["task"]] > before[2][one["task"]]:
            one["tokens"], one["topk_ids"] = one["tokens"][::-1].copy(), one["topk_ids"][..., ::-1].copy()
    assert sum(before[2].values()) < len(made)
    dumps.write(tmp_path / "other", "forced", made)
    assert of_the_tuning_part(Dump.open(tmp_path / "other"), model) == before
    made[0]["topk_ids"] = made[0]["topk_ids"][..., ::-1].copy()
    dumps.write(tmp_path / "changed", "forced", made)
    assert of_the_tuning_part(Dump.open(tmp_path / "changed"), model) != before


def test_the_best_of_what_was_tried(read, tuned):
    (dump, model), part = read, tuned.split.part("tune")
    default, *fitted = tuned.paths.values
    assert default == PathWeights(head=(1.0,), alpha=((DEFAULT_ALPHA,),)) and len(fitted) >= 2
    for weights, value in tuned.paths.values.items():
        drafter = path_replay(weights.rescorer([model]), {"p": 4})
        assert log_efficiency(dump, part, drafter) == pytest.approx(value, abs=1e-12)
    for calibration, value in tuned.trees.values.items():
        drafter = tree_replay(Rescorer(model, calibration=calibration, least=ALIKE), {"16": 16, "64": 64})
        assert log_efficiency(dump, part, drafter) == pytest.approx(value, abs=1e-12)
    for tried in (tuned.paths, tuned.trees):
        assert tried.values[tried.best] == max(tried.values.values())
    assert [one.text for one in tuned.trees.values] == [None, fit_shares(blocks_of(dump, part), model)]


@pytest.mark.parametrize("top", FACTORS)
def test_the_common_factor_of_alpha_climbs_a_hill(read, monkeypatch, top):
    """From 1 to the factor whose paths are best; a hill between has one top."""

    def of_paths(self, trial, weights):
        return (
            -abs(FACTORS.index(round(weights.alpha[0][0], 9)) - FACTORS.index(top)) if len(weights.head) > 1 else -9.0
        )

    monkeypatch.setattr("rescore.decode.lab.tuning.tune.TrialReplays.of_paths", of_paths)
    monkeypatch.setattr("rescore.decode.lab.tuning.tune.fit_weights", lambda *_, **__: (np.ones(3), np.ones((1, 3))))
    assert tune(*read, paths=4).paths.best.alpha == ((top,) * 3,)


def test_calibrations_are_fitted_to_the_tuning_part(read, tuned):
    (dump, model), part = read, tuned.split.part("tune")
    for calibration in tuned.trees.values:
        assert calibration == fit_calibration(blocks_of(dump, part), model, text=calibration.text)


def test_several_models(world, read):
    dump, paths = read[0], [world / name for name in ("lm.ngram", "b.ngram")]
    models = [NGram.open(path) for path in paths]
    found = tune(dump, models, paths=4)
    assert found.trees is None and len(found.paths.best.alpha) == 2
    found.settings(tuple(map(ModelFile.of, paths)), values={}).save(world / "two.json")
    loaded = Settings.load(world / "two.json")
    tuned = [name for name in evaluate(dump, loaded, models, "heldout").names if "tuned" in name]
    assert tuned == ["parallel-rescored tuned"] and loaded.trees is None
    refuses(ValueError, lambda: loaded.calibrated(), "2")


def test_settings_are_kept(world, read, tuned, tmp_path):
    (dump, model), settings = read, settings_of(world, tuned, seed=7)
    settings.save(world / "sub" / "s.json")
    loaded = Settings.load(world / "sub" / "s.json")
    assert json.loads((world / "sub" / "s.json").read_text())["models"][0]["path"] == "../lm.ngram"
    assert loaded.to_json(tmp_path) == settings.to_json(tmp_path)
    assert loaded.is_tuned_on(dump)
    block = next(dump.blocks("first"))
    for is_open in (True, False):
        own = Rescorer(model, calibration=structs.replace(tuned.trees.best, open=is_open))
        both = (own, loaded.calibrated(open=is_open))
        mine, theirs = (one.tree(block.sausages()[0], block.history(0, 50), 8) for one in both)
        assert mine.tokens.tolist() == theirs.tokens.tolist() and mine.logq.tolist() == theirs.logq.tolist()


def test_tuned_rows_are_those_of_the_calibration(world, read, tuned):
    """Open, closed, and without the heads."""
    (dump, model), best = read, tuned.trees.best
    result = evaluate(dump, settings_of(world, tuned), [model], "heldout")
    for name, calibration, heads in (
        ("blend tuned 16", best, True),
        ("tree tuned 16", structs.replace(best, open=False), True),
        ("blend-without-heads tuned 16", Calibration(text=best.text).without_heads(), False),
    ):
        own = tree_replay(Rescorer(model, calibration=calibration), {"x": 16}, heads=heads)
        for task, alone in zip(result.tasks, replay_dump(dump, [own], split=tuned.split.part("heldout")).tasks):
            assert task.passes[name].tolist() == alone.passes["x"].tolist()
    drafters = heldout_json(result, 3)["drafters"]
    assert drafters["tree tuned 64"]["difference"]["against"] == "tree 64" and "difference" not in drafters["tree 64"]


def test_threads_change_nothing(read, tuned):
    assert tune(*read, paths=4, threads=3) == tuned


def test_refusals(read, read_headless, headless, tmp_path):
    cli.make_dump(tmp_path / "other", count=8)
    other, (dump, model), (bare, lm) = Dump.open(tmp_path / "other"), read, read_headless
    refuses(ValueError, lambda: tune(dump, []), "tune")
    refuses(ValueError, lambda: tune(dump, model, split=Split.of_dump(dump, 0)), "tune")
    refuses(ValueError, lambda: tune(other, model, split=Split.of_dump(dump)), "split")
    refuses(ValueError, lambda: ModelFile.of("x.arpa"), "x.arpa")
    refuses(ValueError, lambda: tune(Dump.open(headless / "heads")), "tune")
    refuses(ValueError, lambda: tune(bare, [lm] * 2), "tune", "2")
    refuses(ValueError, lambda: tune(bare, split=Split.of_dump(bare, 0)), "tune")
    refuses(ValueError, lambda: tune(bare, NGram.uniform(60)), "60", "50")


@pytest.fixture(scope="module")
def good(world, headless, read_headless, tuned) -> dict[str, dict]:
    blend = tune(*read_headless).settings((ModelFile.of(headless / "lm.ngram"),), values={})
    blend = structs.replace(blend, trees=HEADLESS)
    return {"heads": settings_of(world, tuned).to_json(world), "no heads": blend.to_json(headless)}


@pytest.mark.parametrize(
    "kind, path, value, message",
    [
        ("heads", "format", "other", ["format", "'other'"]),
        ("heads", "version", 3, ["version", "4", "3"]),
        ("heads", "more", 1, ["'more'"]),
        ("heads", "models", [], ["models"]),
        ("heads", "models", [{"path": "a", "bytes": 1, "crc32": 1}] * 65, ["models", "64"]),
        ("heads", "models.0.path", "", ["models[0]", "''"]),
        ("heads", "slots", 0, ["top_k", "6"]),
        ("heads", "slots", 4, ["4", "3"]),
        ("heads", "paths.way", "fitted", ["'way'"]),
        ("heads", "paths.alpha", [[1, 2]], ["paths", "2"]),
        ("heads", "paths.head", [10**400], ["paths.head[0]", "1000"]),
        ("heads", "trees.head", [0.1, 0.2], ["calibration"]),
        ("heads", "trees", None, ["trees", "None"]),
        ("heads", "split", {}, ["split.dump_sha256"]),
        ("heads", "tokenizer_sha256", "xyz", ["tokenizer_sha256", "'xyz'"]),
        ("heads", "seed", 1 << 64, ["seed", "18446744073709551616"]),
        ("heads", "program", "x" * 101, ["program"]),
        ("no heads", "slots", -1, ["slots", "-1"]),
        ("no heads", "slots", 3, ["top_k", "0"]),
        ("no heads", "paths", {"head": [1], "alpha": [[1]]}, ["paths"]),
        ("no heads", "models", [{"path": "a", "bytes": 1, "crc32": 1}] * 2, ["models"]),
        ("no heads", "trees", None, ["trees", "None"]),
        ("no heads", "trees.text", None, ["trees", "null"]),
        ("no heads", "trees.alpha", [1.0, 1.0], ["trees", "(1.0, 1.0)"]),
        ("no heads", "trees.open", False, ["trees"]),
        ("no heads", "trees.text", [[0, 1]], ["text[0]", "3", "[0, 1]"]),
        ("no heads", "trees.text", [[0, 1, math.nan]], ["text[0]", "[2]", "nan"]),
        ("no heads", "trees.soft", [0.5], ["'soft'"]),
    ],
)
def test_hostile_settings(good, tmp_path, kind, path, value, message):
    hostile = changed(good[kind], path, value)
    refuses(ValueError, lambda: Settings.from_json(hostile, tmp_path, "bad.json"), "bad.json", *message)


@pytest.mark.parametrize(
    "content, named", [(b"", ["Expecting"]), (b"[]", ["list"]), (b'{"paths": NaN}', ["NaN"]), (b"\xff\xfe{}", [])]
)
def test_files_that_are_no_settings(tmp_path, content, named):
    (tmp_path / "s.json").write_bytes(content)
    refuses(ValueError, lambda: Settings.load(tmp_path / "s.json"), "s.json", *named)


@pytest.fixture(scope="module", params=["model", "none"])
def lm(request, read_headless) -> NGram | None:
    return read_headless[1] if request.param == "model" else None


@pytest.fixture(scope="module")
def blended(read_headless, lm):
    told = []
    found = tune(read_headless[0], lm or (), advance=told.append)
    assert len(told) == 1 + len(found.trees.values) == 3
    return found


def test_the_best_of_what_was_tried_without_heads(read_headless, lm, blended):
    dump, part, tried = read_headless[0], blended.split.part("tune"), blended.trees.values
    shares = fit_shares(blocks_of(dump, part), lm or NGram.uniform(dumps.V))
    assert list(tried) == [HEADLESS, structs.replace(HEADLESS, text=shares)]
    for calibration, found in tried.items():
        drafter = tree_replay(blend_rescorer(dumps.V, lm, calibration), {"16": 16, "64": 64})
        assert found == pytest.approx(log_efficiency(dump, part, drafter), abs=1e-12)
    assert tried[blended.trees.best] == max(tried.values())


def test_shares_that_draft_worse_are_not_kept(read_headless, monkeypatch):
    never = ((-20.0, 0.0, 0.0),) * len(HEADLESS.text)
    monkeypatch.setattr("rescore.decode.lab.tuning.tune.fit_shares", lambda *_: never)
    found = tune(read_headless[0])
    tried = found.trees.values
    assert found.trees.best == HEADLESS
    assert tried[HEADLESS] > tried[structs.replace(HEADLESS, text=never)]


def test_settings_without_heads_are_kept_and_replayed(headless, read_headless, lm, blended):
    dump, best = read_headless[0], blended.trees.best
    files = (ModelFile.of(headless / "lm.ngram"),) if lm else ()
    blended.settings(files, values={"blend 16": 1.5}, seed=7).save(headless / "sub" / "s.json")
    loaded = Settings.load(headless / "sub" / "s.json")
    assert loaded.calibration == best and loaded.split == blended.split
    rescorer = loaded.calibrated()
    assert rescorer.calibration == best and rescorer.models[0].order == (3 if lm else 1)
    refuses(ValueError, lambda: loaded.rescorer(), "paths")
    drafters = rows_of(dump, Rescorer(lm or ()), Budgets(), settings=loaded)
    result = replay_dump(dump, drafters, split=loaded.split.part("heldout"))
    for name in ("blend-without-lm 16", "blend-without-lm tuned 64", "lm-alone 16"):
        assert (name in result.names) == (lm is not None)
    for task in evaluate(dump, loaded, [lm] if lm else [], "heldout").tasks:
        (own,) = (one for one in result.tasks if one.task == task.task)
        for name in ("blend 16", "blend 64", "blend tuned 16", "blend tuned 64"):
            assert task.passes[name].tolist() == own.passes[name].tolist()


def test_default_weights_of_settings_keep_their_own_model(read_headless):
    """Beside another --lm: the tuned row is that of the settings' model, the other that of the given one."""
    dump, mine = read_headless
    other = NGram.uniform(mine.vocab_size)
    settings = structs.replace(tune(dump, mine).settings((), values={}), trees=HEADLESS)
    budgets, only = Budgets(nodes=(16,)), ("blend",)
    (given, tuned) = rows_of(dump, Rescorer(other), budgets, settings=settings, tuned=[mine], only=only)
    block = next(dump.blocks())
    for row, lm in ((given, other), (tuned, mine)):
        assert row.make(block).rescorer.models[0].order == lm.order
    assert other.order != mine.order
