"""Drafting() on models that read their inputs in another way than most: `generate`'s text, or a refusal by name."""

import copy
import functools
import pickle
import warnings
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from support.refusals import assert_named, refuses

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.20")

from support import tiny_families, tiny_transformers
from support.generating import PLAIN, Prophet, assert_a_chat_continues, ragged, texts_of
from support.seeing import FAMILIES, seeing
from support.tiny_transformers import SWITCH, V, longrope
from torch import nn

from rescore import Drafting
from rescore.decode.engines.huggingface import drafting, model_inputs
from rescore.decode.engines.huggingface.drafting import active_adapters
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.medusa import MedusaHeads
from rescore.decode.models.slot_cache import CACHE
from rescore.lm.build.in_memory import build


def plainly(model, inputs, **arguments):
    return model.generate(**inputs, **{**PLAIN, "max_new_tokens": 12, **arguments})


def same(model, inputs, drafting=None, **arguments):
    """Checks the text with and without drafts; returns the Drafting."""
    plain = plainly(model, inputs, **arguments)
    given = Drafting(Prophet(texts_of(inputs, plain))) if drafting is None else drafting
    assert plainly(model, inputs, **arguments, custom_generate=given).tolist() == plain.tolist()
    return given


def refused_beside(model, inputs, *named, drafting=None):
    plainly(model, inputs)  # without drafts it works
    refuses(ValueError, lambda: plainly(model, inputs, custom_generate=drafting or Drafting()), *named)


# What prepare_inputs_for_generation, hooks and methods do: context managers of a model that is changed


def prepared(change, model):
    own = model.prepare_inputs_for_generation
    return patch.object(model, PREPARED, functools.wraps(own)(lambda *given, **named: change(own(*given, **named))))


def with_hook(hook, where=lambda model: model.model.layers[0]):
    return lambda model: where(model).register_forward_hook(hook)


def last_alone(module, given, states):
    states = states.clone()
    states[:, -1] += 1.0
    return states


class Reads8As9:
    """A `forward` of any kind: the model's own, with one id read as another."""

    def __init__(self, forward):
        self.forward = forward

    def __call__(self, input_ids=None, **named):
        return self.forward(input_ids=input_ids.where(input_ids != 8, 9), **named)


def favouring(bias, model):
    """The model's own `forward`, with one logit changed."""
    own = model.forward

    @functools.wraps(own)
    def forward(*given, **named):
        out = own(*given, **named)
        out.logits[..., 9] += bias
        return out

    return patch.object(model, "forward", forward)


def of_instance(forward):
    return lambda model: patch.object(model, "forward", forward(model))


def of_class(model):
    own = type(model).forward
    return patch.object(type(model), "forward", lambda self, **named: Reads8As9(partial(own, self))(**named))


def of_embeddings(model):
    own, table = model.forward, model.get_input_embeddings()
    return lambda input_ids=None, **named: own(inputs_embeds=table(input_ids) * 1.5, **named)


@contextmanager
def past_the_decoder(model):
    decoder, kind = model.model.forward, type(model.model)
    model.model.__class__ = type("Own", (kind,), {"__call__": lambda self, **named: decoder(**named)})
    yield
    model.model.__class__ = kind


def doubled(inputs):
    return {**inputs, "position_ids": 2 * inputs["position_ids"]}


def moved_later(inputs):
    return {**inputs, "position_ids": inputs["position_ids"] + 3} if inputs["input_ids"].shape[1] == 1 else inputs


def replaced(inputs):
    return {**inputs, "input_ids": inputs["input_ids"].where(inputs["input_ids"] != V - 1, 3)}


def scaled(inputs):
    return {**inputs, "inputs_embeds_scale": 2.0}


