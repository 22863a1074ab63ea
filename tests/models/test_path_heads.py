"""Heads of public models that read their own draft: against their forwards, written out, over rejected drafts."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.public_heads import Eagle3, Mtp, assert_generate_takes
from support.refusals import refused, refuses
from support.steps import texts_of
from support.tiny_transformers import V, shared
from transformers import AutoModelForCausalLM

from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.model_lattice import MODEL, ModelLattice
from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.open import open_model
from rescore.decode.models.path_heads import eagle_head, mtp_head
from rescore.decode.models.recurrent import causal_target
from rescore.lattice.tree import EMPTY, TokenTree, Trees

FORMS = {
    "qwen3-next": lambda folder: Mtp(folder, "qwen3-next"),
    "qwen3-next, fused experts": lambda folder: Mtp(folder, "qwen3-next", fused=True),
    "qwen3.5": lambda folder: Mtp(folder, "qwen3.5"),
    "deepseek-v3": lambda folder: Mtp(folder, "deepseek-v3"),
    "glm4-moe": lambda folder: Mtp(folder, "glm4-moe"),
    "eagle-3": lambda folder: Eagle3(folder, own_embeddings=False),
    "eagle-3, speculators": lambda folder: Eagle3(folder, speculators=True),
}
LENGTHS = 5, 9, 3


@pytest.fixture(params=FORMS)
def form(request, tmp_path):
    return FORMS[request.param](tmp_path), tmp_path


def opened(form, folder):
    """Target and head."""
    if isinstance(form, Eagle3):
        target = CausalLMTarget(form.model)
        return target, eagle_head(folder, target)
    model = open_model(folder, dtype=torch.float32)
    return model.target, model.small


@torch.no_grad()
def states_of(form, ids) -> torch.Tensor:
    """What the form reads of the target after each token, [n, H or f H]."""
    found = form.model(input_ids=torch.from_numpy(ids.astype(np.int64))[None], output_hidden_states=True).hidden_states
    return torch.cat([found[layer][0] for layer in form.taps], dim=-1) if form.taps else found[-1][0]


@torch.no_grad()
def logp_after(form, text, path) -> torch.Tensor:
    """ln p [V] after a text and a draft behind it: one row at a time, each from the outputs of those before it."""
    ids = torch.tensor([*text[1:], *path])
    states = form.made_of(states_of(form, text[:-1]))
    for _ in range(len(path) + 1):
        output = form.rows(ids[: len(states)], states)
        states = torch.cat((states, output[-1:]))
    return form.logits(output[-1]).log_softmax(-1)


@pytest.mark.usefixtures("no_gradients")
def test_lattices_are_those_of_the_forward(form):
    """After prompts, drafts that are rejected or accepted in part, and rows that leave."""
    form, folder = form
    target, head = opened(form, folder)
    draw, session = np.random.default_rng(5), ModelLattice(model=head, vocab_size=V, top_k=6).open(3)
    texts = [draw.integers(3, V, length) for length in LENGTHS]
    told = [0] * 3
    for turn in range(4):
        rows = [0, 1, 2] if turn < 2 else [2, 0] if turn < 3 else [0]
        every = [states_of(form, texts[row][:-1]) for row in rows]
        if form.taps:  # beside the last states
            every = [torch.cat((torch.zeros(len(one), 32), one), dim=-1) for one in every]
        fresh = [one[told[row] :] for one, row in zip(every, rows)]
        told = [len(text) - 1 for text in texts]
        own = texts_of([texts[row] for row in rows], rows)
        lattice = session.begun(DraftStep(texts=own, room=[9] * len(rows), states=lambda fresh=fresh: fresh))
        trees = [EMPTY] * len(rows)
        for level in range(3):
            read = [
                {tuple(tree.tokens[tree.path_to(node)].tolist()): 1 + node for node in range(-1, tree.size)}
                for tree in trees
            ]
            for b, row in enumerate(rows):
                for path, state in read[b].items():
                    expected, ids = logp_after(form, texts[row], path), lattice.ids[b, state]
                    assert set(ids[:6]) == set(expected.topk(6).indices.tolist())
                    found = ids >= 0
                    np.testing.assert_allclose(-lattice.cost[b, state][found], expected[ids[found]], atol=2e-4)
            if level == 2:
                break
            # Two branches of listed tokens and one that may be listed nowhere, from the nodes that were read.
            trees = [grown(draw, lattice, b, read[b]) for b in range(len(rows))]
            lattice = session.grown(Trees.joined(trees))
        for row in rows:
            texts[row] = np.append(texts[row], draw.integers(3, V, draw.integers(1, 4)))


def grown(draw, lattice, b, read) -> TokenTree:
    """The nodes that were read, and two further ones behind each of the last of them."""
    paths = dict.fromkeys(path for path in read if path)
    for path in list(read)[-2:]:
        for token in {int(lattice.ids[b, read[path], 1]), int(draw.integers(3, V))}:
            paths[(*path, token)] = None
    ordered = {path: place for place, path in enumerate(sorted(paths, key=len))}
    return TokenTree.from_parents([path[-1] for path in ordered], [ordered.get(path[:-1], -1) for path in ordered])


@pytest.mark.parametrize("nodes", [7, None])
def test_texts_are_the_model_s_own(form, nodes):
    """Greedy, in a ragged batch."""
    form, folder = form
    target, head = opened(form, folder)
    prompts = [np.random.default_rng(2).integers(3, V, length) for length in LENGTHS]
    lattice = ModelLattice(model=head, vocab_size=V)
    drafter = blended_drafter(target, lattice=lattice, calibration=MODEL, nodes=nodes)
    plain, drafted = (generate(target, prompts, one, Options(max_tokens=20)) for one in (None, drafter))
    assert [one.tokens.tolist() for one in drafted] == [one.tokens.tolist() for one in plain]
    expected = causal_target(form.model)
    assert [one.tokens.tolist() for one in generate(expected, prompts, None, Options(max_tokens=20))] == [
        one.tokens.tolist() for one in plain
    ]


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3.5", "eagle-3"])
def test_hugging_face_s_generate_takes_them_by_their_folder(name, tmp_path):
    assert_generate_takes(FORMS[name](tmp_path), tmp_path)


def test_hugging_face_s_generate_takes_the_model_s_own_by_name(tmp_path):
    form = Mtp(tmp_path, "deepseek-v3")
    form.model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert_generate_takes(form, "mtp")


def test_heads_of_another_model_are_refused(tmp_path):
    Eagle3(tmp_path)
    with refused(ValueError, "config.json", "1..2", "-1", "another"):
        eagle_head(tmp_path, CausalLMTarget(shared("llama")))
    (tmp_path / "model.safetensors").unlink()
    refuses(ValueError, lambda: eagle_head(tmp_path, CausalLMTarget(shared("llama"))), tmp_path, "safetensors", "none")
    Mtp(tmp_path, "deepseek-v3")
    refuses(ValueError, lambda: mtp_head(CausalLMTarget(shared("gpt2")), tmp_path), "self_attn", "GPT2LMHeadModel")


def test_what_is_known_of_a_folder(tmp_path):
    for name in ("own", "eagle", "lost"):
        (tmp_path / name).mkdir()
    Mtp(tmp_path / "own", "deepseek-v3")
    Eagle3(tmp_path / "eagle").model.save_pretrained(tmp_path / "llama")
    shared("deepseek-v3").save_pretrained(tmp_path / "lost")  # as fine-tuning tools save it: without the layer
    known = {
        (model, heads): model_facts(tmp_path / model, heads and (heads if heads == "mtp" else tmp_path / heads))
        for model, heads in (("own", None), ("own", "mtp"), ("llama", "eagle"), ("llama", None), ("lost", None))
    }
    assert [facts.heads_kind for facts in known.values()] == ["mtp", "mtp", "eagle3", None, None]
    assert [facts.small for facts in known.values()] == [True, True, True, False, False]
    assert not any(facts.heads for facts in known.values())
    assert open_model(tmp_path / "llama", heads=tmp_path / "eagle").small is not None
    refuses(ValueError, lambda: model_facts(tmp_path / "lost", "mtp"), "safetensors", "none")
    tensors = load_file(tmp_path / "own" / "model.safetensors")
    del tensors["model.layers.2.hnorm.weight"]
    save_file(tensors, tmp_path / "own" / "model.safetensors", {"format": "pt"})
    refuses(ValueError, lambda: open_model(tmp_path / "own", heads="mtp"), "hidden_norm.weight", "none")
    with pytest.warns(UserWarning, match="hidden_norm"):
        assert open_model(tmp_path / "own").small is None
    refuses(ValueError, lambda: mtp_head(CausalLMTarget(shared("llama"))), "safetensors")


DAMAGED = {
    "missing": (lambda own: own.pop("midlayer.mlp.up_proj.weight"), {}, ["layers.0.mlp.up_proj.weight", "none"]),
    "short": (lambda own: own.update({"fc.weight": own["fc.weight"][:, :-1].clone()}), {}, ["fc.weight", "96", "95"]),
    "not finite": (lambda own: own["norm.weight"].fill_(float("nan")), {}, ["norm.weight", "NaN"]),
    "surplus": (lambda own: own.update({"selector.weight": torch.zeros(2)}), {}, ["selector.weight"]),
    "ids": (lambda own: own["d2t"].fill_(99), {}, ["d2t", "37"]),
    "family": (lambda own: None, {"model_type": "gpt2"}, ["gpt2", "llama"]),
    "parallel": (lambda own: None, {"mask_token_id": 4}, ["mask_token_id"]),
    "layers": (lambda own: None, {"eagle_aux_hidden_state_layer_ids": [1, 2, 99]}, ["99", "8"]),
    "sizes": (lambda own: None, {"hidden_size": 10**9}, ["q_proj", "2000000000"]),
    "many layers": (lambda own: None, {"num_hidden_layers": 10**9}, ["num_hidden_layers"]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_folders_are_refused_by_name(name, tmp_path):
    form = Eagle3(tmp_path)
    damage, fields, said = DAMAGED[name]
    tensors, config = load_file(tmp_path / "model.safetensors"), json.loads((tmp_path / "config.json").read_text())
    damage(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config | fields))
    refuses(ValueError, lambda: eagle_head(tmp_path, CausalLMTarget(form.model)), *said)
