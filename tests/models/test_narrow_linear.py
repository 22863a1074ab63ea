"""Linear layers over few tokens: products against double precision, passes against the model's own, and what is left to
the library.
"""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.tiny_transformers import build
from torch import nn

from rescore import _core
from rescore.decode.models import narrow_linear
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.narrow_linear import narrowed
from rescore.decode.models.target import Block

MOST = 32


@pytest.fixture
def layers(monkeypatch):
    """The forms of the layers that the core ran, whatever it is compiled for."""
    found = []

    def noted(x, weights, y, *form, bfloat16):
        found.append(form[:3])
        _core.narrow_linear(x, weights, y, *form, bfloat16=bfloat16)

    core = SimpleNamespace(narrow_linear=noted, narrow_rows=lambda bfloat16: (2 if bfloat16 else 1, MOST))
    monkeypatch.setattr(narrow_linear, "_core", core)
    return found


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("inputs", [16, 48, 1024, 1040, 2064])
@pytest.mark.parametrize("outputs", [16, 32, 80])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_are_those_in_double_precision(inputs, outputs, threads, dtype):
    """Up to rounding; for all remainders of rows, and weights anywhere in memory."""
    draw = torch.Generator().manual_seed(inputs + outputs)
    for rows in (*range(1, 14), 17, 40, 130):
        for shift in (0, 1, 10):
            weights = torch.randn(outputs * inputs + shift, generator=draw).to(dtype)[shift:].view(outputs, inputs)
            x = torch.randn(rows, inputs, generator=draw).to(dtype)
            y = torch.full((rows + 1, outputs), torch.nan, dtype=dtype)
            where, short = [one.data_ptr() for one in (x, weights, y)], dtype is torch.bfloat16
            _core.narrow_linear(*where, rows, inputs, outputs, threads, bfloat16=short)
            expected = x.double() @ weights.T.double()
            bound = 2**-23 * (2 + inputs / 8) * (x.double().abs() @ weights.T.double().abs())
            bound += 2**-8 * expected.abs() * short
            assert ((y[:-1] - expected).abs() <= bound).all() and y[-1].isnan().all()


