"""Tuning on dumps without heads: the result is the best of the trials, uses the tuning part only, and survives a round
trip through settings.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from support import cli, dumps, headless_dumps

from rescore.decode.replay.drafters.calibrated import CalibratedReplay
from rescore.decode.replay.run import replay_dump
from rescore.decode.replay.split import Split
from rescore.decode.rescoring.calibrated import CalibratedTrees
from rescore.decode.rescoring.calibration import HEADLESS
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.tuning import tune_blend as module
from rescore.decode.tuning.model_file import ModelFile
from rescore.decode.tuning.settings import Settings
from rescore.decode.tuning.tune import tune
from rescore.decode.tuning.tune_blend import REACH, START, SWEEPS, tune_blend
from rescore.decode.tuning.tune_report import evaluate_blend, heldout_json
from rescore.decode.tuning.tuned_drafters import run_drafters
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune_blend")
    cli.make_model(folder / "a.ngram", headless_dumps.write(folder / "dump"))
    cli.make_dump(folder / "heads")
    return folder


@pytest.fixture(scope="module", params=["model", "none"])
def lm(request, world) -> NGram | None:
    return NGram.open(world / "a.ngram") if request.param == "model" else None


@pytest.fixture(scope="module")
def tuned(world, lm):
    told = []
    found = tune_blend(Dump.open(world / "dump"), lm, advance=told.append)
    assert len(told) == len(found.tried) and told[0].startswith("trial 1: strength of 0 tokens 5")
    return found


def test_the_best_of_what_was_tried(world, lm, tuned):
    dump = Dump.open(world / "dump")
    for calibration in (tuned.calibration, START):
        rescorer = CalibratedTrees(lm or NGram.uniform(dumps.V), calibration)
        drafter = CalibratedReplay(rescorer=rescorer, budgets={"16": 16, "64": 64})
        tasks = replay_dump(dump, [drafter], split=tuned.split.part("tune")).tasks
        value = np.mean([math.log(one.tallies[name].block_efficiency) for one in tasks for name in drafter.names])
        assert tuned.tried[calibration] == pytest.approx(value, abs=1e-12)
    assert tuned.tried[tuned.calibration] == max(tuned.tried.values()) > tuned.tried[START]
    assert START.shares.tolist() == HEADLESS.shares.tolist() and replace(START, soft=HEADLESS.soft) == HEADLESS
    for one in tuned.tried:
        assert one == replace(HEADLESS, text=one.text, soft=one.soft) and one.soft[0] == 0
    weights = 2 * len(HEADLESS.text) - 1
    assert weights < len(tuned.tried) <= 1 + len(SWEEPS) * weights * 2 * REACH


def test_a_planted_hill_is_climbed(world, monkeypatch):
    """Independent weights are each found to within the last step size."""
    text, soft = (14.0, 0.2, 0.03, 2.0, 0.25, 0.8), (0.0, 0.4, 0.75, 0.2, 1.0, 0.3)

    def value(self, name, one):
        far = [abs(math.log(mine / best)) for mine, best in zip(one.text, text)]
        return -sum(far) - sum(abs(mine - best) for mine, best in zip(one.soft, soft))

    monkeypatch.setattr(module._Search, "_value", value)
    found = tune_blend(Dump.open(world / "dump")).calibration
    (*_, (factor, difference)) = SWEEPS
    assert all(abs(math.log(mine / best)) <= math.log(factor) for mine, best in zip(found.text, text))
    assert found.text[3] == 2.0 and found.text[5] == 0.8  # they started at their best
    assert all(abs(mine - best) <= difference / 2 + 1e-9 for mine, best in zip(found.soft, soft))


def test_nothing_of_the_held_out_part_is_read(world, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "SWEEPS", SWEEPS[:1])
    made, before = headless_dumps.sequences(), tune_blend(Dump.open(world / "dump"))
    split = before.split.tune
    seen: dict[str, int] = {}
    for one in made:
        seen[one["task"]] = seen.get(one["task"], 0) + 1
        if seen[one["task"]] > split[one["task"]]:
            one["tokens"] = one["tokens"][::-1].copy()
    headless_dumps.write(tmp_path / "other", made)
    assert Split.of_dump(Dump.open(tmp_path / "other")).tune == split and sum(split.values()) < len(made)
    assert tune_blend(Dump.open(tmp_path / "other")).tried == before.tried
    made[0]["tokens"] = made[0]["tokens"][::-1].copy()
    headless_dumps.write(tmp_path / "changed", made)
    assert tune_blend(Dump.open(tmp_path / "changed")).tried != before.tried


def test_settings_are_kept_and_replayed(world, lm, tuned):
    dump = Dump.open(world / "dump")
    files = (ModelFile.of(world / "a.ngram"),) if lm else ()
    Settings.of_blend(tuned, dump, files, values={"blend 16": 1.5}, seed=7).save(world / "sub" / "s.json")
    loaded = Settings.load(world / "sub" / "s.json")
    assert loaded.calibration("blend") == tuned.calibration and loaded.split == tuned.split
    assert (loaded.slots, loaded.top_k, loaded.p, loaded.paths, loaded.seed) == (0, 0, 0, None, 7)
    rescorer = loaded.calibrated("blend")
    assert rescorer.calibrated.calibration == tuned.calibration and rescorer.models[0].order == (3 if lm else 1)
    with pytest.raises(ValueError, match="expected trees of kind blend, got 'open'"):
        loaded.calibration("open")
    with pytest.raises(ValueError, match="tuned for a model without heads, which has only trees of kind 'blend'"):
        loaded.rescorer()
    held_out = evaluate_blend(dump, loaded, lm, "heldout")
    assert held_out.names == ["blend 16", "blend 64", "tuned blend 16", "tuned blend 64"]
    rows = heldout_json(held_out, 7)["drafters"]
    assert rows["tuned blend 64"]["difference"]["against"] == "blend 64" and "difference" not in rows["blend 64"]
    result = replay_dump(dump, run_drafters(dump, Rescorer(lm or ()), None, loaded), split=loaded.split.part("heldout"))
    own = (
        ["tuned blend without soft counts 64", "tuned blend without LM 64"]
        if lm
        else ["tuned blend without soft counts 64"]
    )
    assert set(own) < set(result.names) and ("blend without LM 16" in result.names) == (lm is not None)
    for mine, theirs in zip(held_out.tasks, result.tasks):
        for name in held_out.names:
            assert mine.passes[name].tolist() == theirs.passes[name].tolist()


def test_refusals(world):
    dump, heads = Dump.open(world / "dump"), Dump.open(world / "heads")
    with pytest.raises(ValueError, match="tune_blend: expected a dump without heads, got .* with 4: use tune"):
        tune_blend(heads)
    with pytest.raises(ValueError, match="tune: expected a dump with heads, got .* without: use tune_blend"):
        tune(dump, NGram.open(world / "a.ngram"))
    with pytest.raises(ValueError, match="tune: expected at least one sequence to tune on, got none"):
        tune_blend(dump, split=Split.of_dump(dump, 0))
    with pytest.raises(ValueError, match="the model has 60 tokens, the dump .* has 50"):
        tune_blend(dump, NGram.uniform(60))


@pytest.fixture(scope="module")
def good(world) -> dict:
    dump = Dump.open(world / "dump")
    found = module.TunedBlend(calibration=START, tried={}, split=Split.of_dump(dump))
    settings = Settings.of_blend(found, dump, (ModelFile.of(world / "a.ngram"),), values={})
    return settings.to_json(world)


def test_settings_of_another_model_are_refused(world, good):
    settings = Settings.from_json(good, world)
    settings.check(vocab_size=50, slots=0)
    with pytest.raises(ValueError, match="for a model without heads, got a model with heads of 3 slots: tune on"):
        settings.check(vocab_size=50, slots=3)
    with pytest.raises(ValueError, match="tuned for 50 tokens in the vocabulary, got 51"):
        settings.check(vocab_size=51, slots=0)
    with pytest.raises(ValueError, match="for a model with heads of 3 slots, got a model without heads"):
        replace(settings, slots=3).check(vocab_size=50, slots=0)


@pytest.mark.parametrize(
    "path, value, message",
    [
        ("slots", -1, "slots: expected a whole number from 0 to 1024, got -1"),
        ("slots", 3, "scalar_alpha: the key 'paths' is missing"),
        ("top_k", 1, "top_k: expected a whole number from 0 to 0, got 1"),
        ("p", 16, "p: expected a whole number from 0 to 0, got 16"),
        ("paths", {}, "paths: expected null for a model without heads"),
        ("scalar_alpha", {"paths": 1.0}, "scalar_alpha: unknown key 'paths'"),
        ("models", [1, 2], "models: expected a list of 0 to 1"),
        ("models", None, "models: expected a list of 0 to 1"),
        ("trees", None, "trees: expected an object"),
        ("trees", {}, "trees: the key 'blend' is missing"),
        ("trees.open", {}, "trees: unknown key 'open'"),
        ("trees.blend.overall.text", None, "soft: expected at most one share for each order of text"),
        (
            "trees.blend.overall",
            {**HEADLESS.to_json(), "text": None, "soft": []},
            "blend: expected default weights except text",
        ),
        ("trees.blend.overall.head", [0.5], "blend: expected default weights except text"),
        ("trees.blend.overall.alpha", [0.5], "blend: expected default weights except text"),
        ("trees.blend.overall.alpha", [1.0, 1.0], "calibration: expected lattices of 2 slots"),
        ("trees.blend.overall.open", False, "blend: expected default weights except text"),
        ("trees.blend.overall.text", [0.0], "soft: expected at most|text: expected numbers from 1e-06"),
        ("trees.blend.overall.text", [1.0] * 99, "text: expected strengths of 1 to"),
        ("trees.blend.overall.soft", [1.5], "soft: expected numbers from 0 to 1, got 1.5"),
        ("trees.blend.overall.soft", [math.nan], "soft: expected numbers from 0 to 1, got nan"),
        ("trees.blend.by_task", {"first": 3}, "calibration: expected an object with the keys"),
    ],
)
def test_hostile_settings(good, world, path, value, message):
    whole = json.loads(json.dumps(good))
    *folders, name = path.split(".")
    at = whole
    for one in folders:
        at = at[one]
    at[name] = value
    with pytest.raises((ValueError, TypeError), match=message):
        Settings.from_json(whole, world)


def test_files_of_version_1_are_read(good, world, tmp_path):
    found = tune(Dump.open(world / "heads"), cli.make_model(tmp_path / "b.ngram", dumps.sequences()), paths=2)
    settings = Settings.of(found, Dump.open(world / "heads"), (ModelFile.of(tmp_path / "b.ngram"),), values={})
    whole = settings.to_json(tmp_path)
    assert whole["version"] == 2 and Settings.from_json({**whole, "version": 1}, tmp_path) == settings
