"""Facts from the headers of a model's files, against the opened model."""

import pytest
from support import cli, tiny_mtp, tiny_transformers
from support.refusals import refused, refuses
from support.tiny_blockwise import V, untrained

from rescore.decode.models.blockwise import BlockwiseConfig
from rescore.decode.models.medusa import MedusaHeads
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model

ONE_HEAD = BlockwiseConfig(
    vocab_size=V, heads=1, layers=1, width=32, attention_heads=2, hidden=64, head_hidden=32, context=48
)


def write(name, folder):
    if name == "blockwise":
        untrained().save(folder / "model.safetensors")
    elif name == "one head":
        untrained(config=ONE_HEAD).save(folder / "model.safetensors")
    else:
        tiny_transformers.shared(name).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "tokenizer"])
@pytest.mark.parametrize(
    "name", ["blockwise", "one head", "llama", "gpt2", "gemma3", "deepseek-v3", "glm4-moe", "t5", "bart"]
)
def test_facts_are_those_of_the_opened_model(tmp_path, name, beside):
    """deepseek-v3 and glm4-moe are configured with MTP modules, which these folders do not hold."""
    folder = write(name, tmp_path)
    if beside:
        cli.make_tokenizer(folder / "tokenizer.json", 20)
    facts, opened = model_facts(folder), open_model(folder)
    assert (facts.kind, facts.vocab_size, facts.tokenizer) == (opened.kind, opened.vocab_size, opened.tokenizer)
    assert (facts.context, facts.trees) == (opened.target.context, opened.target.trees)
    assert facts.heads == (opened.heads is not None) == (name == "blockwise")
    assert facts.end_of_text == opened.end_of_text


def test_heads_that_are_named_or_lie_in_the_folder(tmp_path):
    folder = write("llama", tmp_path)
    medusa = tmp_path / "medusa"
    MedusaHeads(heads=2, width=32, vocab_size=V).save(medusa)
    assert model_facts(folder, medusa).heads and not model_facts(folder).heads
    refuses(FileNotFoundError, lambda: model_facts(folder, "no"), "no")
    for wrong in ("llama", "t5", "blockwise"):
        (tmp_path / wrong).mkdir()
        with refused(ValueError):
            model_facts(write(wrong, tmp_path / wrong), "mtp")
    for file in medusa.glob("*.safetensors"):
        file.rename(folder / file.name)
    assert model_facts(folder).heads


def test_stored_modules_are_heads(tmp_path, monkeypatch):
    tiny_mtp.known_to_transformers(monkeypatch)
    tiny_mtp.checkpoint(tmp_path)
    assert model_facts(tmp_path).heads and model_facts(tmp_path, "mtp").heads
