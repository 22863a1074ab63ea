"""Early exits: states, layers used, keys and values, against a loop over single positions; what exits are trained on,
and their fits.
"""

from functools import partial

import numpy as np
import pytest
import torch
from support.blocks import chain
from support.early_exit import llama_layer, t5_layer, written_out
from support.refusals import refuses
from support.tiny_transformers import V, build, shared

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.train.calm.confidence import Threshold, saturation, softmax_margin
from rescore.decode.train.calm.early_exit import LayeredModel, LossyEarlyExitTarget, early_exit_texts
from rescore.decode.train.calm.exit_training import (
    ExitStates,
    area,
    exit_states,
    fit_exits,
    logistic,
    ridge,
    score_exits,
)
from rescore.lm.model.ngram import NGram

DEPTH, WIDTH = 5, 6
PROMPTS = [np.array([3, 4, 5, 6]), np.array([7, 8]), np.array([9, 1, 1, 2, 30, 4])]


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def deep(name: str, **changed):
    """A model whose layers change states less and less, so that some tokens exit early."""
    depth = {"gpt2": "n_layer", "t5": "num_layers"}.get(name.removesuffix("-untied"), "num_hidden_layers")
    return build(name, **{depth: DEPTH}, **changed)


def opened(model) -> LayeredModel:
    kind = EncoderDecoderTarget if model.config.is_encoder_decoder else CausalLMTarget
    return LayeredModel(kind(model))


def leaving(layered: LayeredModel, value: float, *, confidence=None, exits=range(1, DEPTH), **options):
    confidence = confidence or partial(softmax_margin, lambda layers, state: layered.logits(state))
    return LossyEarlyExitTarget(layered, confidence, Threshold(value=value, **options), list(exits))


def read_in_two(target, ids, first: int):
    """The cache after ids [1, n], and the logits after the last one, read in two passes."""
    cache, _ = target.open([ids[0, :first].numpy()], 1, 8)
    target.read(chain(ids[:, :first], [0]), cache)
    return cache, target.logits(target.read(chain(ids[:, first:], [first]), cache))[0, -1]


def softmax_gap(logits: torch.Tensor) -> float:
    *_, second, best = sorted(torch.softmax(logits, dim=-1).tolist())
    return best - second


def own_logits(model, state: torch.Tensor) -> torch.Tensor:
    """Logits of a layer's state, by the modules of the family."""
    if not model.config.is_encoder_decoder:
        return model.lm_head(model.model.norm(state))
    state = model.decoder.final_layer_norm(state)
    scale = model.config.d_model**-0.5 if model.config.scale_decoder_outputs else 1.0
    return model.lm_head(state * scale)


def sure(model, threshold: float, behind: int):
    """Which positions exit: those after the prompt whose softmax response reaches the threshold."""
    return lambda at, layers, state, below: at >= behind and softmax_gap(own_logits(model, state)) >= threshold


def usual_gap(model, embedded, layer) -> float:
    """A threshold reached at three exits in ten."""
    gaps = []

    def stays(position, layers, state, below) -> None:
        gaps.append(softmax_gap(own_logits(model, state)))

    written_out(model, DEPTH, embedded, layer, partial(own_logits, model), stays)
    return float(np.quantile(gaps, 0.7))


@pytest.mark.parametrize("name", ["llama-tied", "llama-eager", "t5", "t5-untied"])
def test_an_early_text_is_that_of_positions_written_out(name):
    model = deep(name)
    layered, encodes = opened(model), model.config.is_encoder_decoder
    embedded = model.decoder.embed_tokens if encodes else model.model.embed_tokens

    def layer_after(prompt):
        return t5_layer(model, torch.from_numpy(prompt)) if encodes else llama_layer

    ids = torch.tensor([0, 5, 9, 3]) if encodes else torch.from_numpy(PROMPTS[0])
    threshold = usual_gap(model, embedded(ids), layer_after(PROMPTS[0]))
    found = early_exit_texts(leaving(layered, threshold), PROMPTS, Options(max_tokens=8))
    for prompt, text in zip(PROMPTS, found):
        before = [0] if encodes else prompt
        states = embedded(torch.from_numpy(np.concatenate((before, text.tokens[:-1]))))
        exits = sure(model, threshold, behind=0 if encodes else len(prompt))
        expected = written_out(model, DEPTH, states, layer_after(prompt), partial(own_logits, model), exits)
        assert text.tokens.tolist() == expected.predicted[len(before) - 1 :].argmax(dim=-1).tolist()
        assert text.layers.tolist() == expected.layers[len(before) - 1 :]
    assert min(layers for text in found for layers in text.layers.tolist()) < DEPTH, "some left"


