"""A model's first layers as a model of their own, as drafts and as heads: the text is that of all layers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.tiny_blockwise import untrained
from support.tiny_transformers import V, build, shared

from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.early_layers import SLOTS, DraftModelHeads, EarlyLayers, early_layers
from rescore.decode.models.exit_heads import ExitForm, ExitHeads
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model

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


def drafted(heads) -> torch.Tensor:
    """Logits [3, slots, V] of heads after the prompts."""
    histories = [prompt.astype(np.int32) for prompt in PROMPTS]
    step = DraftStep(histories=histories, hidden=torch.zeros(3, 1), fresh=[], room=[9] * 3, random=[])
    return heads.open(3).logits(step)


@pytest.mark.parametrize("name", ["llama-tied", "gpt2", "gpt-neox"])
@torch.no_grad()
def test_heads_of_early_layers_are_its_greedy_draft(name):
    target = target_of(name)
    found = drafted(DraftModelHeads(early_layers(target, 2), slots=3, vocab_size=V))
    assert found.shape == (3, 3, V)
    for text, slots in zip(PROMPTS, found):
        for logits in slots:
            expected = own_logits(target, text, 2)
            torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
            text = np.append(text, int(expected.argmax()))


def trained(folder, layers: int) -> ExitHeads:
    heads = ExitHeads(ExitForm(exits=(layers,), depth=DEPTH, width=32))
    heads.translation += torch.randn(heads.translation.shape, generator=torch.Generator().manual_seed(1)).half()
    heads.save(folder, {})
    return heads


@torch.no_grad()
def test_trained_exits_translate_their_states(tmp_path):
    target, heads = target_of("llama"), trained(tmp_path, 2)
    found = EarlyLayers.named(f"early:2:{tmp_path}").heads(target)
    for text, logits in zip(PROMPTS, drafted(found)[:, 0]):
        torch.testing.assert_close(logits, own_logits(target, text, 2, heads.translate), atol=1e-4, rtol=0)
    refuses(ValueError, lambda: EarlyLayers.named(f"early:3:{tmp_path}").heads(target), "3", "2")


def test_names_and_layers_that_are_not_there_are_refused():
    assert EarlyLayers.named(None) is None and EarlyLayers.named("folder") is None
    assert EarlyLayers.named("early:24") == EarlyLayers(layers=24)
    for name in ("early:x", "early:0", "early:99999"):
        refuses(ValueError, lambda name=name: EarlyLayers.named(name), name)
    target = CausalLMTarget(shared("llama"))
    for count in (0, 2):
        refuses(ValueError, lambda count=count: early_layers(target, count), "LlamaForCausalLM", "2", count)
    refuses(ValueError, lambda: DraftModelHeads(target, slots=0, vocab_size=V), "slots", "1", "0")


class Inside(torch.nn.Module):
    """A model whose decoder lies deeper than its own parts."""

    def __init__(self, model):
        super().__init__()
        self.inner = model

    def get_decoder(self):
        return self.inner.get_decoder()


def test_a_decoder_that_cannot_be_replaced_is_refused():
    refuses(ValueError, lambda: early_layers(SimpleNamespace(model=Inside(build("llama"))), 1), "Inside")


def test_a_model_is_opened_with_its_early_layers_as_heads(tmp_path):
    target_of("llama").model.save_pretrained(tmp_path)
    opened = open_model(tmp_path, heads="early:3")
    assert model_facts(tmp_path, "early:3").heads and opened.heads.slots == SLOTS
    plain = generate(opened.target, PROMPTS, None, Options(max_tokens=12))
    drafter = TreeDrafter(HeadsLattice(heads=opened.heads, top_k=4), nodes=8)
    found = generate(opened.target, PROMPTS, drafter, Options(max_tokens=12))
    assert [one.tokens.tolist() for one in found] == [one.tokens.tolist() for one in plain]
    refuses(ValueError, lambda: open_model(tmp_path, heads="early:4"), "LlamaForCausalLM", "4")


def test_models_without_such_layers_have_no_early_heads(tmp_path):
    shared("t5").save_pretrained(tmp_path / "t5")
    untrained().save(tmp_path / "model.safetensors", dtype=torch.float32)
    for path in (tmp_path / "t5", tmp_path):
        refuses(ValueError, lambda path=path: model_facts(path, "early:1"), "'early:1'")
        refuses(ValueError, lambda path=path: open_model(path, heads="early:1"), "'early:1'")
