"""The transformer against a twin in numpy; its checkpoint, its messages."""

from __future__ import annotations

import json

import numpy as np
import pytest
from msgspec import structs

torch = pytest.importorskip("torch")

from safetensors.torch import save_file
from support.refusals import refuses
from support.tiny_blockwise import CONFIG, V, untrained

from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTransformer


def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6) * weight


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def turned(x: np.ndarray) -> np.ndarray:
    """Rotary positions of vectors [L, heads, width of a head]."""
    left, right = np.split(x, 2, axis=-1)
    half = left.shape[-1]
    angle = (np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(half) / half))[:, None]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate((left * cos - right * sin, right * cos + left * sin), axis=-1)


def weights_of(model: BlockwiseTransformer) -> dict[str, np.ndarray]:
    return {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}


def slow_hidden(model: BlockwiseTransformer, ids: list[int]) -> np.ndarray:
    """Hidden states [L, width] of one sequence, in float64."""
    w, heads, n = weights_of(model), model.config.attention_heads, len(ids)
    x = w["embedding.weight"][ids]
    for i in range(model.config.layers):
        qkv = norm(x, w[f"layers.{i}.norm1.weight"]) @ w[f"layers.{i}.attention.qkv.weight"].T
        query, key, value = (part.reshape(n, heads, -1) for part in np.split(qkv, 3, axis=-1))
        scores = np.einsum("thd,shd->hts", turned(query), turned(key)) / np.sqrt(query.shape[-1])
        share = np.exp(scores) * np.tri(n)
        mixed = np.einsum("hts,shd->thd", share / share.sum(axis=-1, keepdims=True), value)
        x = x + mixed.reshape(n, -1) @ w[f"layers.{i}.attention.out.weight"].T
        inner = gelu(norm(x, w[f"layers.{i}.norm2.weight"]) @ w[f"layers.{i}.up.weight"].T)
        x = x + inner @ w[f"layers.{i}.down.weight"].T
    return norm(x, w["norm.weight"])


def slow_logits(model: BlockwiseTransformer, hidden: np.ndarray, head: int) -> np.ndarray:
    """Logits [V] of head `head` (1-based) at one hidden state [width]."""
    w = weights_of(model)
    up, down, weight = (w[f"heads.{head - 1}.{part}.weight"] for part in ("up", "down", "norm"))
    return w["embedding.weight"] @ norm(hidden + down @ gelu(up @ hidden), weight)


@pytest.fixture(scope="module")
def model() -> BlockwiseTransformer:
    return untrained()


@torch.no_grad()
def test_equals_the_slow_twin(model):
    ids = [3, 1, 4, 1, 5, 9, 2]
    hidden = model(torch.tensor([ids]))[0]
    expected = slow_hidden(model, ids)
    np.testing.assert_allclose(hidden.numpy(), expected, atol=2e-5)
    logits = model.all_logits(hidden)
    assert logits.shape == (len(ids), CONFIG.heads, V)
    torch.testing.assert_close(model.all_logits(hidden, first=3), logits[:, 2:], atol=1e-5, rtol=0)
    for head in range(1, CONFIG.heads + 1):
        np.testing.assert_allclose(logits[-1, head - 1].numpy(), slow_logits(model, expected[-1], head), atol=1e-4)
        torch.testing.assert_close(model.logits(hidden, head), logits[:, head - 1], atol=1e-5, rtol=0)


def test_a_checkpoint_comes_back(model, tmp_path):
    path = tmp_path / "model.safetensors"
    model.save(path, {"step": "3"}, dtype=torch.float32)
    loaded = BlockwiseTransformer.load(path)
    assert loaded.config == model.config and not loaded.training
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), atol=0, rtol=0)
    model.save(path)  # bfloat16
    again = BlockwiseTransformer.load(path)
    assert torch.equal(again.embedding.weight, model.embedding.weight.bfloat16().float())
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_failed_save_keeps_the_old_file(model, tmp_path):
    path = tmp_path / "model.safetensors"
    model.save(path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        model.save(path, {"step": 3})  # metadata are strings
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_bad_checkpoints_are_named(model, tmp_path):
    path, config = tmp_path / "model.safetensors", structs.asdict(CONFIG)
    whole = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    path.write_bytes(b"\xff" * 100)
    refuses(ValueError, lambda: BlockwiseTransformer.load(path), "model.safetensors")
    for tensors, given, named in (
        (whole, None, ["'config'"]),
        (whole, config | {"colour": 1}, ["model.safetensors", "'colour'"]),
        (whole, config | {"vocab_size": 25}, ["embedding.weight", "[25, 32]", "torch.float32", "[24, 32]"]),
        ({name: one for name, one in whole.items() if name != "norm.weight"}, config, ["'norm.weight'"]),
    ):
        save_file(tensors, path, given and {"config": json.dumps(given)})
        refuses(ValueError, lambda: BlockwiseTransformer.load(path), *named)


@pytest.mark.parametrize("name", BlockwiseConfig.__struct_fields__)
def test_nothing_is_built_of_a_config_that_is_not_its_tensors(model, tmp_path, monkeypatch, name):
    """Every number, above what memory holds, above what the tensors say, no number."""
    path = tmp_path / "model.safetensors"
    config = structs.asdict(CONFIG)
    monkeypatch.setattr(BlockwiseTransformer, "__init__", None)
    wrong = ["1" + "0" * 30, "1" + "0" * 5000, "-1", "2.0", "null", '"' + "1" * 5000 + '"', "[" * 100_000]
    if name not in ("attention_heads", "context"):  # of which tensors say nothing
        wrong += [str(config[name] * 2)]
    for value in wrong:
        text = json.dumps(config | {name: None}).replace("null", value)
        save_file({key: tensor.contiguous() for key, tensor in model.state_dict().items()}, path, {"config": text})
        refuses(ValueError, lambda: BlockwiseTransformer.load(path), "model.safetensors")


def test_shapes_are_checked():
    refuses(ValueError, lambda: BlockwiseConfig(vocab_size=8, layers=0), "layers", "0")
    refuses(ValueError, lambda: BlockwiseConfig(vocab_size=8, heads=True), "heads", "True")
    refuses(ValueError, lambda: BlockwiseConfig(vocab_size=8, width=36), "36", "2", "attention_heads", "8")
