"""Small models that draft: a model's first layers, and models of other sizes and vocabularies. The text is the
target's.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.steps import texts_of
from support.tiny_transformers import V, build, shared

from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.draft.model_lattice import MODEL, ModelLattice
from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.early_layers import EarlyLayers, early_layers
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.exit_heads import ExitForm, ExitHeads
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model
from rescore.decode.models.reader import Reader
from rescore.decode.verify.chain_rules import TokenVerification
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping

DEPTH = 4
PROMPTS = [np.array([3, 4, 5, 6]), np.array([7, 8]), np.array([9, 1, 1, 2, 30, 4])]


def target_of(name: str) -> CausalLMTarget:
    return CausalLMTarget(build(name, **{"n_layer" if name == "gpt2" else "num_hidden_layers": DEPTH}))


def own_logits(target: CausalLMTarget, ids: np.ndarray, layers: int, translate=lambda layers, state: state):
    """Behind the text, of a layer's hidden states in the model's own forward pass."""
    model, decoder = target.model, target.decoder
    norm = next(getattr(decoder, name) for name in ("norm", "ln_f", "final_layer_norm") if hasattr(decoder, name))
    out = model(input_ids=torch.from_numpy(ids)[None], output_hidden_states=True, use_cache=False)
    return model.get_output_embeddings()(norm(translate(layers, out.hidden_states[layers][0, -1])))


@pytest.mark.parametrize("name", ["llama-tied", "gpt2", "gpt-neox"])
@torch.no_grad()
def test_early_layers_predict_what_the_model_s_own_states_there_do(name):
    target = target_of(name)
    found = Reader(early_layers(target, 2), PROMPTS, ahead=0).sync(texts_of(PROMPTS))
    for text, logits in zip(PROMPTS, found):
        torch.testing.assert_close(logits, own_logits(target, text, 2), atol=1e-5, rtol=0)


@torch.no_grad()
def test_trained_exits_translate_their_states(tmp_path):
    target, heads = target_of("llama"), ExitHeads(ExitForm(exits=(2,), depth=DEPTH, width=32))
    heads.translation += torch.randn(heads.translation.shape, generator=torch.Generator().manual_seed(1)).half()
    heads.save(tmp_path, {})
    found = Reader(EarlyLayers.named(f"early:2:{tmp_path}").of(target), PROMPTS, ahead=0).sync(texts_of(PROMPTS))
    for text, logits in zip(PROMPTS, found):
        torch.testing.assert_close(logits, own_logits(target, text, 2, heads.translate), atol=1e-4, rtol=0)
    refuses(ValueError, lambda: EarlyLayers.named(f"early:3:{tmp_path}").of(target), "3", "2")


def test_names_and_layers_that_are_not_there_are_refused():
    assert EarlyLayers.named(None) is None and EarlyLayers.named("folder") is None
    assert EarlyLayers.named("early:24") == EarlyLayers(layers=24)
    for name in ("early:x", "early:0", "early:99999"):
        refuses(ValueError, lambda name=name: EarlyLayers.named(name), name)
    target = CausalLMTarget(shared("llama"))
    for count in (0, 2):
        refuses(ValueError, lambda count=count: early_layers(target, count), "LlamaForCausalLM", "2", count)


def test_a_decoder_that_cannot_be_replaced_is_refused():
    deeper = torch.nn.ModuleDict({"inner": build("llama")})
    deeper.get_decoder = deeper["inner"].get_decoder
    refuses(ValueError, lambda: early_layers(SimpleNamespace(model=deeper), 1), "ModuleDict")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_wrapper_of_adapters_is_refused_and_the_model_in_it_is_not():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], init_lora_weights=False)
    model = peft.get_peft_model(build("llama", num_hidden_layers=DEPTH), config).eval()
    refuses(ValueError, lambda: early_layers(CausalLMTarget(model), 2), "PeftModelForCausalLM", "get_base_model()")
    ids, target = np.array([3, 4, 5, 6]), CausalLMTarget(model.get_base_model())
    with torch.no_grad():
        got = early_layers(target, 2).model(torch.from_numpy(ids)[None]).logits[0, -1]
        assert torch.allclose(got, own_logits(target, ids, 2), atol=1e-5)


def test_a_model_is_opened_with_its_early_layers(tmp_path):
    target_of("llama").model.save_pretrained(tmp_path)
    opened = open_model(tmp_path, heads="early:3")
    facts = model_facts(tmp_path, "early:3")
    assert facts.small and not facts.heads and opened.heads is None
    plain = generate(opened.target, PROMPTS, None, Options(max_tokens=12))
    small = ModelLattice(model=opened.small, vocab_size=V, top_k=4)
    drafter = blended_drafter(opened.target, lattice=small, calibration=MODEL, nodes=8)
    found = generate(opened.target, PROMPTS, drafter, Options(max_tokens=12))
    assert [one.tokens.tolist() for one in found] == [one.tokens.tolist() for one in plain]
    refuses(ValueError, lambda: open_model(tmp_path, heads="early:4"), "LlamaForCausalLM", "4")


def exact(name: str, **changed: int):
    """In float64, since drafts of the same model must equal its own choices."""
    return (EncoderDecoderTarget if name == "t5" else CausalLMTarget)(build(name, **changed).double())


PAIRS = {
    "same": lambda: (exact("llama"), exact("llama")),
    "of other families": lambda: (exact("llama"), exact("gpt2")),
    "with padded embeddings": lambda: (exact("llama"), exact("gpt2", vocab_size=V + 24)),
    "with a short context": lambda: (exact("llama"), exact("gpt2", n_positions=12)),  # beyond it, gpt2 fails
    "T5": lambda: (exact("t5"), exact("t5", num_layers=1)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_text_is_the_targets_and_drafts_may_be_drawn(name):
    target, small = PAIRS[name]()
    made = partial(DraftModelDrafter, small, gamma=3, vocab_size=target.vocab_size)
    greedy, drawn = made(drawn=False), made(drawn=True)
    options = Options(max_tokens=20)
    plain, drafted = (generate(target, PROMPTS, drafter, options) for drafter in (None, greedy))
    assert [one.tokens.tolist() for one in drafted] == [one.tokens.tolist() for one in plain]
    if name.startswith("same"):
        assert all(one.statistics.accepted == [3, 3, 3, 3, 3] for one in drafted)
    shaping = Shaping(sampling=Sampling(temperature=1.0, seed=1))
    drafted = generate(target, PROMPTS, drawn, Options(max_tokens=20, shaping=shaping, rule=TokenVerification()))
    assert all(len(one.tokens) == 20 and one.tokens.max() < V for one in drafted)
    accepted = [sum(one.statistics.accepted) for one in drafted]
    assert accepted == [15] * 3 if name.startswith("same") else 0 < sum(accepted) < 45


def test_an_encoder_decoder_does_not_draft_for_a_causal_model():
    drafter = DraftModelDrafter(exact("t5"), gamma=3, vocab_size=V, drawn=False)
    refuses(
        ValueError, lambda: generate(exact("llama"), PROMPTS, drafter, Options(max_tokens=20)), "histories[0]", "[3]"
    )
