"""`rescore train` and `rescore calm`: from a folder and prompts to heads, mask tokens and exits that decode."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from support import cli, tiny_transformers
from support.refusals import assert_named
from support.tiny_transformers import V
from support.training import training_world

from rescore.decode.cli import main
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Stopping
from rescore.decode.models.open import open_model
from rescore.decode.train.calm.calibration import read_calibrated, rouge_l_risk
from rescore.decode.train.calm.learn_then_test import hoeffding_bentkus

END = 2
WORDS = "--max-tokens 16 --slots 3 --rounds 2 --batch 64 --threads 1 --dtype float32".split()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return training_world(tmp_path_factory.mktemp("train"), "qwen2")


def train(folder, out, *words, kind="heads", how=WORDS) -> int:
    asked = ["train", kind, folder / "model", "--prompts", folder / "prompts.jsonl", *how, *words, "-o", out]
    return main([str(word) for word in asked])


def curve(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(world):
    assert train(world, world / "out", "--json", world / "out.json") == 0
    return world / "out"


def test_the_folder_holds_heads_texts_and_the_curve(world, trained):
    found = json.loads((world / "out.json").read_text())
    assert found["heads"] == str(trained / "heads") and found["best"]["step"] > 0
    lines = curve(trained)
    assert lines[0]["step"] == 0 and lines[-1]["step"] == lines[-1]["steps"]
    texts = np.load(trained / "texts.npy")
    assert np.issubdtype(texts.dtype, np.integer) and (texts == END).sum() >= 90 and texts.max() < V
    # Of prompts, the last three tokens are written before a text, and an end after it.
    prompts = [json.loads(line)["prompt"].split() for line in (world / "prompts.jsonl").read_text().splitlines()]
    assert found["tokens"] == len(texts) - sum(min(3, len(prompt)) + 1 for prompt in prompts)


def test_the_same_command_again_trains_nothing_anew(world, trained, capsys):
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*.safetensors")}
    assert train(world, trained) == 0
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*.safetensors")} == before


def test_other_heads_do_not_go_on_from_these(world, trained, tmp_path, capsys):
    own = f"train heads {world}/model --prompts {world}/prompts.jsonl {' '.join(WORDS)}"
    cli.refusal(capsys, f"{own} --start {trained}/heads -o {tmp_path}/out", names=["--slots", "3", "--start"])
    again = f"{own} --temperature 0.5 -o {trained}"
    cli.refusal(capsys, again, names=["states.json", "[0.5]", "[0.0, 0.7]"])
    assert not (tmp_path / "out").exists()


def test_heads_are_trained_further_where_they_were_left(world, trained, tmp_path):
    """The first validation is that of the heads to start from, on the same held-out texts."""
    how = [word for word in WORDS if word not in ("--slots", "3")]
    assert train(world, tmp_path / "out", "--start", trained / "heads", how=how) == 0
    best = min((line["loss"] for line in curve(trained)), key=np.mean)
    np.testing.assert_allclose(curve(tmp_path / "out")[0]["loss"], best, atol=2e-3)  # saved in float16
    first, second = (folder / "heads" for folder in (trained, tmp_path / "out"))
    config, about = (json.loads((folder / "config.json").read_text()) for folder in (first, second))
    assert about["start"]["tokens"] == config["tokens"] and about["slots"] == 3
    ids = [load_file(folder / "heads.safetensors")["draft_vocabulary"] for folder in (first, second)]
    np.testing.assert_array_equal(*ids)


def test_references_can_be_read_instead(world, tmp_path):
    assert train(world, tmp_path / "read", "--read", "--json", tmp_path / "read.json") == 0
    assert json.loads((tmp_path / "read.json").read_text())["tokens"] == 90 * 9


def test_prompts_without_room_for_a_text_are_left_out(world, tmp_path, capsys):
    context = open_model(world / "model").target.context
    lengths = [len(json.loads(line)["prompt"].split()) for line in open(world / "prompts.jsonl")]
    assert train(world, tmp_path, "--max-tokens", context - 5, "--estimate") == 0
    assert_named(capsys.readouterr().err, [sum(one > 5 for one in lengths), "90", "5"])


def test_references_are_cut_where_the_context_ends(world, tmp_path, capsys):
    context = open_model(world / "model").target.context
    lengths = [2 * context if i % 30 == 0 else 9 for i in range(90)]
    rows = [{"prompt": [5, 6, 7 + i % 9], "reference": [8 + i % 20] * n} for i, n in enumerate(lengths)]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert train(world, tmp_path / "out", "--read", "--prompts", tmp_path / "long.jsonl") == 0
    assert_named(capsys.readouterr().err, ["3", context])
    assert len(np.load(tmp_path / "out/texts.npy")) == 87 * 9 + 3 * (context - 3) + 90 * 4  # of prompts and ends


def test_references_are_read_until_there_are_so_many_tokens(world, tmp_path):
    """Of nine tokens each: three texts reach 20; the same command again reads no more."""
    for _ in range(2):
        assert train(world, tmp_path / "out", "--read", "--tokens", "20") == 0
        (shard,) = (tmp_path / "out" / "states").glob("*.safetensors")
        assert sorted(load_file(shard)["numbers"].tolist()) == [0, 1, 2]


OF_LLAMA = "--max-tokens 16 --threads 1 --dtype float32".split()


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return training_world(tmp_path_factory.mktemp("bita"), "llama")


@pytest.fixture(scope="module")
def masked(llama):
    words = "--masks 2 --prompt-tokens 4 --groups 8 --rounds 2 --every 10 --json".split()
    assert train(llama, llama / "out", *words, llama / "out.json", kind="bita", how=OF_LLAMA) == 0
    return llama / "out"


def test_the_folder_holds_mask_tokens_and_the_curve(llama, masked):
    found = json.loads((llama / "out.json").read_text())
    assert found["bita"] == str(masked / "bita" / "tokens")
    assert found["parameters"] == 2 * 32 + 2 * 2 * 2 * 4 * 8  # masks; 2 layers of keys and values, 2 heads of width 8
    lines = curve(masked / "bita")
    assert lines[0]["step"] == 0 and lines[-1]["step"] == lines[-1]["steps"]
    assert found["best"]["loss"] == min((line["loss"] for line in lines), key=sum)
    assert json.loads((masked / "bita" / "tokens" / "config.json").read_text())["base_model"] == "model"


def test_text_with_them_is_the_model_s_own(llama, masked, capsys):
    asked = ("generate", "--model", llama / "model", "--max-tokens", 12, "w4 w5 w6")
    assert cli.done(capsys, *asked, "--heads", masked / "bita" / "tokens").out == cli.done(capsys, *asked).out


def test_heads_and_masks_learn_from_the_same_texts(llama, masked):
    before = {path: path.stat().st_mtime_ns for path in (masked / "states").iterdir()}
    assert train(llama, masked, *"--slots 2 --rounds 1 --batch 64".split(), how=OF_LLAMA) == 0
    assert {path: path.stat().st_mtime_ns for path in (masked / "states").iterdir()} == before
    assert (masked / "heads").exists() and (masked / "bita" / "tokens").exists()


END, DEPTH = 2, 5
MODEL = ("--threads", "1", "--dtype", "float32")
TEXTS = (*MODEL, "--max-tokens", "12", "--rows", "7")


@pytest.fixture(scope="module")
def early(tmp_path_factory):
    """A folder with a llama, a T5 and prompts."""
    folder = training_world(tmp_path_factory.mktemp("calm"), "llama", count=40, num_hidden_layers=DEPTH)
    tiny_transformers.build("t5", num_layers=DEPTH).save_pretrained(folder / "t5")
    cli.make_tokenizer(folder / "t5" / "tokenizer.json", V)
    return folder


@pytest.fixture(scope="module")
def exits(early):
    asked = ["calm", "train", early / "model", "--prompts", early / "prompts.jsonl", *TEXTS, "--layers", "2,3,4"]
    assert cli.main([*map(str, asked), "-o", str(early / "exits"), "--json", str(early / "train.json")]) == 0
    return early / "exits"


def calibrate(early, *words, model: str = "model") -> list:
    return ["calm", "calibrate", early / model, "--prompts", early / "prompts.jsonl", *TEXTS, *words]


def test_training_says_how_good_exits_are(early, exits):
    found = json.loads((early / "train.json").read_text())
    assert [score["layers"] for score in found["scores"]] == [2, 3, 4]
    assert json.loads((exits / "exits.json").read_text())["scores"] == found["scores"]


@pytest.mark.parametrize("confidence", ["softmax", "saturation", "classifier"])
def test_a_calibration_is_its_texts_measured(early, exits, capsys, confidence):
    path = early / f"{confidence}.json"
    asked = calibrate(early, "--exits", exits, "--confidence", confidence, "--delta", "0.6", "--epsilon", "0.3")
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


def test_lossy_text_is_called_so_and_compared_with_the_model_s_own(early, exits, capsys):
    asked = f"calm generate {early}/model {' '.join(MODEL)} --exits {exits} --threshold 0.02 --compare --max-tokens 9"
    found = cli.figures(capsys, asked, "w5 w6", "w7")
    assert found["guarantee"] == "LOSSY: uncalibrated, no bound on the difference"
    options = Options(max_tokens=9, stopping=Stopping(tokens=frozenset((END,))))
    own = generate(open_model(early / "model", dtype=torch.float32).target, [[5, 6], [7]], None, options)
    for row, full in zip(found["texts"], own, strict=True):
        assert len(row["layers"]) == len(row["tokens"]) and row["layers"][0] == DEPTH
        assert row["risk"] == rouge_l_risk(np.array(row["tokens"]), full.tokens)
    assert min(min(row["layers"]) for row in found["texts"]) < DEPTH
    assert "LOSSY" in cli.done(capsys, asked, "w5").err


def test_a_calibration_is_followed(early, exits, capsys):
    path = early / "followed.json"
    words = ("--exits", exits, "--delta", "0.9", "--epsilon", "0.3", "--thresholds", "1,0.3", "--decay", "4")
    cli.done(capsys, *calibrate(early, *words, "-o", path))
    asked = ["calm", "generate", early / "model", *MODEL, "--exits", exits, "--calibration", path, "w5"]
    found = cli.figures(capsys, *asked, "--max-tokens", "9")
    assert found["guarantee"] == f"LOSSY: calibrated, {path}" and found["threshold"] == 0.3
    assert read_calibrated(path).threshold.decay == 4.0


def test_an_encoder_decoder_is_calibrated_with_states_as_they_are(early, capsys):
    words = ("--confidence", "saturation", "--layers", "2,4", "--thresholds", "1,0", "--every")
    found = cli.figures(capsys, *calibrate(early, *words, "-o", early / "t5.json", model="t5"))
    assert found["exits"] == [2, 4] and found["tested"][-1]["layers"] == 2.0