def test_a_skipped_layer_computes_nothing_and_the_model_stays_as_it_is():
    model = deep("llama")
    target, ran, before = leaving(opened(model), 0.0, exits=[2]), [], list(model.model.layers)
    for number, layer in enumerate(model.model.layers):
        layer.mlp.register_forward_hook(lambda *_, number=number: ran.append(number))
    early_exit_texts(target, PROMPTS[:1], Options(max_tokens=2))
    assert ran == [*range(DEPTH), 0, 1]
    assert list(model.model.layers) == before and not any("inner" in name for name, _ in model.named_parameters())


def test_saturation_is_the_cosine_of_successive_states():
    model = deep("llama")
    layered = opened(model)
    ids = torch.tensor([[3, 4, 5, 6, 7]])
    states = model.model(input_ids=ids, output_hidden_states=True).hidden_states
    cosines = [torch.nn.functional.cosine_similarity(a, b, dim=-1)[0, 4] for a, b in zip(states, states[1:-1])]
    best = max(range(1, DEPTH - 1), key=lambda layer: float(cosines[layer]))
    target = leaving(layered, float(cosines[best]) - 1e-4, confidence=saturation, exits=range(2, DEPTH))
    read_in_two(target, ids, 4)
    assert target.opened.layers == [[DEPTH, best + 1]]


@pytest.mark.parametrize("name", ["llama", "gpt-neo", "gpt-neox", "mistral", "granite", "cohere"])
def test_without_exits_the_text_is_the_model_s_own(name):
    model = shared(name)
    early = early_exit_texts(leaving(opened(model), 1.0, exits=[1]), PROMPTS, Options(max_tokens=6))
    assert all(set(one.layers.tolist()) == {2} for one in early)
    for prompt, one in zip(PROMPTS, early):
        ids = model.generate(torch.from_numpy(prompt)[None], max_new_tokens=6, do_sample=False, eos_token_id=None)
        assert ids[0, len(prompt) :].tolist() == one.tokens.tolist()


@pytest.mark.parametrize("name", ["gpt2", "gemma3", "deepseek-v3"])
def test_batches_and_drafts_change_no_text(name):
    """A position's states depend on its own context only, even if others of its pass exit earlier or later."""
    kinds = {"layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"]}
    target = leaving(opened(deep(name, **(kinds if name == "gemma3" else {}))), 0.1)
    alone = [early_exit_texts(target, [prompt], Options(max_tokens=10))[0] for prompt in PROMPTS]
    together = early_exit_texts(target, PROMPTS, Options(max_tokens=10))
    assert [one.tokens.tolist() for one in together] == [one.tokens.tolist() for one in alone]
    assert [one.layers.tolist() for one in together] == [one.layers.tolist() for one in alone]
    assert min(layers for one in alone for layers in one.layers) < DEPTH
    drafter = TreeDrafter(None, Rescorer(NGram.uniform(V)), nodes=8, depth=3)
    drafted = generate(target, PROMPTS, drafter, Options(max_tokens=10))
    assert [one.tokens.tolist() for one in drafted] == [one.tokens.tolist() for one in alone]


