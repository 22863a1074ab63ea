"""What cannot work is said before a model is loaded: the models of these tests have no weights."""

import json

import numpy as np
import pytest
from support import cli, tiny_transformers
from support.tiny_blockwise import END, V, write_settings

from rescore.lm.build.in_memory import build


def write_model(folder, name="llama"):
    """A folder of Hugging Face without weights."""
    tiny_transformers.config_of(name, vocab_size=V, eos_token_id=END).save_pretrained(folder)
    cli.make_tokenizer(folder / "tokenizer.json", V)
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Files by the names that the cases below use."""
    folder = tmp_path_factory.mktemp("before")
    names = {name: folder / name for name in ("LM", "OTHER_V", "OTHER_TOKENS", "SETTINGS", "PROMPTS", "BAD", "LONG")}
    names = {name: path.with_suffix(".ngram" if name[0] in "LO" else ".json") for name, path in names.items()}
    names |= {"MODEL": write_model(folder / "model"), "T5": write_model(folder / "t5", "t5"), "OUT": folder / "out"}
    names |= {"GONE": folder / "gone", "GONE_LM": folder / "gone.ngram"}
    text = [np.array([1, 2, 3, 0], np.int32)]
    build(text, order=2, vocab_size=V, end_of_text=END).save(names["LM"])
    build(text, order=2, vocab_size=V + 1, end_of_text=END).save(names["OTHER_V"])
    build(text, order=2, vocab_size=V, end_of_text=END, metadata={"tokenizer": "0" * 64}).save(names["OTHER_TOKENS"])
    write_settings(names["SETTINGS"], names["LM"])
    for name, line in (("PROMPTS", {"prompt": "w1 w2"}), ("BAD", {"prompts": "w1"}), ("LONG", {"prompt": [1] * 60})):
        names[name].write_text(json.dumps(line) + "\n")
    return names


GENERATE = "generate --model MODEL --max-tokens 8"
BENCH = "bench decode --model MODEL --prompts PROMPTS --max-tokens 8"
DUMP = "dump make --model MODEL --kind greedy --max-tokens 8 -o OUT"

CASES = [
    (f"{GENERATE} --drafter tree w1", 2, "--drafter tree: MODEL has no heads; name them with --heads, or use"),
    (f"{GENERATE} --drafter base w1", 2, "--drafter base: MODEL has no heads"),
    (f"{GENERATE} --heads GONE w1", 1, "GONE: expected Medusa heads, a folder or a file, got nothing of that name"),
    (f"{GENERATE} --heads mtp w1", 1, "expected a folder whose safetensors hold the modules of multi-token prediction"),
    (f"{GENERATE} --lm OTHER_V w1", 1, f"OTHER_V: n-gram model: expected a vocabulary of {V}, or less, got {V + 1}"),
    (f"{GENERATE} --lm OTHER_TOKENS w1", 1, "OTHER_TOKENS: n-gram model: expected tokenizer"),
    (f"{GENERATE} --lm GONE_LM w1", 1, "GONE_LM: No such file or directory"),
    (f"{GENERATE} --lm GONE w1", 1, "GONE: expected a name that ends in .ngram"),
    (f"{GENERATE} --lm LM --lm LM w1", 2, "--drafter blend: expected at most one --lm, got 2"),
    (f"{GENERATE} --drafter lm-alone w1", 2, "--drafter lm-alone: expected one --lm, got 0"),
    (f"{GENERATE} --drafter lm-alone --lm LM --nodes auto w1", 2, "--nodes auto: only for trees under a q"),
    (f"{GENERATE} --layout rows w1", 2, "--nodes auto: only for trees in one row; give a number of nodes"),
    ("generate --model T5 --drafter blend w1", 2, "--nodes auto: only for trees in one row; give a number of nodes"),
    (
        "generate --model T5 --drafter lm-alone --lm LM --layout tree w1",
        2,
        "--layout tree: this model does not support trees",
    ),
    (f"{GENERATE} --paths 3 w1", 2, "--paths: not used by the drafter blend"),
    (f"{GENERATE} --drafter none --lm LM w1", 2, "--lm: not used by the drafter none"),
    (f"{GENERATE} --draft-model GONE w1", 1, "GONE: expected a model (a folder, a .gguf or .safetensors file"),
    (f"{GENERATE} --drafter draft-model w1", 2, "--drafter draft-model: expected --draft-model with a small"),
    (f"{GENERATE} --heads MODEL --drafter neural w1", 2, "--drafter neural: expected --neural with a small model"),
    (f"{GENERATE} --heads MODEL --settings GONE w1", 1, "GONE: No such file or directory"),
    (
        f"{GENERATE} --heads MODEL --drafter tree w1",
        2,
        "--drafter tree: expected at least one --lm, or --settings with a file written by `rescore tune`",
    ),
    (f"{GENERATE} --chat w1", 1, "MODEL: expected a chat template"),
    (f"{GENERATE} --dtype int8 w1", 2, "argument --dtype: invalid choice: 'int8'"),
    (f"{GENERATE} --device teapot w1", 2, "--device teapot: expected a device of this machine"),
    (f"{GENERATE} --max-tokens 64 w1", 1, "prompt 1: 1 tokens and --max-tokens 64: expected at most 64 together"),
    ("generate --model GONE w1", 1, "GONE: expected a model (a folder, a .gguf or .safetensors file"),
    (f"{GENERATE} --tokenizer GONE w1", 1, "GONE: No such file or directory"),
    (f"{BENCH} --only tree", 2, "--only 'tree': expected one of prompt-lookup, token-recycling, suffix-decoding 16"),
    (f"{BENCH} --lm OTHER_V", 1, f"OTHER_V: n-gram model: expected a vocabulary of {V}, or less, got {V + 1}"),
    (f"{BENCH} --prompts GONE", 1, "GONE: No such file or directory"),
    (f"{BENCH} --prompts BAD", 1, "BAD, line 1: expected a JSON object with prompt (or text, or messages)"),
    (f"{BENCH} --prompts LONG", 1, "--max-tokens 8: expected at most 64 together"),
    (f"{BENCH} --draft-model GONE", 1, "GONE: expected a model"),
    (f"{BENCH} --memory GONE", 1, "GONE: expected a file written by `rescore generate --memory`"),
    (f"{GENERATE} --memory BAD w1", 1, "BAD: expected a .npy file of token ids"),
    (f"{GENERATE} --memory OUT --drafter none w1", 2, "--memory: not used by the drafter none, only by blend"),
    (f"{BENCH} --chat", 1, "MODEL: expected a chat template"),
    (f"{DUMP} --prompts GONE", 1, "GONE: No such file or directory"),
    (f"{DUMP} --prompts BAD", 1, "BAD, line 1: expected a JSON object with prompt (or text, or messages)"),
    (f"{DUMP} --prompts LONG", 1, "--max-tokens 8: expected at most 64 together"),
]


@pytest.mark.parametrize("call, status, message", CASES, ids=[call for call, _, _ in CASES])
def test_said_without_weights(world, capsys, call, status, message):
    refused = cli.refusal(capsys, *[world.get(word, word) for word in call.split()], status=status)
    for name, path in sorted(world.items(), key=lambda one: -len(str(one[1]))):
        refused = refused.replace(str(path), name)
    assert message in refused


def test_without_a_mistake_the_weights_are_missed(world, capsys):
    for call in (f"{GENERATE} --lm LM w1", BENCH, f"{DUMP} --prompts PROMPTS"):
        cli.refusal(capsys, *[world.get(word, word) for word in call.split()], names=["safetensors"])


def test_settings_of_another_model(world, capsys, tmp_path):
    settings = json.loads(world["SETTINGS"].read_text())
    settings["models"][0]["path"] = str(world["LM"])
    call = [world.get(word, word) for word in f"{GENERATE} --heads MODEL --settings".split()]
    for name, value, message in (("vocab_size", V + 1, [V + 1, V]), ("tokenizer_sha256", "0" * 64, ["0000"])):
        (tmp_path / "s.json").write_text(json.dumps({**settings, name: value}))
        cli.refusal(capsys, *call, tmp_path / "s.json", "w1", names=message)
