"""DFlash heads against their forward, written out, over rejected drafts and rows that leave."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.public_heads import DFlash, assert_generate_takes
from support.refusals import refuses
from support.steps import texts_of
from support.tiny_transformers import V

from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.dflash import dflash_heads
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model


@pytest.mark.parametrize("speculators", [False, True])
@pytest.mark.usefixtures("no_gradients")
def test_slots_are_those_of_the_forward(speculators, tmp_path):
    form = DFlash(tmp_path, speculators=speculators)
    heads, draw = dflash_heads(tmp_path, CausalLMTarget(form.model)), np.random.default_rng(5)
    session, told = heads.open(3), [0] * 3
    texts = [draw.integers(3, V, length) for length in (5, 9, 2)]
    for turn in range(5):
        rows = [0, 1, 2] if turn < 3 else [2, 0]
        states = []
        for row in rows:
            ids = torch.from_numpy(texts[row][:-1])[None]
            found = form.model(input_ids=ids, output_hidden_states=True).hidden_states
            states.append(torch.cat([found[tap][0] for tap in form.taps], dim=-1))
        fresh = [torch.cat((torch.zeros(len(one), 32), one), dim=-1)[told[row] :] for one, row in zip(states, rows)]
        own = texts_of([texts[row] for row in rows], rows)
        got = session.logits(DraftStep(texts=own, room=[9] * len(rows), states=lambda fresh=fresh: fresh))
        for row, one, logits in zip(rows, states, got):
            expected = form.logits(int(texts[row][-1]), one)[:, form.kept]
            assert heads.slots == len(expected) == 4 + speculators
            torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
        told = [len(text) - 1 for text in texts]
        texts = [np.append(text, draw.integers(3, V, draw.integers(1, 5))) for text in texts]


def test_texts_are_the_model_s_own(tmp_path):
    form = DFlash(tmp_path)
    form.model.save_pretrained(tmp_path / "model")
    assert model_facts(tmp_path / "model", tmp_path).heads
    assert open_model(tmp_path / "model", heads=tmp_path).heads.slots == 4
    assert_generate_takes(form, tmp_path)


REFUSED = {
    "newer": ({"dflash_config": {"mask_token_id": 2, "markov_rank": 8}}, ["markov_rank"]),
    "newer still": ({"selector_rank": 8}, ["selector_rank"]),
    "sliding": ({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}, ["sliding"]),
    "mask": ({"dflash_config": {"target_layer_ids": [1, 3, 6]}}, ["mask_token_id"]),
    "block": ({"block_size": 100}, ["block_size", "33", "100"]),
    "taps": ({"dflash_config": {"mask_token_id": 2, "target_layer_ids": [1, 3, 40]}}, ["41", "8"]),
    "family": ({"model_type": "llama"}, ["llama", "qwen3"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_folders_are_refused_by_name(name, tmp_path):
    form, path = DFlash(tmp_path), tmp_path / "config.json"
    fields, said = REFUSED[name]
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    refuses(ValueError, lambda: dflash_heads(tmp_path, CausalLMTarget(form.model)), *said)


def test_a_missing_tensor_is_named(tmp_path):
    form, file = DFlash(tmp_path), tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["layers.1.self_attn.k_norm.weight"]
    save_file(tensors, file)
    refuses(ValueError, lambda: dflash_heads(tmp_path, CausalLMTarget(form.model)), "layers.1.self_attn.k_norm.weight")
