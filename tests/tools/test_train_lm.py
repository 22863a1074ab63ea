"""The trainer of causal language models on tiny data: its loss against Hugging Face's own, resuming, the folder it
writes.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.tools import load_tool

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from support.tiny_blockwise import END, V
from support.tiny_causal import CONFIG, LENGTH, write_inputs
from support.training_runs import curve, run, run_in_two_parts

causal_lm = load_tool("train/causal_lm")
train_lm = load_tool("train/small_lm")
training_loop = load_tool("train/training_loop")


torch.set_num_threads(1)


@pytest.fixture
def folder(tmp_path):
    return write_inputs(tmp_path)


def train(folder, monkeypatch, out: str, more: str = "", shape: str = "") -> None:
    files = (
        f"--train a={folder}/a.npy*2 --valid b={folder}/b.npy --tokenizer {folder}/tokenizer.json "
        f"{shape or f'--config {folder}/shape.json'}"
    )
    run(
        train_lm,
        monkeypatch,
        f"{folder / out} {files} --length {LENGTH} --rows 4 --steps 9 --every 4 --log-every 2 {more}",
    )


def test_the_folder_opens_and_its_loss_is_that_of_the_curve(folder, monkeypatch):
    train(folder, monkeypatch, "lm", "--no-bf16 --rows 16 --steps 41 --every 40")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "lm", local_files_only=True)
    assert isinstance(model, transformers.LlamaForCausalLM) and model.dtype == torch.float32
    assert model.config.eos_token_id == END
    tokens = np.load(folder / "b.npy")
    starts = np.linspace(0, len(tokens) - LENGTH, 16).astype(int)
    ids = torch.from_numpy(np.stack([tokens[i : i + LENGTH] for i in starts]).astype(np.int64))
    rows = curve(folder / "lm")
    assert rows[-1]["valid"]["b"][0] == pytest.approx(model(input_ids=ids, labels=ids).loss.item(), abs=1e-4)
    assert rows[-1]["valid"]["b"][0] < 0.7 * rows[0]["valid"]["b"][0]
    assert (folder / "lm" / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    made = json.loads((folder / "lm" / "training.json").read_text())
    assert made["parameters"] == model.num_parameters() and made["tokens"] == 41 * 16 * LENGTH
    assert not list((folder / "lm").glob(".saving*"))


@pytest.mark.parametrize("arithmetic", ["--bf16", "--no-bf16"])
def test_a_stopped_run_ends_as_an_uninterrupted_one(folder, monkeypatch, arithmetic):
    train(folder, monkeypatch, "whole", arithmetic)
    assert run_in_two_parts(lambda: train(folder, monkeypatch, "parts", arithmetic), monkeypatch, stop=5) == [1, 5, 9]
    assert curve(folder / "whole") == curve(folder / "parts")
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(folder / name).state_dict() for name in ("whole", "parts")
    ]
    assert models[0].keys() == models[1].keys() and all(
        torch.equal(models[0][name], models[1][name]) for name in models[0]
    )


@pytest.mark.parametrize(
    ("name", "layers", "width", "hidden"), [("32M", 2, 384, 1536), ("61M", 12, 384, 1536), ("94M", 6, 768, 3072)]
)
def test_presets_are_those_of_the_paper(name, layers, width, hidden):
    config = causal_lm.preset(name, vocab_size=100, context=64)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    # Attention, feed-forward, two norms.
    per_layer = 4 * width * width + 4 * width + 2 * width * hidden + width + hidden + 4 * width
    assert model.num_parameters() == layers * per_layer + (100 + 64) * width + 2 * width
    assert model.config.num_attention_heads == 12 and len(model.transformer.h) == layers
    assert not [m for m in model.modules() if isinstance(m, torch.nn.Dropout) and m.p]


def test_a_preset_takes_its_vocabulary_from_the_tokenizer(folder, monkeypatch):
    monkeypatch.setitem(causal_lm.PRESETS, "32M", (1, 24, 32))
    train(folder, monkeypatch, "lm", shape="--preset 32M")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "lm")
    assert isinstance(model, transformers.GPT2LMHeadModel)
    assert model.config.vocab_size == V and model.config.n_positions == LENGTH


def test_tables_of_tokens_are_left_to_adam(folder):
    model = causal_lm.new_model(transformers.LlamaConfig(**CONFIG | {"tie_word_embeddings": False}), 1)
    muon, adam = training_loop.optimizers(model, [model.model.embed_tokens.weight, model.lm_head.weight], 0.1, 0.2)
    assert sum(p.numel() for group in adam.param_groups for p in group["params"]) == 2 * V * 32 + 5 * 32
    assert len(muon.param_groups[0]["params"]) == 2 * 7


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"vocab_size": V + 1}, f"shape.json: expected vocab_size {V}, that of .*tokenizer.json, got {V + 1}"),
        ({"max_position_embeddings": 20}, "shape.json: expected positions for --length 24 tokens, got 20"),
        (
            {"model_type": "none"},
            "shape.json: expected the JSON of a Hugging Face configuration with its model_type, "
            "got one that does not load",
        ),
        (
            {"model_type": "granite", "logits_scaling": 4.0},
            "GraniteForCausalLM: expected logits that are the last hidden states times",
        ),
        (
            {"model_type": "gemma2", "head_dim": 16, "final_logit_softcapping": 30.0},
            "Gemma2ForCausalLM: expected logits that are the last hidden states times",
        ),
    ],
)
def test_bad_configurations_are_named(tmp_path, monkeypatch, shape, message):
    write_inputs(tmp_path, CONFIG | shape)
    with pytest.raises(SystemExit, match=message):
        train(tmp_path, monkeypatch, "lm")


def test_folders_without_a_model_are_named(folder):
    with pytest.raises(SystemExit, match="expected a folder with a causal language model, got one that does not open"):
        causal_lm.open_model(folder, torch.float32)
