"""Models opened from a path, with the heads stored there; the facts that their headers tell; invalid folders."""

import json
import subprocess
import sys

import pytest
import torch
import transformers
from msgspec import structs
from safetensors.torch import load_file, save_file
from support import cli
from support.blocks import chain
from support.refusals import assert_named, refuses
from support.tiny_blockwise import CONFIG, untrained, write_tokenizer
from support.tiny_transformers import V, shared

from rescore.decode.models.blockwise import BlockwiseHeads
from rescore.decode.models.heads_kind import heads_kind
from rescore.decode.models.medusa import MedusaHeads
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model

pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture
def ours(tmp_path):
    untrained().save(tmp_path / "model.safetensors", dtype=torch.float32)
    return tmp_path


@pytest.fixture
def llama(tmp_path):
    return written("llama", tmp_path / "llama")


def medusa(folder, width: int = 32, vocab_size: int = V):
    MedusaHeads(heads=3, width=width, vocab_size=vocab_size).save(folder)
    return folder


def logits_of(opened, ids) -> torch.Tensor:
    cache, _ = opened.target.open([ids[0].numpy()], 1, ids.shape[1])
    return opened.target.logits(opened.target.read(chain(ids, [0]), cache))


def facts(opened) -> tuple:
    return opened.kind, opened.vocab_size, opened.tokenizer, opened.end_of_text


def test_our_model_from_its_file_or_its_folder(ours):
    ids, model = torch.arange(1, 9)[None], untrained()
    for path in (ours, ours / "model.safetensors"):
        opened = open_model(path)
        assert facts(opened) == ("blockwise", CONFIG.vocab_size, None, ())
        assert isinstance(opened.heads, BlockwiseHeads) and opened.heads.slots == CONFIG.heads - 1
        torch.testing.assert_close(logits_of(opened, ids), model.logits(model(ids), 1), atol=3e-5, rtol=0)
    write_tokenizer(ours / "tokenizer.json")
    opened = open_model(ours, dtype=torch.bfloat16, device="cpu")
    assert (opened.tokenizer, opened.end_of_text) == (ours / "tokenizer.json", (0,))
    assert logits_of(opened, ids).dtype == torch.bfloat16


def test_models_of_hugging_face(llama, tmp_path):
    opened, ids = open_model(llama), torch.arange(3, 12)[None]
    assert facts(opened) == ("causal-lm", V, None, (2,)) and opened.heads is None
    torch.testing.assert_close(logits_of(opened, ids), shared("llama")(input_ids=ids).logits, atol=1e-5, rtol=0)
    assert logits_of(open_model(llama, dtype=torch.bfloat16), ids).dtype == torch.bfloat16
    opened = open_model(written("t5", tmp_path))
    assert (opened.kind, opened.target.trees, opened.heads) == ("encoder-decoder", False, None)


def test_ends_of_text(llama):
    config = json.loads((llama / "generation_config.json").read_text())
    for ends, expected in (([5, 2], (5, 2)), (3, (3,)), ([2, 50256], (2,)), (50256, ())):
        (llama / "generation_config.json").write_text(json.dumps({**config, "eos_token_id": ends}))
        assert open_model(llama).end_of_text == expected, "an id beyond V is a default of the configuration's class"
    write_tokenizer(llama / "tokenizer.json")
    assert open_model(llama).end_of_text == (0,)


def written(name, folder):
    if name == "blockwise":
        untrained().save(folder / "model.safetensors")
    elif name == "one head":
        untrained(config=structs.replace(CONFIG, heads=1)).save(folder / "model.safetensors")
    else:
        shared(name).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["blockwise", "one head", "llama", "gpt2", "gemma3", "deepseek-v3", "t5", "bart"])
def test_facts_are_those_of_the_opened_model(tmp_path, name):
    """deepseek-v3 is configured with MTP modules, which this folder does not hold."""
    folder = written(name, tmp_path)
    if name in ("one head", "llama", "t5"):
        cli.make_tokenizer(folder / "tokenizer.json", 20)
    known, opened = model_facts(folder), open_model(folder)
    assert facts(known) == facts(opened)
    assert (known.context, known.trees) == (opened.target.context, opened.target.trees)
    assert known.heads == (opened.heads is not None) == (name == "blockwise")


def test_medusa_heads_named_or_found(llama, ours, tmp_path):
    folder = medusa(tmp_path / "heads")
    named = open_model(llama, heads=folder, dtype=torch.bfloat16)
    assert isinstance(named.heads, MedusaHeads) and named.heads.slots == 3
    assert next(named.heads.parameters()).dtype == torch.bfloat16, "as the model's"
    assert model_facts(llama, folder).heads and not model_facts(llama).heads
    (folder / "medusa_lm_head.safetensors").rename(llama / "medusa_lm_head.safetensors")
    assert isinstance(open_model(llama).heads, MedusaHeads) and model_facts(llama).heads
    others = medusa(tmp_path / "others", CONFIG.width, CONFIG.vocab_size)
    assert isinstance(open_model(ours, heads=others).heads, MedusaHeads)