PREPARED = "prepare_inputs_for_generation"
CHANGES = {
    "prepared positions": (partial(prepared, doubled), [PREPARED, "position_ids"]),
    "prepared id": (partial(prepared, replaced), [PREPARED, "input_ids"]),
    "prepared argument": (partial(prepared, scaled), [PREPARED, "inputs_embeds_scale"]),
    "later positions": (partial(prepared, moved_later), ["logits"]),
    "last position": (with_hook(last_alone), ["logits"]),
    "prompts": (with_hook(lambda *given: given[2] + 1.0 if given[2].shape[1] > 1 else given[2]), ["logits"]),
    "hook": (with_hook(lambda *given: None, lambda model: model), ["1"]),
    "one logit": (partial(favouring, 0.02), ["logits"]),
    "one logit, -inf": (partial(favouring, -torch.inf), ["logits"]),
    "one id, of the instance": (of_instance(lambda model: Reads8As9(model.forward)), [V]),
    "one id, of the class": (of_class, [V]),
    "embeddings": (of_instance(of_embeddings), ["logits"]),
    "past the decoder": (past_the_decoder, [V]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_has_passed_is_checked_again_when_it_has_changed(name):
    change, message = CHANGES[name]
    model, drafting, inputs = tiny_transformers.build("llama"), Drafting(), ragged(6)
    same(model, inputs, drafting)
    with change(model):
        for _ in range(2):
            refused_beside(model, inputs, *message, drafting=drafting)
    same(model, inputs, drafting)


def test_one_logit_that_changes_is_found_also_in_bfloat16():
    """Where the target's own test allows for much rounding."""
    model = tiny_transformers.build("llama").to(torch.bfloat16)
    with favouring(0.2, model):
        refused_beside(model, ragged(6), "logits", "id 9")


def hooked(model):
    hooks = pytest.importorskip("accelerate.hooks")
    for module in model.modules():
        hooks.add_hook_to_module(module, hooks.ModelHook())
    return model


def passing_on(model):
    own = model.forward
    model.forward = functools.wraps(own)(lambda *given, **named: own(*given, **named))
    return model


@pytest.mark.parametrize("family, wrapped", [("llama", hooked), ("gpt2", passing_on), ("gpt2", torch.compile)])
def test_a_forward_that_passes_ids_on_needs_no_refusal(family, wrapped):
    model, drafting = tiny_transformers.build(family), Drafting()
    same(model, ragged(6, 4), drafting)
    same(wrapped(model), ragged(6, 4), drafting)


def test_changes_that_all_tokens_share_need_no_refusal():
    model, drafting, inputs = tiny_transformers.build("llama"), Drafting(), ragged(6, 3)
    with_hook(lambda module, given, states: states + 0.5)(model)
    same(model, inputs, drafting)
    model.lm_head = nn.Linear(32, V, bias=False)
    same(model, inputs, drafting)
    model.resize_token_embeddings(V + 5)
    same(model, inputs, drafting)
    model.set_attn_implementation("eager")
    same(model, inputs, drafting)
    model.config.attention_dropout = 0.1
    model.train()
    refuses(ValueError, lambda: model.generate(**inputs, **PLAIN, custom_generate=drafting), "attention_dropout", "0.1")


LORA = dict(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "down_proj"])


def adapted(config):
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    model = peft.get_peft_model(tiny_transformers.build("llama"), config(peft)).eval()
    for name, weights in model.named_parameters():
        if "prompt" in name or "lora" in name:
            nn.init.normal_(weights, std=0.3)
    return model


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_learned_prompts_are_refused_and_an_adapter_is_not():
    """Also one that is disabled, switched on and merged."""
    model = adapted(lambda peft: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    refused_beside(model, ragged(6), PREPARED, "inputs_emb")
    model = adapted(lambda peft: peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "lm_head"]))
    drafting, inputs = Drafting(), ragged(6, 4)
    same(model, inputs, drafting)
    with model.disable_adapter():
        same(model, inputs, drafting)
    same(model, inputs, drafting)
    model.merge_adapter()
    same(model, inputs, drafting)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_an_ngram_model_of_the_active_adapter():
    model, inputs = adapted(lambda peft: peft.LoraConfig(**LORA)), ragged(6)
    model.add_adapter("other", model.peft_config["default"])
    own = build([plainly(model, inputs)[0].numpy().astype(np.int32)], order=5, vocab_size=V, end_of_text=2)
    drafting, passes = Drafting(nodes=8, lm={"default": own}), {}
    for name, switch in (("default", nullcontext()), ("", model.disable_adapter())):
        with switch:
            assert "".join(active_adapters(model)) == name
            passes[name] = same(model, inputs, drafting).statistics[0].passes
    model.set_adapter("other")
    assert active_adapters(model) == ["other"]
    same(model, inputs, drafting)
    assert passes["default"] < passes[""]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_adapters_that_are_chosen_by_row_leave_the_call_to_the_model_and_it_as_it_was():
    """Their hooks stay where an error leaves the call."""
    model = adapted(lambda peft: peft.LoraConfig(**LORA))
    before = plainly(model, ragged(6)).tolist()
    for lengths, names in (((6,), ["__base__"]), ((6, 9), ["default", "__base__"]), ((6, 9), ["default"] * 2)):
        drafting = same(model, ragged(*lengths), Drafting(), adapter_names=names)
        assert "adapter_names" in str(drafting.summary())
    assert plainly(model, ragged(6)).tolist() == before
    assert "decoded without" not in str(same(model, ragged(6, 9), drafting).summary())


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_an_adapter_that_is_active_after_some_tokens_only():
    model, inputs = adapted(lambda peft: peft.LoraConfig(**LORA, alora_invocation_tokens=[5, 6])), ragged(20, 14)
    inputs["input_ids"][:, 8:10] = torch.tensor([5, 6])
    assert "alora_offsets" in str(same(model, inputs, Drafting()).summary())
    same(model.get_base_model(), inputs)
    refuses(ValueError, lambda: CausalLMTarget(model), "aLoRA")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_dropout_of_an_adapter_that_was_added_to_a_model_in_evaluation_mode_is_named():
    model = adapted(lambda peft: peft.LoraConfig(**LORA))
    model.add_adapter("second", pytest.importorskip("peft").LoraConfig(**LORA, lora_dropout=0.3))
    for layer in model.modules():
        if "second" in getattr(layer, "lora_B", {}):
            nn.init.normal_(layer.lora_B["second"].weight, std=0.3)
    same(model, ragged(6, 9))  # it is not active
    model.set_adapter("second")
    refused_beside(model, ragged(6), "lora_dropout.second", "0.3", "eval()")
    same(model.eval(), ragged(6, 9))


