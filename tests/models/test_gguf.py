"""GGUF files as models: a small one against the model that it was written from, and the model shipped in a package."""

import importlib.util
import json
import struct

import gguf
import numpy as np
import pytest
import torch
import transformers
from support import cli, tiny_transformers
from support.refusals import refuses

from rescore.decode.cli.decoders import open_decoder
from rescore.decode.cli.groups import OpeningArgs
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.prompts import read_prompts
from rescore.decode.models.chat import ChatTemplate
from rescore.decode.models.located import converted
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


def interleaved(weight, heads):
    """llama.cpp turns neighbouring values together, transformers the halves of a head."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path, model):
    writer, config = gguf.GGUFWriter(str(path), "llama"), model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * 3 + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(["t h", "h e"])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "post_attention_layernorm": "ffn_norm",
        "input_layernorm": "attn_norm",
        "model.layers": "blk",
    }
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        weight = tensor.float().numpy()
        if "q_proj" in name or "k_proj" in name:
            weight = interleaved(weight, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        for theirs, own in names.items():
            name = name.replace(theirs, own)
        writer.add_tensor(name, np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


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
    assert converted(file) == folder and opened.tokenizer == folder / "tokenizer.json"
    write_gguf(file, small_llama())
    assert converted(file) != folder and len(list((cache / "gguf").iterdir())) == 2
    assert converted(file, torch.bfloat16) not in (folder, converted(file))


def test_chats_and_spec_bench(tmp_path, capsys):
    """A prompt is a message: what the template makes of it is read, special tokens as such."""
    file = write_gguf(tmp_path / "small.gguf", small_llama())
    assert ChatTemplate(file).text("the") == "<|im_start|>the<|im_end|><|im_start|>"
    call = ["--model", file, "--chat", "--threads", 1]
    plain = cli.figures(capsys, "generate", *call, "--drafter", "none", "--max-tokens", 9, "the")
    drafted = cli.figures(capsys, "generate", *call, "--nodes", 4, "--max-tokens", 9, "the")
    assert drafted["drafter"] == "blend" and drafted["texts"] == plain["texts"]
    as_text = cli.figures(
        capsys,
        "generate",
        *call[:2],
        *"--threads 1 --drafter none --max-tokens 9 <|im_start|>the<|im_end|><|im_start|>".split(),
    )
    assert as_text["texts"][0]["tokens"] == plain["texts"][0]["tokens"]
    lines = [
        {"question_id": 1, "category": "writing", "turns": ["the", "he"]},
        {"question_id": 2, "category": "coding", "turns": ["a"]},
        {"question_id": 3, "category": "rag", "turns": ["b"]},
    ]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    dump = cli.figures(
        capsys,
        "dump",
        "make",
        *call[:3],
        *f"--prompts {prompts} --kind greedy --max-tokens 5 --top-k 4 -o {tmp_path}/dump".split(),
    )
    assert [(task["task"], task["sequences"]) for task in dump["tasks"]] == [("mt_bench", 2), ("rag", 1)]
    assert dump["heads"] == 1 and dump["provenance"]["chat"] is True
    of_chats = [
        {"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": "he"}]},
        {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "the"}], "task": "b"},
    ]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in of_chats))
    decoder = open_decoder(OpeningArgs(chat=True), file)
    read = read_prompts(prompts, decoder.facts.vocab_size, decoder.text)
    assert read["prompts"][0].tokens.tolist() == decoder.text.encode("the").tolist()
    assert read["prompts"][0].reference.tolist() == decoder.text.encode_more("he").tolist()
    assert read["b"][0].tokens.tolist() == decoder.text.encode_chat(of_chats[1]["messages"]).tolist()
    assert len(read["b"][0].tokens) > len(read["prompts"][0].tokens) and not len(read["b"][0].reference)
    prompts.write_text('{"messages": [{"role": "user"}]}\n')
    cli.refusal(
        capsys,
        "dump",
        "make",
        *call[:3],
        *f"--prompts {prompts} --kind greedy -o {tmp_path}/no".split(),
        names=["line 1", "messages[0].content"],
    )
    prompts.write_text(json.dumps(of_chats[0]) + "\n")
    cli.refusal(
        capsys,
        "dump",
        "make",
        *call[:2],
        *f"--prompts {prompts} --kind greedy -o {tmp_path}/no".split(),
        names=["line 1", "messages", "--chat"],
    )
    prompts.write_text('{"category": "rag", "turns": []}\n')
    cli.refusal(
        capsys,
        "dump",
        "make",
        *call[:3],
        *f"--prompts {prompts} --kind greedy -o {tmp_path}/no".split(),
        names=["line 1", "turns", "[]"],
    )


def test_what_is_refused(tmp_path, monkeypatch):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(60))
    refuses(ValueError, lambda: open_model(damaged), "damaged.gguf")
    assert not list((tmp_path / "cache" / "gguf").iterdir())  # nothing is left of it
    refuses(FileNotFoundError, lambda: open_model(tmp_path / "nothing.gguf"), "nothing.gguf")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refuses(ImportError, lambda: converted(damaged), "package")


@pytest.mark.parametrize(
    "name,match", [("block_count", ["got ValueError", "4294967295"]), ("feed_forward_length", ["got ValueError"])]
)
def test_nothing_is_built_of_numbers_that_are_not_the_tensors(tmp_path, monkeypatch, name, match):
    file = write_gguf(tmp_path / "small.gguf", small_llama())
    key = f"llama.{name}".encode() + struct.pack("<I", gguf.GGUFValueType.UINT32)
    at = (data := file.read_bytes()).index(key) + len(key)
    file.write_bytes(data[:at] + b"\xff" * 4 + data[at + 4 :])
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", None)
    refuses(ValueError, lambda: open_model(file), "small.gguf", *match)


def test_templates_that_are_missing(tmp_path):
    small_llama().save_pretrained(tmp_path)
    refuses(ValueError, lambda: ChatTemplate(tmp_path))
