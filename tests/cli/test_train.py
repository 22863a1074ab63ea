"""`rescore train`, from a folder and prompts to heads or mask tokens that decode."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file
from support import cli, tiny_transformers
from support.refusals import assert_named
from support.tiny_transformers import V
from support.training import training_world

from rescore.decode.cli import main
from rescore.decode.models.open import open_model

END = 2
WORDS = "--max-tokens 16 --slots 3 --rounds 2 --batch 64 --threads 1 --dtype float32".split()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return training_world(tmp_path_factory.mktemp("train"), "qwen2")


def train(world, out, *words) -> int:
    asked = ["train", "heads", str(world / "model"), "--prompts", str(world / "prompts.jsonl"), *WORDS]
    return main([*asked, *map(str, words), "-o", str(out)])


@pytest.fixture(scope="module")
def trained(world):
    assert train(world, world / "out", "--json", world / "out.json") == 0
    return world / "out"


def test_the_folder_holds_heads_texts_and_the_curve(world, trained):
    found = json.loads((world / "out.json").read_text())
    assert found["heads"] == str(trained / "heads") and found["best"]["step"] > 0
    lines = [json.loads(line) for line in (trained / "curve.jsonl").read_text().splitlines()]
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


def test_heads_are_trained_further_where_they_were_left(world, trained, tmp_path):
    """The first validation is that of the heads to start from, on the same held-out texts."""
    words = [word for word in WORDS if word not in ("--slots", "3")]
    asked = ["train", "heads", str(world / "model"), "--prompts", str(world / "prompts.jsonl"), *words]
    assert main([*asked, "--start", str(trained / "heads"), "-o", str(tmp_path / "out")]) == 0
    before, after = (
        [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
        for folder in (trained, tmp_path / "out")
    )
    best = min((line["loss"] for line in before), key=np.mean)
    np.testing.assert_allclose(after[0]["loss"], best, atol=2e-3)  # saved in float16
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


@pytest.mark.parametrize(
    "words, status, named",
    [
        ("--max-tokens 9000", 1, ["9000"]),
        ("--temperature 0,x", 2, ["--temperature", "'x'"]),
        ("--prompts GONE", 1, ["GONE"]),
        ("--tokens 0", 2, ["--tokens", "1"]),
        ("--start TRAINED/heads", 1, ["--slots", "3", "--start"]),
        ("--temperature 0.5 -o TRAINED", 1, ["states.json", "[0.5]", "[0.0, 0.7]"]),
    ],
)
def test_what_cannot_work_is_said(world, trained, tmp_path, capsys, words, status, named):
    own = f"train heads {world}/model --prompts {world}/prompts.jsonl {' '.join(WORDS)} -o {tmp_path}/out"
    cli.refusal(capsys, f"{own} {words.replace('TRAINED', str(trained))}", status=status, names=named)
    assert not (tmp_path / "out").exists()


def test_an_encoder_decoder_is_refused(world, tmp_path, capsys):
    tiny_transformers.shared("t5").save_pretrained(tmp_path / "t5")
    cli.make_tokenizer(tmp_path / "t5" / "tokenizer.json", V)
    words = f"train heads {tmp_path}/t5 --prompts {world}/prompts.jsonl {' '.join(WORDS)} -o {tmp_path}/out"
    cli.refusal(capsys, words, names=["language"])


def of_llama(llama, kind: str, words: str) -> list[str]:
    texts = "--max-tokens 16 --threads 1 --dtype float32"
    return f"train {kind} {llama}/model --prompts {llama}/prompts.jsonl {texts} {words} -o {llama}/out".split()


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return training_world(tmp_path_factory.mktemp("bita"), "llama")


@pytest.fixture(scope="module")
def masked(llama):
    words = "--masks 2 --prompt-tokens 4 --groups 8 --rounds 2 --every 10"
    assert main([*of_llama(llama, "bita", words), "--json", str(llama / "out.json")]) == 0
    return llama / "out"


def test_the_folder_holds_mask_tokens_and_the_curve(llama, masked):
    found = json.loads((llama / "out.json").read_text())
    assert found["bita"] == str(masked / "bita" / "tokens")
    assert found["parameters"] == 2 * 32 + 2 * 2 * 2 * 4 * 8  # masks; 2 layers of keys and values, 2 heads of width 8
    lines = [json.loads(line) for line in (masked / "bita" / "curve.jsonl").read_text().splitlines()]
    assert lines[0]["step"] == 0 and lines[-1]["step"] == lines[-1]["steps"]
    assert found["best"]["loss"] == min((line["loss"] for line in lines), key=sum)
    assert json.loads((masked / "bita" / "tokens" / "config.json").read_text())["base_model"] == "model"


def test_text_with_them_is_the_model_s_own(llama, masked, capsys):
    asked = ("generate", "--model", llama / "model", "--max-tokens", 12, "w4 w5 w6")
    assert cli.done(capsys, *asked, "--heads", masked / "bita" / "tokens").out == cli.done(capsys, *asked).out


def test_heads_and_masks_learn_from_the_same_texts(llama, masked):
    before = {path: path.stat().st_mtime_ns for path in (masked / "states").iterdir()}
    assert main(of_llama(llama, "heads", "--slots 2 --rounds 1 --batch 64")) == 0
    assert {path: path.stat().st_mtime_ns for path in (masked / "states").iterdir()} == before
    assert (masked / "heads").exists() and (masked / "bita" / "tokens").exists()