# Output layers


class Packed(nn.Module):
    """Weights in 8 bits, with a `weight` of another shape."""

    def __init__(self, layer):
        super().__init__()
        self.scale = layer.weight.abs().max().item() / 127
        self.packed = nn.Parameter((layer.weight / self.scale).round().to(torch.int8), requires_grad=False)
        self.weight = nn.Parameter(self.packed.view(-1, 1), requires_grad=False)

    def forward(self, hidden):
        return hidden @ (self.packed.to(hidden.dtype) * self.scale).T


OUTPUTS = {"in a module": nn.Sequential, "packed": Packed, "with a bias": lambda layer: nn.Linear(32, V)}


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_output_layers_are_applied_and_not_read(output, tmp_path):
    model, inputs = tiny_transformers.build("llama"), ragged(6, 9)
    torch.manual_seed(2)
    model.lm_head = output(model.lm_head)
    same(model, inputs)
    same(model, inputs, Drafting())
    heads = MedusaHeads(width=32, heads=2, layers=1, output=CausalLMTarget(model).logits)
    heads.save(tmp_path)
    for source in (heads, tmp_path):
        same(model, inputs, Drafting(source))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_layers_that_round_by_the_pass_are_decoded_without_drafts():
    model = torch.ao.quantization.quantize_dynamic(tiny_transformers.build("llama"), {nn.Linear})
    drafting = same(model, ragged(6, 9), Drafting())
    assert "quantized.dynamic" in str(drafting.summary())
    refuses(ValueError, lambda: CausalLMTarget(model), "quantized.dynamic")


class Linear8bitLt(nn.Linear):
    """LLM.int8(): inputs are rounded to 8 bits token by token, but not those that pass the threshold in any token."""

    def __init__(self, layer, threshold):
        super().__init__(layer.in_features, layer.out_features, bias=False)
        self.weight, self.state = layer.weight, SimpleNamespace(threshold=threshold)

    def forward(self, states):
        past = (states.abs() > (self.state.threshold or torch.inf)).flatten(0, -2).any(dim=0)
        rounded = states.masked_fill(past, 0.0)
        scale = rounded.abs().amax(dim=-1, keepdim=True) / 7  # 4 bits, for the difference to show in short texts
        return super().forward(torch.where(past, states, (rounded / scale).round() * scale))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("threshold", [0.0, 1.5])
def test_layers_that_choose_by_the_pass_what_they_round(threshold):
    """No row may pad another, whose tokens would count."""
    model = tiny_transformers.build("llama")
    for layer in model.model.layers:
        layer.mlp.down_proj = Linear8bitLt(layer.mlp.down_proj, threshold)
        layer.self_attn.q_proj = Linear8bitLt(layer.self_attn.q_proj, threshold)
    for seed in range(4):
        drafting = same(model, ragged(9, seed=seed), Drafting())
        assert ("llm_int8_threshold" in str(drafting.summary())) == (threshold > 0)


