"""`rescore calm`: exits trained, a threshold calibrated, LOSSY text; and what is refused."""

import json

import numpy as np
import pytest
import torch
from support import cli, tiny_transformers
from support.tiny_blockwise import untrained, write_tokenizer
from support.tiny_transformers import V
from support.training import training_world

from rescore.decode.calm.calibration import read_calibrated, rouge_l_risk
from rescore.decode.calm.learn_then_test import hoeffding_bentkus
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Stopping
from rescore.decode.models.open import open_model

END, DEPTH = 2, 5
MODEL = ("--threads", "1", "--dtype", "float32")
TEXTS = (*MODEL, "--max-tokens", "12", "--rows", "7")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a llama, a T5, a model of ours, and prompts."""
    folder = training_world(tmp_path_factory.mktemp("calm"), "llama", count=40, num_hidden_layers=DEPTH)
    tiny_transformers.build("t5", num_layers=DEPTH).save_pretrained(folder / "t5")
    cli.make_tokenizer(folder / "t5" / "tokenizer.json", V)
    untrained().save(folder / "model.safetensors", dtype=torch.float32)
    write_tokenizer(folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="module")
def trained(world):
    asked = ["calm", "train", world / "model", "--prompts", world / "prompts.jsonl", *TEXTS, "--layers", "2,3,4"]
    assert cli.main([*map(str, asked), "-o", str(world / "exits"), "--json", str(world / "train.json")]) == 0
    return world / "exits"


def calibrate(world, *words, model: str = "model") -> list:
    return ["calm", "calibrate", world / model, "--prompts", world / "prompts.jsonl", *TEXTS, *words]


def test_training_says_how_good_exits_are(world, trained):
    found = json.loads((world / "train.json").read_text())
    assert [score["layers"] for score in found["scores"]] == [2, 3, 4]
    assert json.loads((trained / "exits.json").read_text())["scores"] == found["scores"]


@pytest.mark.parametrize("confidence", ["softmax", "saturation", "classifier"])
def test_a_calibration_is_its_texts_measured(world, trained, capsys, confidence):
    path = world / f"{confidence}.json"
    asked = calibrate(world, "--exits", trained, "--confidence", confidence, "--delta", "0.6", "--epsilon", "0.3")
    found = cli.figures(capsys, *asked, "--thresholds", "1,0.9,0.5,0.1,0", "--every", "-o", path)
    assert {**json.loads(path.read_text()), **{name: found[name] for name in ("format", "version")}} == found
    assert [one["threshold"] for one in found["tested"]] == [1, 0.9, 0.5, 0.1, 0]
    layers = [one["layers"] for one in found["tested"]]
    assert found["tested"][0]["risk"] == 0.0 and layers == sorted(layers, reverse=True) and 2 < layers[-1] < DEPTH
    tested = [one for one in found["tested"] if one["valid"] is not None]
    for one in tested:
        assert one["p_value"] == pytest.approx(hoeffding_bentkus(np.mean(one["losses"]), found["texts"], 0.6), rel=1e-3)
        assert one["valid"] == (one["p_value"] <= 0.3) and len(one["losses"]) == found["texts"]
    assert all(one["valid"] for one in tested[:-1])
    assert found["threshold"] == [one["threshold"] for one in tested if one["valid"]][-1]
    setting = read_calibrated(path)
    assert (setting.confidence, setting.exits, setting.threshold.value) == (confidence, (2, 3, 4), found["threshold"])


def test_lossy_text_is_called_so_and_compared_with_the_model_s_own(world, trained, capsys):
    asked = f"calm generate {world}/model {' '.join(MODEL)} --exits {trained} --threshold 0.02 --compare --max-tokens 9"
    found = cli.figures(capsys, asked, "w5 w6", "w7")
    assert found["guarantee"] == "LOSSY: uncalibrated, no bound on the difference"
    options = Options(max_tokens=9, stopping=Stopping(tokens=frozenset((END,))))
    own = generate(open_model(world / "model", dtype=torch.float32).target, [[5, 6], [7]], None, options)
    for row, full in zip(found["texts"], own, strict=True):
        assert len(row["layers"]) == len(row["tokens"]) and row["layers"][0] == DEPTH
        assert row["risk"] == rouge_l_risk(np.array(row["tokens"]), full.tokens)
    assert min(min(row["layers"]) for row in found["texts"]) < DEPTH
    assert "LOSSY" in cli.done(capsys, asked, "w5").err


def test_a_calibration_is_followed(world, trained, capsys):
    path = world / "followed.json"
    words = ("--exits", trained, "--delta", "0.9", "--epsilon", "0.3", "--thresholds", "1,0.3", "--decay", "4")
    cli.done(capsys, *calibrate(world, *words, "-o", path))
    asked = ["calm", "generate", world / "model", *MODEL, "--exits", trained, "--calibration", path, "w5"]
    found = cli.figures(capsys, *asked, "--max-tokens", "9")
    assert found["guarantee"] == f"LOSSY: calibrated, {path}" and found["threshold"] == 0.3
    assert read_calibrated(path).threshold.decay == 4.0


def test_an_encoder_decoder_is_calibrated_with_states_as_they_are(world, capsys):
    words = ("--confidence", "saturation", "--layers", "2,4", "--thresholds", "1,0", "--every")
    found = cli.figures(capsys, *calibrate(world, *words, "-o", world / "t5.json", model="t5"))
    assert found["exits"] == [2, 4] and found["tested"][-1]["layers"] == 2.0


REFUSED = [
    ("GENERATE", 2, ["--calibration", "--threshold"]),
    ("GENERATE --threshold 0.5 --confidence classifier", 1, ["classifier"]),
    ("GENERATE --threshold 0.5 --exits EXITS --layers 1,2", 2, ["--layers"]),
    ("GENERATE --threshold 0.5 --layers 5", 1, ["exits", "1", "[5]"]),
    ("GENERATE --calibration x --decay 4", 2, ["--calibration"]),
    ("calm generate OURS --threshold 0.5 w5", 1, ["blockwise"]),
    ("calm train T5 PROMPTS", 1, ["language"]),
    ("calm train MODEL PROMPTS --limit 2", 1, ["10"]),
    ("calm calibrate MODEL PROMPTS --thresholds 0.5,0.6", 2, ["--thresholds", "'0.5,0.6'"]),
    ("calm calibrate MODEL PROMPTS --delta 1", 2, ["--delta", "1"]),
    ("calm calibrate MODEL PROMPTS --skip 20", 1, ["--skip", "20"]),
]


@pytest.mark.parametrize("call, status, named", REFUSED, ids=[call for call, _, _ in REFUSED])
def test_what_cannot_be_is_refused(world, trained, capsys, call, status, named):
    names = {"GENERATE": "calm generate MODEL w5", "PROMPTS": f"--prompts {world}/prompts.jsonl -o {world}/no"}
    names |= {"MODEL": f"{world}/model {' '.join(TEXTS)}", "T5": f"{world}/t5", "EXITS": str(trained)}
    names["OURS"] = f"{world}/model.safetensors"
    for name, value in names.items():
        call = call.replace(name, value)
    call = call.replace("--rows 7", "") if "generate" in call else call
    cli.refusal(capsys, call, status=status, names=named)
    assert not (world / "no").exists()


FILE_FAULTS = [
    ({"format": "other"}, ["format", "'rescore calm'", "'other'"]),
    ({"threshold": None}, ["threshold"]),
    ({"threshold": 1.5}, ["value", "0", "1.5"]),
    ({"confidence": "luck"}, ["confidence", "'luck'"]),
]


@pytest.mark.parametrize(("changed", "message"), FILE_FAULTS)
def test_calibrations_that_are_not_are_refused(world, capsys, changed, message):
    good = dict(format="rescore calm", version=1, threshold=0.5, exits=[2], confidence="softmax", decay=None, length=9)
    path = world / "bad.json"
    path.write_text(json.dumps({**good, **changed}))
    asked = ["calm", "generate", world / "model", *MODEL, "--calibration", path, "w5"]
    cli.refusal(capsys, *asked, names=message)
