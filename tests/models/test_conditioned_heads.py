"""Heads conditioned on the root token: their logits, and invalid files."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from support.refusals import refuses

from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.models.draft_step import DraftStep
from rescore.lattice.top import top_of_logits

WIDTH, V, IDS = 6, 23, [1, 4, 5, 9, 22]
EMBEDDING, TABLE = (torch.randn(V, WIDTH, generator=torch.Generator().manual_seed(i)) for i in (1, 2))


def made(slots: int = 3, layers: int = 2) -> ConditionedHeads:
    heads = ConditionedHeads(slots=slots, layers=layers, embedding=EMBEDDING, table=TABLE, vocabulary=torch.tensor(IDS))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator).half())
    return heads.eval()


def load(folder: Path) -> ConditionedHeads:
    return ConditionedHeads.load(folder, embedding=EMBEDDING, table=TABLE)


def written_out(tensors, slot: int, layers: int, hidden, certain) -> torch.Tensor:
    token = EMBEDDING[certain]
    token = token / (token.square().mean(dim=-1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()
    x = torch.cat((hidden, token), dim=-1) @ tensors[f"heads.{slot}.input.weight"].float().T
    for layer in range(layers):
        name = f"heads.{slot}.blocks.{layer}.linear"
        z = x @ tensors[f"{name}.weight"].float().T + tensors[f"{name}.bias"].float()
        x = x + z / (1 + torch.exp(-z))
    return x @ TABLE[IDS].T


@torch.no_grad()
def test_heads_compute_what_is_written_in_their_file(tmp_path):
    made().save(tmp_path / "heads", {"base_model": "some"})
    tensors, heads = load_file(tmp_path / "heads" / "heads.safetensors"), load(tmp_path / "heads")
    hidden, certain = torch.randn(4, WIDTH), torch.tensor([0, 3, 22, 7])
    got = heads.of_hidden(hidden, certain)
    assert got.shape == (4, 3, len(IDS)) and heads.slots == 3
    for slot in range(3):
        torch.testing.assert_close(got[:, slot], written_out(tensors, slot, 2, hidden, certain))
    step = DraftStep(
        histories=[np.array([5, token], np.int32) for token in certain.tolist()],
        hidden=hidden,
        fresh=[hidden[:1]] * 4,
        room=[9] * 4,
        random=[],
    )
    assert torch.equal(heads.open(4).logits(step), got)


@torch.no_grad()
def test_new_heads_say_what_the_target_says_of_the_draft_vocabulary():
    heads = ConditionedHeads(slots=2, layers=1, embedding=EMBEDDING, table=TABLE, vocabulary=torch.tensor(IDS))
    hidden = torch.randn(3, WIDTH)
    expected = (hidden @ TABLE[IDS].T)[:, None].expand(-1, 2, -1)
    torch.testing.assert_close(heads.of_hidden(hidden, torch.tensor([1, 2, 3])), expected)
    assert sum(one.numel() for one in heads.parameters()) == 2 * (3 * WIDTH * WIDTH + WIDTH), "no table is trained"


@torch.no_grad()
def test_lattices_name_tokens_of_the_whole_vocabulary():
    heads = made()
    lattice, hidden, certain = HeadsLattice(heads=heads, top_k=3), torch.randn(2, WIDTH), torch.tensor([4, 6])
    logits = heads.of_hidden(hidden, certain)
    columns, logp, _ = top_of_logits(logits, 3)
    for found in (lattice.sausages(logits), lattice.tensors(logits)):
        assert np.asarray(found.ids).tolist() == np.array(IDS)[columns].tolist()
        np.testing.assert_allclose(np.asarray(found.cost), -logp, rtol=1e-6)


def test_a_folder_is_what_was_saved(tmp_path):
    folder = tmp_path / "heads"
    made().save(folder, {"base_model": "some"})
    config = json.loads((folder / "config.json").read_text())
    assert config == {
        "format": "rescore heads",
        "version": 1,
        "slots": 3,
        "layers": 2,
        "width": WIDTH,
        "vocab_size": V,
        "draft_vocabulary": len(IDS),
        "base_model": "some",
    }
    made().save(folder, {})  # over its own
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    refuses(ValueError, lambda: made().save(tmp_path, {}), "another", "'rescore heads'")
