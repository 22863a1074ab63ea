"""The transformer against a twin in numpy; its checkpoint, its messages."""

from __future__ import annotations

import json

import numpy as np
import pytest
from msgspec import structs

torch = pytest.importorskip("torch")

from safetensors.torch import save_file
from support.refusals import refused, refuses
from support.tiny_blockwise import CONFIG, V, untrained

from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTransformer


def slow_hidden(model: BlockwiseTransformer, ids: list[int]) -> np.ndarray:
    """Hidden states [L, width] of one sequence, position by position, in float64."""
    w = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    config, width = model.config, model.config.width // model.config.attention_heads

    def norm(x, name):
        return x / np.sqrt((x * x).mean() + 1e-6) * w[name]

    def turned(x, position):
        half = width // 2
        angle = position * 10000.0 ** (-np.arange(half) / half)
        left, right = x[:half], x[half:]
        return np.concatenate(
            (left * np.cos(angle) - right * np.sin(angle), right * np.cos(angle) + left * np.sin(angle))
        )

    xs = [w["embedding.weight"][token] for token in ids]
    for i in range(config.layers):
        qkv = [w[f"layers.{i}.attention.qkv.weight"] @ norm(x, f"layers.{i}.norm1.weight") for x in xs]
        mixed = []
        for t in range(len(xs)):
            parts = []
            for head in range(config.attention_heads):
                cuts = [
                    slice(kind * config.width + head * width, kind * config.width + (head + 1) * width)
                    for kind in range(3)
                ]
                query = turned(qkv[t][cuts[0]], t)
                scores = np.array([query @ turned(qkv[s][cuts[1]], s) for s in range(t + 1)]) / np.sqrt(width)
                share = np.exp(scores - scores.max())
                parts.append(sum(p * qkv[s][cuts[2]] for s, p in enumerate(share / share.sum())))
            mixed.append(w[f"layers.{i}.attention.out.weight"] @ np.concatenate(parts))
        xs = [x + y for x, y in zip(xs, mixed)]
        xs = [
            x + w[f"layers.{i}.down.weight"] @ gelu(w[f"layers.{i}.up.weight"] @ norm(x, f"layers.{i}.norm2.weight"))
            for x in xs
        ]
    return np.array([norm(x, "norm.weight") for x in xs])


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def slow_logits(model: BlockwiseTransformer, hidden: np.ndarray, head: int) -> np.ndarray:
    """Logits [V] of head `head` (1-based) at one hidden state [width]."""
    w = {
        name.removeprefix(f"heads.{head - 1}."): tensor.double().numpy() for name, tensor in model.state_dict().items()
    }
    x = hidden + w["down.weight"] @ gelu(w["up.weight"] @ hidden)
    return model.embedding.weight.detach().double().numpy() @ (x / np.sqrt((x * x).mean() + 1e-6) * w["norm.weight"])


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


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
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name])
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
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\xff" * 100)
    refuses(ValueError, lambda: BlockwiseTransformer.load(path), "model.safetensors")
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, path)
    with refused(ValueError, "'config'"):
        BlockwiseTransformer.load(path)
    config = structs.asdict(CONFIG)
    save_file(tensors, path, {"config": json.dumps(config | {"colour": 1})})
    with refused(ValueError, "model.safetensors", "'colour'"):
        BlockwiseTransformer.load(path)
    save_file(tensors, path, {"config": json.dumps(config | {"vocab_size": 25})})
    with refused(ValueError, "embedding.weight", "[25, 32]", "torch.float32", "[24, 32]"):
        BlockwiseTransformer.load(path)
    del tensors["norm.weight"]
    save_file(tensors, path, {"config": json.dumps(config)})
    refuses(ValueError, lambda: BlockwiseTransformer.load(path), "'norm.weight'")


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


def test_the_reference_checkpoint_is_refused(shared):
    with refused(ValueError, "layers", "4096", "1000000000000000000000000000000"):
        BlockwiseTransformer.load(shared / "reference" / "hostile" / "ck_layers" / "model.safetensors")


def test_shapes_are_checked(model):
    with refused(ValueError, "layers", "0"):
        BlockwiseConfig(vocab_size=8, layers=0)
    with refused(ValueError, "heads", "True"):
        BlockwiseConfig(vocab_size=8, heads=True)
    with refused(ValueError, "36", "2", "attention_heads", "8"):
        BlockwiseConfig(vocab_size=8, width=36)
