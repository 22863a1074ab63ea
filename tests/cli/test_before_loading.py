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
    (f"{GENERATE} --drafter tree w1", 2, ["--drafter", "--heads"]),
    (f"{GENERATE} --heads GONE w1", 1, ["GONE"]),
    (f"{GENERATE} --heads mtp w1", 1, ["safetensors"]),
    (f"{GENERATE} --lm OTHER_V w1", 1, ["OTHER_V", V, V + 1]),
    (f"{GENERATE} --lm OTHER_TOKENS w1", 1, ["OTHER_TOKENS"]),
    (f"{GENERATE} --lm GONE_LM w1", 1, ["GONE_LM"]),
    (f"{GENERATE} --lm LM --lm LM w1", 2, ["--drafter", "--lm", "2"]),
    (f"{GENERATE} --drafter lm-alone --lm LM --nodes auto w1", 2, ["--nodes"]),
    (f"{GENERATE} --layout rows w1", 2, ["--nodes"]),
    ("generate --model T5 --drafter blend w1", 2, ["--nodes"]),
    ("generate --model T5 --drafter lm-alone --lm LM --layout tree w1", 2, ["--layout"]),
    (f"{GENERATE} --paths 3 w1", 2, ["--paths"]),
    (f"{GENERATE} --drafter none --lm LM w1", 2, ["--lm"]),
    (f"{GENERATE} --draft-model GONE w1", 1, ["GONE"]),
    (f"{GENERATE} --drafter draft-model w1", 2, ["--drafter", "--draft-model"]),
    (f"{GENERATE} --heads MODEL --drafter neural w1", 2, ["--drafter", "--neural"]),
    (f"{GENERATE} --heads MODEL --settings GONE w1", 1, ["GONE"]),
    (f"{GENERATE} --heads MODEL --drafter tree w1", 2, ["--drafter", "--lm", "--settings"]),
    (f"{GENERATE} --chat w1", 1, ["MODEL"]),
    (f"{GENERATE} --device teapot w1", 2, ["--device"]),
    (f"{GENERATE} --top-p 0.5 w1", 2, ["--top-p", "--temperature", "0"]),
    (f"{GENERATE} --sample-top-k 5 w1", 2, ["--sample-top-k"]),
    (f"{GENERATE} --temperature=-1 w1", 2, ["--temperature", "0", "'-1'"]),
    (f"{GENERATE} --top-p 0 w1", 2, ["--top-p", "1", "'0'"]),
    (f"{GENERATE} --max-tokens 64 w1", 1, ["prompt 1", "--max-tokens", "64"]),
    ("generate --model GONE w1", 1, ["GONE"]),
    (f"{BENCH} --only tree", 2, ["--only", "'tree'", "16"]),
    (f"{BENCH} --lm OTHER_V", 1, ["OTHER_V", V, V + 1]),
    (f"{BENCH} --prompts LONG", 1, ["--max-tokens", "8", "64"]),
    (f"{BENCH} --memory GONE", 1, ["GONE"]),
    (f"{GENERATE} --memory BAD w1", 1, ["BAD"]),
    (f"{GENERATE} --memory OUT --drafter none w1", 2, ["--memory"]),
    (f"{DUMP} --prompts BAD", 1, ["1"]),
    (f"{DUMP} --prompts LONG", 1, ["--max-tokens", "8", "64"]),
]


@pytest.mark.parametrize("call, status, named", CASES, ids=[call for call, _, _ in CASES])
def test_said_without_weights(world, capsys, call, status, named):
    words, names = ([world.get(word, word) for word in several] for several in (call.split(), named))
    cli.refusal(capsys, *words, status=status, names=names)


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