def test_kinds_of_heads_are_told_without_weights(demo, tmp_path):
    (tmp_path / "dflash").mkdir()
    (tmp_path / "dflash" / "config.json").write_text('{"speculators_model_type": "dflash"}')
    named = ("early:2", "mtp", demo / "heads", demo / "bita", medusa(tmp_path / "medusa"), tmp_path / "dflash", "other")
    kinds = ["early", "mtp", "trained", "bita", "medusa", "dflash", "medusa"]
    assert [heads_kind(one) for one in named] == kinds
    assert heads_kind(None) is None and heads_kind(None, tmp_path / "medusa") == "medusa"


def test_heads_that_are_not_there(llama, ours, tmp_path):
    t5 = written("t5", tmp_path / "t5")
    for error, path, heads, *named in (
        (ValueError, llama, "mtp", "safetensors"),
        (ValueError, ours, "mtp", "'mtp'"),
        (ValueError, t5, "mtp", "T5ForConditionalGeneration", "'mtp'"),
        (ValueError, ours, "early:1", "'early:1'"),
        (ValueError, t5, "early:1", "'early:1'"),
        (FileNotFoundError, llama, tmp_path / "nowhere", "nowhere"),
    ):
        refuses(error, lambda path=path, heads=heads: open_model(path, heads=heads), *named)
        refuses(error, lambda path=path, heads=heads: model_facts(path, heads), *named[-1:])
    refuses(ValueError, lambda: open_model(llama, heads=medusa(tmp_path / "wide", 48)), "another")
    file = ours / "model.safetensors"
    refuses(ValueError, lambda: open_model(file, heads="data/demo/bita"), "data/demo/bita", "kind bita")


def test_paths_without_a_model(tmp_path):
    refuses(FileNotFoundError, lambda: open_model(tmp_path / "nowhere"), "nowhere")
    refuses(FileNotFoundError, lambda: open_model(tmp_path), "neither", "model.safetensors", "config.json")
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    refuses(FileNotFoundError, lambda: open_model(tmp_path), "adapter", "merge_and_unload")
    (tmp_path / "config.json").write_text('{"architectures": []}')
    refuses(ValueError, lambda: open_model(tmp_path), "config.json", "'model_type'")
    refuses(ValueError, lambda: open_model(medusa(tmp_path / "heads")), "backbone")


def refused_folder(folder, *named: str) -> None:
    refuses(ValueError, lambda: open_model(folder), *named)


def test_incomplete_or_foreign_weights_are_refused(llama):
    tensors = load_file(llama / "model.safetensors")
    left = {name: tensor for name, tensor in tensors.items() if "layers.1.mlp" not in name}
    save_file(left, llama / "model.safetensors", {"format": "pt"})
    refused_folder(llama, "LlamaForCausalLM", "3", "model.layers.1.mlp.down_proj.weight")
    save_file({**tensors, "model.norm.weight": torch.zeros(7)}, llama / "model.safetensors", {"format": "pt"})
    refused_folder(llama, "1", "model.norm.weight")
    (llama / "model.safetensors").write_bytes(b"text")
    refused_folder(llama, "model.safetensors")
    (llama / "model.safetensors").unlink()
    torch.save(tensors, llama / "pytorch_model.bin")
    refused_folder(llama, "safetensors")


def changed(folder, **fields) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | fields))


@pytest.mark.parametrize(
    "family, name, value, named",
    [
        ("llama", "num_hidden_layers", 10**30, ["2", "1000000000000000"]),
        ("llama", "num_hidden_layers", 3, ["config.json", "num_hidden_layers", "2"]),
        ("t5", "num_decoder_layers", 10**9, ["num_decoder_layers", "3"]),
        ("deepseek-v3", "num_mtp_layers", 10**9, ["num_mtp_layers"]),
        ("llama", "vocab_size", 10**9, ["64,000,015,520"]),
        ("deepseek-v3", "n_routed_experts", 10**7, ["15"]),
    ],
)
def test_nothing_is_built_of_a_config_that_is_not_its_tensors(tmp_path, monkeypatch, family, name, value, named):
    """No number of config.json makes layers or takes memory: weights are not looked for."""
    shared(family).save_pretrained(tmp_path)
    changed(tmp_path, **{name: value})
    for kind in (transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM):
        monkeypatch.setattr(kind, "from_pretrained", None)
    refused_folder(tmp_path, *named)


def test_a_config_without_tensors_counts_few_layers(tmp_path):
    shared("llama").config.save_pretrained(tmp_path)
    changed(tmp_path, num_hidden_layers=1001)
    refused_folder(tmp_path, "num_hidden_layers", "1000", "1001")


def test_code_of_a_checkpoint_is_never_run(tmp_path):
    mark = tmp_path / "was_run"
    for name in ("configuration_own.py", "modeling_own.py"):
        (tmp_path / name).write_text(f"import os; os.mkdir({str(mark)!r})\n")
    auto = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto}))
    refused_folder(tmp_path, "ValueError")
    assert not mark.exists()


def test_without_the_package_the_message_names_it(llama):
    opens = f"from rescore.decode.models.open import open_model; open_model({str(llama)!r})"
    code = f"import sys; sys.modules['transformers'] = None; {opens}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert_named(ended.stderr, ["transformers"])