def test_short_floats_are_rounded_to_the_nearest():
    """As torch rounds them: ties, the greatest, infinities, no numbers. Each is a sum of one product."""
    ones = torch.eye(16, dtype=torch.bfloat16)
    given = torch.tensor([1.5, 3.0, -257.0, 3.38e38, torch.inf, -torch.inf, torch.nan, 1e-40]).bfloat16()
    for factor in (1.0, 1.0078125, 1.171875, 65536.0):
        x, y = torch.zeros(len(given), 16, dtype=torch.bfloat16), torch.empty(len(given), 16, dtype=torch.bfloat16)
        x[:, 0] = given
        weights = (ones * factor).bfloat16()
        _core.narrow_linear(x.data_ptr(), weights.data_ptr(), y.data_ptr(), len(given), 16, 16, 1, bfloat16=True)
        torch.testing.assert_close(y[:, 0], (given.float() * factor).bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_only_whole_vectors_are_multiplied():
    refuses(ValueError, lambda: _core.narrow_linear(0, 0, 0, 1, 24, 16, 1), "16", "24")
    refuses(ValueError, lambda: _core.narrow_linear(0, 0, 0, 1, 16, 0, 1), "16", "0")


def after(target, ids, tokens):
    """Logits after the last tokens of a text, which one pass reads."""
    with torch.inference_mode():
        cache, prompts = target.open([np.array(ids[:-tokens])], 1, 64)
        target.read(Block.of_texts(prompts, [0], target.device), cache)
        ends = Block.of_texts([np.array(ids[-tokens:])], [len(ids) - tokens], target.device)
        return target.logits(target.read(ends, cache))[0]


@pytest.mark.parametrize("family, biases", [("llama", False), ("qwen2", True), ("gpt-neox", True)])
def test_passes_over_few_tokens_are_the_models_own(family, biases, layers):
    model = build(family).eval()
    assert any(getattr(part, "bias", None) is not None for part in model.modules()) == biases
    linears = [part for part in model.get_decoder().modules() if isinstance(part, nn.Linear)]
    target, text = CausalLMTarget(model), [(7 * i) % 31 + 3 for i in range(2 * MOST + 2)]
    for tokens in (1, 2, 9, MOST, MOST + 1):
        ids = text[: MOST + 1 + tokens]  # behind a prompt of too many
        layers.clear()
        logits = after(target, ids, tokens)
        torch.testing.assert_close(logits, model(torch.tensor([ids])).logits[0, MOST + 1 :], rtol=1e-4, atol=1e-5)
        forms = [(tokens, part.in_features, part.out_features) for part in linears]
        assert sorted(layers) == (sorted(forms) if tokens <= MOST else [])


def test_passes_in_short_floats_are_as_near_to_exact_ones_as_the_models_own(layers):
    model = build("qwen2").eval().bfloat16()
    target, exact = CausalLMTarget(model), copy.deepcopy(model).double()
    text = [(7 * i) % 31 + 3 for i in range(2 * MOST + 2)]
    for tokens in (1, 2, 9, MOST, MOST + 1):
        ids = text[: MOST + 1 + tokens]
        layers.clear()
        logits, own = after(target, ids, tokens), model(torch.tensor([ids])).logits[0, MOST + 1 :]
        true = exact(torch.tensor([ids])).logits[0, MOST + 1 :]
        assert (logits - true).norm() < 1.5 * (own - true).norm()
        assert bool(layers) == (2 <= tokens <= MOST)


def test_a_call_reads_the_model_as_it_is_when_it_begins(layers):
    """Weights that are replaced, parts that are, and hooks."""
    model = build("llama").eval()
    target, ids, heard = CausalLMTarget(model), [*range(3, 16)], []
    after(target, ids, 9)
    layer = model.model.layers[0].mlp
    layer.up_proj.weight = nn.Parameter(torch.randn_like(layer.up_proj.weight))
    layer.down_proj = nn.Sequential(nn.Linear(layer.down_proj.in_features, 32), nn.Tanh())
    layer.gate_proj.register_forward_hook(lambda *_: heard.append(1))
    heard.clear()
    logits = after(target, ids, 9)
    assert heard and layers
    torch.testing.assert_close(logits, model(torch.tensor([ids])).logits[0, 4:], rtol=1e-4, atol=1e-5)


class Sum(nn.Module):
    """Two layers, the second of a form that the core does not read."""

    def __init__(self):
        super().__init__()
        self.wide, self.odd = nn.Linear(32, 48), nn.Linear(48, 7, bias=False)

    def forward(self, x):
        return self.odd(self.wide(x))


@torch.no_grad()
def test_what_is_left_to_the_library(layers):
    module, x = Sum(), torch.randn(3, 3, 32)
    view = narrowed(module)
    torch.testing.assert_close(view(x), module(x))
    assert layers == [(9, 32, 48)] and view is not module
    layers.clear()
    for other in (x[:0], torch.randn(MOST + 1, 32), torch.randn(32, 9).T, torch.randn(9, 64)[:, ::2]):
        torch.testing.assert_close(view(other), module(other))
    with torch.enable_grad():
        x.requires_grad_()
        view(x).sum().backward()
    assert x.grad is not None
    x = x.detach()
    with torch.autocast("cpu"):
        assert view(x).dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="shapes"):
        view(torch.randn(9, 16, 2).flatten(1)[:, :16])
    module.wide.weight = nn.Parameter(torch.randn(32, 48).T)  # of the same form, columns first
    torch.testing.assert_close(view(x), module(x))
    module.wide.weight = nn.Parameter(torch.randn(16, 32))  # of another
    module.wide.bias = None
    torch.testing.assert_close(view.wide(x), module.wide(x))
    assert not layers


def test_modules_without_such_layers_stay_what_they_are(layers, monkeypatch):
    hooked = Sum()
    hooked.forward = hooked.forward
    for module in (nn.Sequential(nn.Linear(24, 16)), Sum().double(), Sum().half(), hooked):
        assert narrowed(module) is module
    compiled = Sum()
    compiled.compile(backend="eager")
    assert narrowed(compiled) is compiled
    monkeypatch.setattr(narrow_linear._core, "narrow_rows", lambda bfloat16: (1, 0))
    module = Sum()
    assert narrowed(module) is module
