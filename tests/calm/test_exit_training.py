"""The training data of exits, and their fits."""

import numpy as np
import pytest
import torch
from support.tiny_transformers import V, build

from rescore.decode.calm.early_exit import LayeredModel
from rescore.decode.calm.exit_training import ExitStates, area, exit_states, fit_exits, logistic, ridge, score_exits
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget

WIDTH, DEPTH = 6, 5


@pytest.mark.parametrize("name", ["llama", "qwen3", "t5"])
@torch.no_grad()
def test_states_are_those_of_the_model_s_own_forward_pass(name):
    if name == "t5":
        model = build(name, num_layers=DEPTH)
        layered = LayeredModel(EncoderDecoderTarget(model))
    else:
        model = build(name, num_hidden_layers=DEPTH)
        layered = LayeredModel(CausalLMTarget(model))
    prompt, text = np.array([3, 4, 5]), np.array([7, 1, 9, 30], np.int32)
    (found,) = exit_states(layered, [1, 4], [(prompt, text)])
    if name == "t5":
        decoded = torch.tensor([[0, 7, 1, 9]])
        out = model(input_ids=torch.from_numpy(prompt)[None], decoder_input_ids=decoded, output_hidden_states=True)
        states, logits = [one[0] for one in out.decoder_hidden_states], out.logits[0]
    else:
        ids = torch.tensor([[3, 4, 5, 7, 1, 9]])
        out = model(input_ids=ids, output_hidden_states=True)
        states, logits = [one[0, 2:] for one in out.hidden_states], out.logits[0, 2:]
    for layers in (1, 4):
        x = states[layers] / states[layers].square().mean(dim=-1, keepdim=True).sqrt()
        torch.testing.assert_close(found.exits[layers].float(), x, atol=3e-3, rtol=0)
    assert found.tokens.tolist() == logits.argmax(dim=-1).tolist()
    torch.testing.assert_close(layered.logits(found.last.float()), logits, atol=3e-2, rtol=0)


def test_ridge_finds_the_map_that_made_its_targets_and_shrinks_to_no_change():
    generator = torch.Generator().manual_seed(1)
    x, w = torch.randn(300, WIDTH, generator=generator), torch.randn(WIDTH, WIDTH, generator=generator)
    found = ridge(x, x + x @ w + 2.0, 1e-8)
    torch.testing.assert_close(found, torch.cat((w, torch.full((1, WIDTH), 2.0))), atol=1e-4, rtol=0)
    assert ridge(x, x + x @ w, 1e8).abs().max() < 1e-3


def test_a_logistic_regression_is_where_its_loss_is_least():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(400, WIDTH, generator=generator)
    right = (torch.rand(400, generator=generator) < torch.sigmoid(x[:, 0] * 2 - 1)).float()
    weights, bias = logistic(x, right, 1e-3)
    error = torch.sigmoid(x @ weights + bias) - right
    torch.testing.assert_close(x.T @ error / 400 + 2e-3 * weights, torch.zeros(WIDTH), atol=1e-3, rtol=0)
    assert abs(float(error.mean())) < 1e-3 and 1 < float(weights[0]) < 3


def test_area_counts_pairs():
    generator = torch.Generator().manual_seed(1)
    scores, right = torch.randint(0, 9, (60,), generator=generator) / 8, torch.rand(60, generator=generator) < 0.4
    pairs = [float(a > b) + 0.5 * float(a == b) for a in scores[right] for b in scores[~right]]
    assert area(scores, right.float()) == pytest.approx(sum(pairs) / len(pairs))
    assert area(scores, torch.ones(60)) == 0.5


def test_fitted_heads_agree_with_the_last_layer_more_often_than_states_do():
    model = build("llama", num_hidden_layers=DEPTH)
    layered = LayeredModel(CausalLMTarget(model))
    draw = np.random.default_rng(1)
    texts = [(draw.integers(0, V, 3), draw.integers(0, V, 24).astype(np.int32)) for _ in range(60)]
    states = list(exit_states(layered, [2, 4], texts))
    parts = [ExitStates.joined(states[start::3]) for start in range(3)]
    heads = fit_exits(layered, [2, 4], *parts[:2])
    for score in score_exits(layered, heads, parts[2]):
        assert score.agreement > score.plain
        states_of, wanted = parts[2].exits[score.layers].float(), parts[2].tokens
        with torch.no_grad():
            own = model.lm_head(model.model.norm(states_of)).argmax(dim=-1) == wanted
            turned = model.lm_head(model.model.norm(heads.translate(score.layers, states_of))).argmax(dim=-1) == wanted
        sure = heads(score.layers, states_of, states_of) >= 0.5
        assert score.plain == pytest.approx(float(own.float().mean()))
        assert score.agreement == pytest.approx(float(turned.float().mean()))
        assert score.accuracy == pytest.approx(float((sure == turned).float().mean()))
