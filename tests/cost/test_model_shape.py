"""Shapes of models: counted by hand, compared with built models, and read from foreign files."""

import json

import pytest
from support.refusals import refused, refuses

from rescore.decode.cost.model_shape import PRESETS, ModelShape

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 500,
}
SHAPE = ModelShape(width=64, layers=3, heads=8, key_heads=2, hidden=96, vocab_size=500)


def test_counted_by_hand():
    """A layer: queries and output 64 x 64 each, keys and values 64 x 16 each, three matrices of 64 x 96; the output
    matrix 500 x 64.
    """
    assert SHAPE.read_parameters == 3 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 96) + 500 * 64
    assert SHAPE.stored_parameters == SHAPE.read_parameters + 500 * 64
    assert SHAPE.cache_numbers == 2 * 3 * 16
    assert SHAPE.with_block_heads(4).block_parameters == 4 * (64 * 64 + 64)


@pytest.mark.parametrize(
    "name, billions", [("7b", 6.738), ("llama-3-8b", 8.030), ("llama-3-70b", 70.55), ("1.5b", 1.543)]
)
def test_published_sizes(name, billions):
    """The published numbers of parameters, less norms and biases."""
    assert PRESETS[name].stored_parameters == pytest.approx(1e9 * billions, rel=1e-3)


@pytest.mark.parametrize("family, tied", [("llama", False), ("gpt2", True), ("gpt_neox", False), ("qwen3", True)])
def test_against_models_of_hugging_face(tmp_path, family, tied):
    """All matrices of the built model: those that a pass reads, and the embedding table if it is separate."""
    import torch
    import transformers
    from support.tiny_families import small_config

    changes = {"gpt2": {"n_inner": None}, "gpt_neox": {}}.get(family, {"head_dim": 16})
    built = small_config(family, tie_word_embeddings=tied, **changes)
    built.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(built)
    model.tie_weights()
    matrices = sum(one.numel() for name, one in model.named_parameters() if one.ndim == 2 and "wpe" not in name)
    assert ModelShape.from_config(tmp_path).stored_parameters == matrices


def test_against_one_of_ours(tmp_path):
    import torch

    from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTransformer

    size = {"layers": 2, "width": 32, "attention_heads": 4, "hidden": 48, "head_hidden": 24, "context": 16}
    model = BlockwiseTransformer(BlockwiseConfig(vocab_size=50, heads=3, **size))
    model.save(tmp_path / "model.safetensors", dtype=torch.float32)
    shape = ModelShape.from_checkpoint(tmp_path / "model.safetensors")
    assert shape.stored_parameters == sum(one.numel() for one in model.parameters() if one.ndim == 2)
    assert (shape.block_parameters, shape.cache_numbers) == (3 * 2 * 32 * 24, 2 * 2 * 32)


def test_names_of_other_families(tmp_path):
    path = tmp_path / "config.json"
    names = {"hidden_size": 64, "n_layer": 3, "n_head": 8, "multi_query": True, "vocab_size": 500}
    path.write_text(json.dumps({"model_type": "falcon", **names}))
    shape = ModelShape.from_config(path)
    assert (shape.key_heads, shape.hidden, shape.gated, shape.layers) == (1, 256, False, 3)
    path.write_text(json.dumps({"model_type": "some_vlm", "text_config": LLAMA}))
    assert ModelShape.from_config(tmp_path) == SHAPE


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hidden_size": None}, ["hidden_size", "n_embd", "d_model"]),
        ({"num_local_experts": 8}, ["mixture", "num_local_experts", "8"]),
        ({"kv_lora_rank": 512}, ["compressed"]),
        ({"is_encoder_decoder": True}, ["encoder"]),
        ({"num_experts": "many"}, ["num_experts", "'many'"]),
        ({"num_hidden_layers": "3"}, ["config.json", "'3'"]),
        ({"num_key_value_heads": 3}, ["key_heads", "8", "3"]),
        ({"hidden_size": 60}, ["heads", "60", "head_width", "8"]),
        ({"vocab_size": True}, ["vocab_size", "True"]),
        ({"hidden_size": [1], "intermediate_size": None}, ["width", "[1]"]),
    ],
)
def test_refused_configurations(tmp_path, changes, message):
    path, told = tmp_path / "config.json", LLAMA | changes
    path.write_text(json.dumps({name: value for name, value in told.items() if value is not None}))
    refuses(ValueError, lambda: ModelShape.from_config(path), *message)


def test_refused_checkpoints(tmp_path):
    from safetensors.numpy import save_file

    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    refuses(ValueError, lambda: ModelShape.from_checkpoint(tmp_path / "a.safetensors"), "safetensors")
    for number, metadata in enumerate(
        (None, {"config": "[]"}, {"config": '{"width": 3}'}, {"config": '{"width": "a", "heads": 1, "head_hidden": 2}'})
    ):
        path = tmp_path / f"{number}.safetensors"
        save_file({}, path, metadata)
        with refused(ValueError, f"{number}.safetensors"):
            ModelShape.from_checkpoint(path)
