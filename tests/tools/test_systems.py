"""The comparison of systems on a tiny model: every row that needs nothing trained by others, and what it counts."""

import json

import numpy as np
import pytest
from support import cli
from support.bita import tokens_for
from support.refusals import assert_named
from support.tiny_transformers import V, shared
from support.tools import load_tool

systems = load_tool("bench/systems")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("systems")
    shared("llama").save_pretrained(folder / "model")
    cli.make_tokenizer(folder / "model" / "tokenizer.json", V)
    tokens_for("llama").save(folder / "tokens", {})
    draw = np.random.default_rng(1)
    with open(folder / "prompts.jsonl", "w") as lines:
        for i in range(4):
            words = " ".join(f"w{one}" for one in draw.integers(3, V, 5))
            lines.write(json.dumps({"task": f"task{i % 2}", "prompt": words}) + "\n")
    return folder


def test_rows(world, monkeypatch, capsys):
    asked = (
        f"systems {world}/model --no-chat --prompts {world}/prompts.jsonl --bita {world}/tokens --json {world}/out.json"
    )
    more = "--max-tokens 8 --repeats 1 --threads 1 --longest 64"
    without = ("--heads", "", "--lm", "", "--exits", "")
    monkeypatch.setattr("sys.argv", [*asked.split(), *more.split(), *without])
    systems.main()
    assert_named(capsys.readouterr().out, ["BiTA", "15"])
    rows = {row["system"]: row for row in json.loads((world / "out.json").read_text())["rows"]}
    plain = rows["plain"]
    layer = sum(one.numel() for one in shared("llama").model.layers[0].parameters())
    assert plain["layers_a_token"] == 2 and plain["tokens_a_pass"] == 1
    # The first token of each text comes with the prompt.
    share = (plain["gflop_a_token"] * 1e9) / (2 * (2 * layer + V * 32))
    assert 0.8 < share < 1
    for name, row in rows.items():
        assert row["equal"] == 1 and row["rouge_l_off"] == 0, name
        low, high = row["interval"]
        assert low <= row["tokens_a_pass"] + 1e-9 and row["tokens_a_pass"] <= high + 1e-9, name
        assert row["layers_a_token"] == pytest.approx(2 / row["tokens_a_pass"]), name
    own, blend = rows["BiTA, its tree 15"], rows["blend 16"]
    assert own["gflop_a_token"] > 3 * blend["gflop_a_token"] > 3 * plain["gflop_a_token"]