# Rotary angles that depend on the length of the text

SWITCHING = {"llama": [((8,), 30), ((15,), 3), ((16, 3), 8), ((14, 3, 9), 8)], "phi3": [((17,), 8), ((14, 3, 9), 30)]}


@pytest.mark.parametrize("family", SWITCHING)
def test_longrope_on_both_sides_of_its_switch(family):
    for lengths, most in SWITCHING[family]:
        inputs, model = ragged(*lengths), longrope(family)
        passes = same(model, inputs, max_new_tokens=most).statistics[0].passes
        assert passes < most or most == 3
        same(model, inputs, Drafting(), max_new_tokens=most, repetition_penalty=1.2)
        same(model, inputs, max_new_tokens=most, eos_token_id=list(range(2, 9)))


def test_scores_and_a_cache_across_the_switch_are_those_of_generate():
    shown = dict(return_dict_in_generate=True, output_scores=True, max_new_tokens=20)
    call = partial(plainly, longrope("llama"), ragged(8, 6), **shown)
    plain = call()
    with pytest.warns(UserWarning, match="decoded without drafts, since longrope switches its angles"):
        drafted = call(custom_generate=Drafting())
    assert drafted.sequences.tolist() == plain.sequences.tolist()
    assert all(torch.equal(one, other) for one, other in zip(drafted.scores, plain.scores))


@pytest.mark.filterwarnings("ignore:custom_generate. decoded without drafts, since longrope")
def test_a_chat_that_crosses_the_switch_between_its_turns():
    drafting = Drafting()
    assert_a_chat_continues(longrope("phi3"), ragged(6), lambda *known: drafting, most=4, cached=True)


ROPES = {
    "dynamic": dict(factor=4.0),
    "linear": dict(factor=4.0),
    "yarn": dict(factor=4.0, original_max_position_embeddings=SWITCH),
    "llama3": dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=SWITCH),
}


@pytest.mark.filterwarnings("ignore:custom_generate. decoded without drafts, since rope_type 'dynamic'")
@pytest.mark.parametrize("kind", ROPES)
def test_other_rotary_angles(kind):
    rope = dict(rope_type=kind, rope_theta=1e4, **ROPES[kind])
    model = tiny_transformers.build("llama", rope_parameters=rope, max_position_embeddings=SWITCH)
    for lengths, most in (((8,), 6), ((8,), 30), ((14, 3, 9), 30)):
        same(model, ragged(*lengths), max_new_tokens=most)


# Padding


@functools.cache
def padded_model():
    """A model whose padding id has an embedding like any other."""
    model = tiny_transformers.build("llama")
    nn.init.normal_(model.get_input_embeddings().weight)
    return model


def test_a_row_of_padding_alone():
    inputs = ragged(3, 3)
    inputs["attention_mask"][0] = 0
    inputs["input_ids"][0] = 0
    with pytest.warns(UserWarning, match="decoded without drafts, since row 0 is padding alone"):
        drafting = same(padded_model(), inputs, Drafting(), eos_token_id=list(range(2, 12)))
    assert drafting.statistics == []
    assert_named(str(drafting.summary()), ["0"])