def test_a_state_is_translated_for_the_output_alone():
    model = deep("llama")
    layered = opened(model)
    plain = leaving(layered, 0.0, exits=[2])
    turned = LossyEarlyExitTarget(layered, plain.confidence, plain.threshold, [2], lambda layers, x: -layers * x)
    ids = torch.tensor([[3, 4, 5]])
    caches, logits = zip(*(read_in_two(target, ids, 2) for target in (plain, turned)))
    state = model.model(input_ids=ids, output_hidden_states=True).hidden_states[2][0, 2]
    torch.testing.assert_close(logits[0], own_logits(model, state), atol=1e-5, rtol=0)
    torch.testing.assert_close(logits[1], own_logits(model, -2 * state), atol=1e-5, rtol=0)
    for one, other in zip(caches[0].keys, caches[1].keys):
        assert torch.equal(one[:, :, :3], other[:, :, :3])


def test_families_without_such_layers_are_refused():
    refuses(ValueError, lambda: opened(shared("bart")), "BartDecoder")
    layered = opened(deep("llama"))
    for exits in ([], [0], [DEPTH]):
        refuses(ValueError, lambda exits=exits: leaving(layered, 0.5, exits=exits), "exits", "1", DEPTH)


def test_a_layer_that_stores_nothing_of_its_own_is_found_out(monkeypatch):
    model = deep("llama")
    target = leaving(opened(model), 0.0, exits=[2])
    monkeypatch.setattr(model.model.layers[-1], "forward", lambda states, **_: states)
    refuses(ValueError, lambda: early_exit_texts(target, PROMPTS[:1], Options(max_tokens=3)), "LlamaDecoderLayer")


def test_thresholds_fall_along_a_text():
    tokens = torch.tensor([0, 16, 64])
    assert Threshold(value=0.7).at(tokens).tolist() == pytest.approx([0.7] * 3)
    falling = Threshold(value=0.7, decay=4.0, length=64).at(tokens).tolist()
    assert falling == pytest.approx([0.63 + 0.1, 0.63 + 0.1 * np.exp(-1), 0.63 + 0.1 * np.exp(-4)], abs=1e-6)
    assert Threshold(value=1.0, decay=0.0).at(tokens).tolist() == [1.0] * 3
    refuses(ValueError, lambda: Threshold(value=1.5), "value", "0", "1.5")
    refuses(ValueError, lambda: Threshold(value=0.5, decay=-1.0), "decay", "0")
    refuses(ValueError, lambda: Threshold(value=0.5, length=0), "length", "1")


@pytest.mark.parametrize("name", ["llama", "qwen3", "t5"])
def test_states_to_train_on_are_those_of_the_model_s_own_forward_pass(name):
    model = deep(name)
    layered, encodes = opened(model), model.config.is_encoder_decoder
    (found,) = exit_states(layered, [1, 4], [(np.array([3, 4, 5]), np.array([7, 1, 9, 30], np.int32))])
    ids = dict(input_ids=torch.tensor([[3, 4, 5, 7, 1, 9]]))
    if encodes:
        ids = dict(input_ids=torch.tensor([[3, 4, 5]]), decoder_input_ids=torch.tensor([[0, 7, 1, 9]]))
    out = model(**ids, output_hidden_states=True)
    states, logits = out.decoder_hidden_states if encodes else out.hidden_states, out.logits[0, -4:]
    for layers in (1, 4):
        x = states[layers][0, -4:]
        x = x / x.square().mean(dim=-1, keepdim=True).sqrt()
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
    model, draw = deep("llama"), np.random.default_rng(1)
    layered = opened(model)
    texts = [(draw.integers(0, V, 3), draw.integers(0, V, 24).astype(np.int32)) for _ in range(60)]
    states = list(exit_states(layered, [2, 4], texts))
    *parts, held = (ExitStates.joined(states[start::3]) for start in range(3))
    heads = fit_exits(layered, [2, 4], *parts)
    for score in score_exits(layered, heads, held):
        assert score.agreement > score.plain
        of = held.exits[score.layers].float()
        own, turned = (
            own_logits(model, state).argmax(dim=-1) == held.tokens for state in (of, heads.translate(score.layers, of))
        )
        sure = heads(score.layers, of, of) >= 0.5
        assert score.plain == pytest.approx(float(own.float().mean()))
        assert score.agreement == pytest.approx(float(turned.float().mean()))
        assert score.accuracy == pytest.approx(float((sure == turned).float().mean()))
