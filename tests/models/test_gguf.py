"""GGUF files as models: a small one against the model that it was written from, and the model shipped in a package."""

import importlib.util
import json
import struct

import gguf
import numpy as np
import pytest
import torch
import transformers
from support import cli, tiny_gguf, tiny_transformers
from support.refusals import refuses

from rescore.decode.cli.decoders import open_decoder
from rescore.decode.cli.groups import OpeningArgs
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.prompts import read_prompts
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.located import convert_gguf
from rescore.decode.models.open import open_model

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *map(chr, range(97, 123)), "Ġ", "th", "he", "Ċ"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RESCORE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def small_llama():
    shape = {"vocab_size": len(TOKENS), "max_position_embeddings": 96, "tie_word_embeddings": True}
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    return tiny_transformers.build("llama", **shape, rope_parameters=rope)


def write_gguf(path, model):
    tokenizer = {"tokenizer_model": "gpt2", "tokenizer_pre": "smollm", "token_list": TOKENS, "eos_token_id": 2}
    tokenizer |= {"token_types": [3] * 3 + [1] * (len(TOKENS) - 3), "token_merges": ["t h", "h e"], "bos_token_id": 1}
    return tiny_gguf.write_llama(path, model, **tokenizer, chat_template=TEMPLATE)


def test_a_file_is_the_model_that_it_was_written_from(tmp_path, cache):
    llama = small_llama()
    file = write_gguf(tmp_path / "small.gguf", llama)
    opened = open_model(file)
    assert (opened.kind, opened.vocab_size, opened.heads, opened.end_of_text) == ("causal-lm", len(TOKENS), None, (2,))
    prompt = np.array([5, 9, 14, 3, 3], np.int64)
    expected = llama.generate(torch.from_numpy(prompt)[None], max_new_tokens=20, do_sample=False, eos_token_id=None)
    (found,) = generate(opened.target, [prompt], None, Options(max_tokens=20))
    assert found.tokens.tolist() == expected[0, len(prompt) :].tolist()
    # It is converted once, and again when the file has changed.
    (folder,) = (cache / "gguf").iterdir()
    assert convert_gguf(file) == folder and opened.tokenizer == folder / "tokenizer.json"
    write_gguf(file, small_llama())
    assert convert_gguf(file) != folder and len(list((cache / "gguf").iterdir())) == 2
    assert convert_gguf(file, torch.bfloat16) not in (folder, convert_gguf(file))


def test_chats_and_spec_bench(tmp_path, capsys):
    """A prompt is a message: what the template makes of it is read, special tokens as such."""
    file = write_gguf(tmp_path / "small.gguf", small_llama())
    assert ChatTemplate(file).text("the") == "<|im_start|>the<|im_end|><|im_start|>"
    writes = f"generate --model {file} --threads 1 --max-tokens 9 --drafter none"
    chat = cli.figures(capsys, f"{writes} --chat the")
    as_text = cli.figures(capsys, f"{writes} <|im_start|>the<|im_end|><|im_start|>")
    assert as_text["texts"][0]["tokens"] == chat["texts"][0]["tokens"]
    prompts = tmp_path / "prompts.jsonl"
    makes = f"dump make --model {file} --prompts {prompts} --kind greedy -o {tmp_path}"
    lines = [
        {"question_id": 1, "category": "writing", "turns": ["the", "he"]},
        {"question_id": 2, "category": "coding", "turns": ["a"]},
        {"question_id": 3, "category": "rag", "turns": ["b"]},
    ]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    dump = cli.figures(capsys, f"{makes}/dump --chat --max-tokens 5 --top-k 4")
    assert [(task["task"], task["sequences"]) for task in dump["tasks"]] == [("mt_bench", 2), ("rag", 1)]
    assert dump["heads"] == 1 and dump["provenance"]["chat"] is True
    user = {"role": "user", "content": "the"}
    of_chats = [
        {"messages": [user, {"role": "assistant", "content": "he"}]},
        {"messages": [{"role": "system", "content": "a"}, user], "task": "b"},
    ]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in of_chats))
    decoder = open_decoder(OpeningArgs(chat=True), file)
    read = read_prompts(prompts, decoder.facts.vocab_size, decoder.text)
    (one,), (other,) = read["prompts"], read["b"]
    assert one.tokens.tolist() == decoder.text.encode("the").tolist()
    assert one.reference.tolist() == decoder.text.encode_more("he").tolist()
    assert other.tokens.tolist() == decoder.text.encode_chat(of_chats[1]["messages"]).tolist()
    assert len(other.tokens) > len(one.tokens) and not len(other.reference)
    for line, chat, names in (
        ({"messages": [{"role": "user"}]}, "--chat", ["messages[0].content"]),
        (of_chats[0], "", ["messages", "--chat"]),
        ({"category": "rag", "turns": []}, "--chat", ["turns", "[]"]),
    ):
        prompts.write_text(json.dumps(line) + "\n")
        cli.refusal(capsys, f"{makes}/no {chat}", names=["line 1", *names])


def test_what_is_refused(tmp_path, monkeypatch):
    small_llama().save_pretrained(tmp_path / "llama")
    refuses(ValueError, lambda: ChatTemplate(tmp_path / "llama"))
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(60))
    refuses(ValueError, lambda: open_model(damaged), "damaged.gguf")
    assert not list((tmp_path / "cache" / "gguf").iterdir())  # nothing is left of it
    refuses(FileNotFoundError, lambda: open_model(tmp_path / "nothing.gguf"), "nothing.gguf")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refuses(ImportError, lambda: convert_gguf(damaged), "package")


@pytest.mark.parametrize("name, named", [("block_count", ["4294967295"]), ("feed_forward_length", ["got ValueError"])])
def test_nothing_is_built_of_numbers_that_are_not_the_tensors(tmp_path, monkeypatch, name, named):
    file = write_gguf(tmp_path / "small.gguf", small_llama())
    key = f"llama.{name}".encode() + struct.pack("<I", gguf.GGUFValueType.UINT32)
    at = (data := file.read_bytes()).index(key) + len(key)
    file.write_bytes(data[:at] + b"\xff" * 4 + data[at + 4 :])
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", None)
    refuses(ValueError, lambda: open_model(file), "small.gguf", *named)