EDGES = {
    "bos == pad": ([[0, 0, 0, 5], [0, 6, 7, 8]], [[0, 0, 1, 1], [1, 1, 1, 1]], {}),
    "pad == eos": ([[0, 0, 6, 5], [5, 6, 7, 8]], [[0, 0, 1, 1], [1, 1, 1, 1]], dict(eos_token_id=0)),
    "one token, the padding id": ([[0]], [[1]], {}),
    "one token among others": ([[0, 0, 5], [6, 7, 8]], [[0, 0, 1], [1, 1, 1]], {}),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_of_ragged(name):
    ids, mask, arguments = EDGES[name]
    inputs = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    same(padded_model(), inputs, **arguments)
    same(padded_model(), inputs, Drafting(), **arguments)


# The end of the context


@pytest.mark.parametrize("family", ["codegen", "ctrl", "gpt2", "gpt_bigcode", "gpt_neo", "gptj", "opt", "biogpt"])
def test_every_family_with_a_table_reaches_its_end(family):
    model, inputs = tiny_families.small_model(family), ragged(120)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for most in (8, 9):  # the last token is not read
            same(model, inputs, Drafting(nodes=16), max_new_tokens=most)
    with pytest.raises(IndexError):
        plainly(model, inputs, max_new_tokens=10)
    with pytest.warns(UserWarning, match="row 0: expected its text to end within the model's context of 128"):
        assert plainly(model, inputs, max_new_tokens=10, custom_generate=Drafting()).shape == (1, 129)


def test_a_row_that_outgrows_the_context_leaves_the_others_their_text():
    model, inputs = tiny_transformers.shared("gpt2"), ragged(60, 10)
    with pytest.warns(UserWarning, match="row 0: expected its text to end within the model's context of 64 positions"):
        got = plainly(model, inputs, custom_generate=Drafting())
    short = {name: value[1:, 50:] for name, value in inputs.items()}
    assert got[1, 50:].tolist() == plainly(model, short)[0].tolist()
    long = {name: value[:1] for name, value in inputs.items()}
    assert got[0].tolist() == [*plainly(model, long, max_new_tokens=5)[0].tolist(), *[0] * 7]


# Fields of the configuration that belong to other families

LEFT_OVER = {
    "window": dict(sliding_window=4096),
    "layer types": dict(layer_types=["sliding_attention", "full_attention"], sliding_window=4096),
    "logits": dict(logit_scale=0.3, logits_scaling=3.0, final_logit_softcapping=2.0),
    "alibi": dict(alibi=True),
    "mtp": dict(num_mtp_layers=2, num_nextn_predict_layers=1),
    "positions": dict(original_max_position_embeddings=4, position_embedding_type="absolute"),
}


@pytest.mark.parametrize("fields", LEFT_OVER.values(), ids=LEFT_OVER)
def test_fields_that_the_family_does_not_use(fields):
    same(tiny_transformers.build("llama", **fields), ragged(6, 9), max_new_tokens=20)


def test_a_window_that_only_the_cache_of_generate_knows():
    model = tiny_transformers.build("llama", sliding_window=5)
    with pytest.warns(UserWarning, match=f"{CACHE} keeps 5 tokens .sliding_window., which the family does not expect"):
        same(model, ragged(9), Drafting())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plainly(model, ragged(2), max_new_tokens=3, custom_generate=Drafting()).shape == (1, 5)


def test_what_was_checked_is_kept_with_the_model(monkeypatch):
    """A new object for every call does not check again; copies and pickles of the model do."""
    model, checks, counted = tiny_transformers.build("llama"), [], model_inputs.check_steps
    monkeypatch.setattr(drafting, "check_steps", lambda *given: (checks.append(1), counted(*given)))
    for copied in (lambda one: one, lambda one: one, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        same(copied(model), ragged(6), Drafting())
    assert len(checks) == 3


@pytest.mark.parametrize("family", ["phi3", "gpt-neo"])
def test_parts_are_not_replaced_under_a_forward_of_the_instance(family):
    model = hooked(longrope.__wrapped__("phi3") if family == "phi3" else tiny_transformers.build(family))
    refused_beside(model, ragged(6), "instance")


def test_a_table_that_grows_is_not_the_end_of_a_text():
    model = tiny_families.small_model("xglm")
    same(model, ragged(120, 90), max_new_tokens=9)
    with pytest.warns(UserWarning, match="decoded without drafts, since .* past its 128 positions"):
        same(model, ragged(120, 90), Drafting(), max_new_tokens=12)


# Models that also read images or sound, with text alone


@pytest.mark.parametrize("name", FAMILIES)
def test_text_alone_through_classes_that_also_take_images_or_sound(name):
    model = seeing(name)
    for inputs in (ragged(6), ragged(6, 3, 9)):
        same(model, inputs)
        same(model, inputs, Drafting(nodes=6))


def test_marks_that_nothing_is_an_image_are_text():
    """Processors mark every text so."""
    model, inputs = seeing("Gemma3"), ragged(6, 3)
    none = torch.zeros_like(inputs["input_ids"])
    same(model, inputs, token_type_ids=none)
    same(seeing("Qwen2VL"), inputs, mm_token_type_ids=none)


def test_embeddings_that_are_changed_on_the_way_to_the_decoder_are_found():
    model = seeing("Llava")
    table = model.get_input_embeddings()
    inner, own = model.model, model.model.forward

    def forward(input_ids=None, inputs_embeds=None, **named):
        embedded = table(input_ids)
        return own(inputs_embeds=embedded.where(input_ids[..., None] != 8, 2 * embedded), **named)

    with patch.object(inner, "forward", forward):
        refused_beside(model, ragged(6), V)
    same(model, ragged(6))
