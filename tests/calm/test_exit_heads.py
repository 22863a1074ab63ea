"""Exit heads: what they compute, what they are fitted to, and files that are not what they say."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file
from support.tiny_transformers import V, build

from rescore.decode.calm.early_exit import LayeredModel
from rescore.decode.calm.exit_files import ExitForm
from rescore.decode.calm.exit_heads import ExitHeads
from rescore.decode.calm.exit_states import ExitStates, exit_states
from rescore.decode.calm.exit_training import area, fit_exits, logistic, ridge, score_exits
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget

torch.set_num_threads(1)

WIDTH, DEPTH = 6, 5
FORM = ExitForm(exits=(2, 4), depth=DEPTH, width=WIDTH)


def made() -> ExitHeads:
    heads, generator = ExitHeads(FORM), torch.Generator().manual_seed(3)
    for buffer in heads.buffers():
        buffer.copy_(torch.randn(buffer.shape, generator=generator).half())
    return heads


def test_heads_compute_what_is_written_in_their_file(tmp_path):
    made().save(tmp_path, {"model": "some"})
    tensors, heads = load_file(tmp_path / "exits.safetensors"), ExitHeads.load(tmp_path, depth=DEPTH, width=WIDTH)
    state = torch.randn(3, 2, WIDTH)
    x = state / state.square().mean(dim=-1, keepdim=True).sqrt()
    for row, layers in enumerate((2, 4)):
        translation, offset = tensors["translation"][row].float(), tensors["offset"][row].float()
        torch.testing.assert_close(heads.translate(layers, state), x + x @ translation + offset)
        sure = 1 / (1 + torch.exp(-(x @ tensors["classifier"][row].float() + tensors["bias"][row].float())))
        torch.testing.assert_close(heads(layers, state, state), sure)
    told = json.loads((tmp_path / "exits.json").read_text())
    assert told == {
        "format": "rescore exits", "version": 1, "exits": [2, 4], "depth": DEPTH, "width": WIDTH, "model": "some"
    }  # fmt: skip


def test_new_heads_change_no_prediction():
    heads, state = ExitHeads(FORM), torch.randn(4, WIDTH)
    turned = heads.translate(2, state)
    torch.testing.assert_close(torch.nn.functional.cosine_similarity(turned, state, dim=-1), torch.ones(4))
    assert heads(2, state, state).tolist() == [0.5] * 4


CONFIG_FAULTS = [
    ({"format": "other"}, "expected format 'rescore exits', version 1, got 'other', 1"),
    ({"version": 2}, "expected format 'rescore exits', version 1, got 'rescore exits', 2"),
    ({"exits": "24"}, "exits: expected a list of layers, got '24'"),
    ({"exits": []}, r"exits: expected rising layers from 1 to 4, got \(\)"),
    ({"exits": [4, 2]}, "exits: expected rising layers from 1 to 4"),
    ({"exits": [2, 5]}, "exits: expected rising layers from 1 to 4"),
    ({"exits": [2, None]}, "exits: expected rising layers from 1 to 4"),
    ({"exits": [True, 4]}, "exits: expected rising layers from 1 to 4"),
    ({"depth": 10**9}, "depth: expected an integer from 1 to 4096, got 1000000000"),
    ({"width": "6"}, "width: expected an integer from 1 to 65536, got '6'"),
    ({"depth": 6}, "expected exits of this model, of depth 5, got 6"),
    ({"width": 8}, "expected exits of this model, of width 6, got 8"),
    ({"exits": [1, 2, 4]}, r"translation: expected floating point \[3, 6, 6\], got torch.float16 \[2, 6, 6\]"),
]


@pytest.mark.parametrize(("changed", "message"), CONFIG_FAULTS)
def test_a_config_that_is_another_s_is_refused(tmp_path, changed, message):
    made().save(tmp_path, {})
    path = tmp_path / "exits.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with pytest.raises(ValueError, match=message):
        ExitHeads.load(tmp_path, depth=DEPTH, width=WIDTH)


TENSOR_FAULTS = [
    ({"bias": torch.tensor([1, 2])}, "bias: expected floating point [2], got torch.int64 [2]"),
    ({"offset": torch.full((2, WIDTH), torch.inf)}, "offset: expected finite numbers, got NaN or infinity"),
    ({"classifier": torch.zeros(WIDTH, 2)}, "classifier: expected floating point [2, 6], got torch.float32 [6, 2]"),
    ({"more": torch.zeros(1)}, "expected translation, offset, classifier, bias alone, got otherwise for 'more'"),
]


@pytest.mark.parametrize(("changed", "message"), TENSOR_FAULTS)
def test_tensors_that_are_wrong_are_refused_by_name(tmp_path, changed, message):
    made().save(tmp_path, {})
    path = tmp_path / "exits.safetensors"
    save_file({**load_file(path), **changed}, path)
    with pytest.raises(ValueError) as caught:
        ExitHeads.load(tmp_path, depth=DEPTH, width=WIDTH)
    assert message in str(caught.value)


def test_files_that_do_not_read_are_refused(tmp_path):
    made().save(tmp_path, {})
    (tmp_path / "exits.safetensors").write_bytes(b"\xff" * 30)
    with pytest.raises(ValueError, match="expected a safetensors file, got one that does not read"):
        ExitHeads.load(tmp_path, depth=DEPTH, width=WIDTH)
    (tmp_path / "exits.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="exits.safetensors: expected beside exits.json"):
        ExitHeads.load(tmp_path, depth=DEPTH, width=WIDTH)
    (tmp_path / "exits.json").unlink()
    with pytest.raises(FileNotFoundError, match="exits.json: expected what `rescore calm train` writes"):
        ExitHeads.load(tmp_path, depth=DEPTH, width=WIDTH)


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
