"""Heads, exits and mask tokens in folders: outputs by the formulas of their files, and folders that are refused."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.bita import tokens_for
from support.refusals import refuses
from support.steps import step_of
from support.tiny_transformers import V, shared

from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.models.bita import BitaTokens
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.models.exit_heads import ExitForm, ExitHeads
from rescore.lattice.top import top_of_logits

WIDTH = 6
EMBEDDING, TABLE = (torch.randn(23, WIDTH, generator=torch.Generator().manual_seed(i)) for i in (1, 2))
SHARED = dict(embedding=EMBEDDING, table=TABLE)
IDS = torch.tensor([1, 4, 5, 9, 22])
EXITS = ExitForm(exits=(2, 4), depth=5, width=6)
MADE = {
    "heads": lambda: ConditionedHeads(slots=3, layers=2, vocabulary=IDS, **SHARED),
    "exits": lambda: ExitHeads(EXITS),
    "bita": lambda: tokens_for("llama"),
}
LOAD = {
    "heads": lambda folder: ConditionedHeads.load(folder, **SHARED),
    "exits": lambda folder: ExitHeads.load(folder, depth=5, width=6),
    "bita": lambda folder: BitaTokens.load(folder, CausalLMTarget(shared("llama"))),
}
CONFIG = {"heads": "config.json", "exits": "exits.json", "bita": "config.json"}
KINDS = list(MADE)


pytestmark = pytest.mark.usefixtures("no_gradients")


CONFIGS = [
    ("heads", {"format": "other"}, ["'rescore heads'", "'other'"]),
    ("heads", {"version": 2}, ["version", "1", "2"]),
    ("heads", {"slots": True}, ["slots", "True"]),
    ("heads", {"slots": 10**12}, ["slots", "64", 10**12]),
    ("heads", {"layers": -1}, ["layers", "0", "-1"]),
    ("heads", {"layers": 3}, ["22", "'heads.0.blocks.2.linear.bias'"]),
    ("heads", {"width": 8}, ["6", "8"]),
    ("heads", {"vocab_size": 24}, ["vocab_size", "23", "24"]),
    ("heads", {"draft_vocabulary": 4}, ["draft_vocabulary", "[4]", "torch.int32", "[5]"]),
    ("heads", {"draft_vocabulary": 99}, ["draft_vocabulary", "23", "99"]),
    ("exits", {"exits": "24"}, ["exits", "'24'"]),
    *(("exits", {"exits": no}, ["exits", str(no)[1:-1]]) for no in ([], [4, 2], [2, 5])),
    ("exits", {"depth": 10**9}, ["depth", "4096", 10**9]),
    ("exits", {"depth": 6}, ["5", "6"]),
    ("exits", {"width": 8}, ["6", "8"]),
    ("exits", {"exits": [1, 2, 4]}, ["translation", "[3, 6, 6]", "torch.float16", "[2, 6, 6]"]),
    ("bita", {"masks": 0}, ["masks", "1", "0"]),
    ("bita", {"prompts": 10**9}, ["prompts", "4096", 10**9]),
    ("bita", {"masks": 4}, ["masks", "[4, 32]"]),
    ("bita", {"vocab_size": V + 1}, ["vocab_size", V, V + 1]),
    *(("bita", {"vocab_size": wrong}, ["vocab_size", repr(wrong)]) for wrong in ("37", True)),
    ("bita", {"width": 48}, ["32", "48"]),
    ("bita", {"layers": [[1, 8, 8]] * 2}, ["layers"]),  # of another model
    ("bita", {"layers": [[4, 8, 8]] * 900}, ["layers"]),
    ("bita", {"layers": "x" * 10**6}, ["layers"]),
]


TENSORS = [
    *(
        ("heads", {"draft_vocabulary": torch.tensor(ids, dtype=torch.int32)}, ["draft_vocabulary", "23"])
        for ids in ([1, 4, 4, 9, 22], [1, 4, 5, 9, 23], [-1, 4, 5, 9, 22])
    ),
    ("heads", {"draft_vocabulary": IDS.float()}, ["draft_vocabulary", "int32", "[5]", "torch.float32"]),
    ("heads", {"heads.1.input.weight": torch.zeros(6, 6)}, ["heads.1.input.weight", "[6, 12]", "[6, 6]"]),
    ("heads", {"heads.1.input.weight": torch.full((6, 12), torch.nan)}, ["heads.1.input.weight", "NaN"]),
    ("exits", {"bias": torch.tensor([1, 2])}, ["bias", "[2]", "torch.int64"]),
    ("exits", {"offset": torch.full((2, 6), torch.inf)}, ["offset", "infinity"]),
    ("exits", {"classifier": torch.zeros(6, 2)}, ["classifier", "[2, 6]", "torch.float32", "[6, 2]"]),
    ("exits", {"more": torch.zeros(1)}, ["4", "'more'"]),
    ("bita", {"more": torch.zeros(1)}, ["'more'"]),
    ("bita", {"keys.1": None}, ["keys.1"]),
]


@pytest.mark.parametrize("kind, changed, named", CONFIGS, ids=range(len(CONFIGS)))
def test_configs(tmp_path, kind, changed, named):
    MADE[kind]().save(tmp_path, {})
    path = tmp_path / CONFIG[kind]
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    refuses(ValueError, lambda: LOAD[kind](tmp_path), *named)


@pytest.mark.parametrize("kind, changed, named", TENSORS, ids=range(len(TENSORS)))
def test_tensors(tmp_path, kind, changed, named):
    MADE[kind]().save(tmp_path, {})
    path = tmp_path / f"{kind}.safetensors"
    tensors = {**load_file(path), **changed}
    save_file({name: one for name, one in tensors.items() if one is not None}, path)
    refuses(ValueError, lambda: LOAD[kind](tmp_path), *named)


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_do_not_read(tmp_path, kind):
    MADE[kind]().save(tmp_path, {})
    config, tensors = tmp_path / CONFIG[kind], tmp_path / f"{kind}.safetensors"
    tensors.write_bytes(b"\xff" * 30)
    refuses(ValueError, lambda: LOAD[kind](tmp_path), tensors)
    for absent in (tensors, config):
        absent.unlink()
        refuses(FileNotFoundError, lambda absent=absent: LOAD[kind](tmp_path), absent)


def filled(kind: str):
    """One whose numbers matter."""
    made, generator = MADE[kind](), torch.Generator().manual_seed(3)
    for tensor in filter(torch.is_floating_point, made.state_dict().values()):
        tensor.copy_(torch.randn(tensor.shape, generator=generator).half())
    return made.eval()


def written_out(tensors, slot: int, layers: int, hidden, certain) -> torch.Tensor:
    token = EMBEDDING[certain]
    token = token / (token.square().mean(dim=-1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()
    x = torch.cat((hidden, token), dim=-1) @ tensors[f"heads.{slot}.input.weight"].float().T
    for layer in range(layers):
        name = f"heads.{slot}.blocks.{layer}.linear"
        z = x @ tensors[f"{name}.weight"].float().T + tensors[f"{name}.bias"].float()
        x = x + z / (1 + torch.exp(-z))
    return x @ TABLE[IDS].T


def test_heads_compute_what_is_written_in_their_file(tmp_path):
    filled("heads").save(tmp_path / "heads", {"base_model": "some"})
    assert json.loads((tmp_path / "heads" / "config.json").read_text())["base_model"] == "some"
    tensors, heads = load_file(tmp_path / "heads" / "heads.safetensors"), LOAD["heads"](tmp_path / "heads")
    hidden, certain = torch.randn(4, WIDTH), torch.tensor([0, 3, 22, 7])
    got = heads.of_hidden(hidden, certain)
    assert got.shape == (4, 3, len(IDS)) and heads.slots == 3
    for slot in range(3):
        torch.testing.assert_close(got[:, slot], written_out(tensors, slot, 2, hidden, certain))
    step = step_of([[5, token] for token in certain.tolist()], states=lambda: hidden[:, None])
    assert torch.equal(heads.open(4).logits(step), got)


def test_new_heads_say_what_the_target_says_of_the_draft_vocabulary():
    heads = ConditionedHeads(slots=2, layers=1, vocabulary=IDS, **SHARED)
    hidden = torch.randn(3, WIDTH)
    expected = (hidden @ TABLE[IDS].T)[:, None].expand(-1, 2, -1)
    torch.testing.assert_close(heads.of_hidden(hidden, torch.tensor([1, 2, 3])), expected)
    assert sum(one.numel() for one in heads.parameters()) == 2 * (3 * WIDTH * WIDTH + WIDTH), "no table is trained"


def test_lattices_name_tokens_of_the_whole_vocabulary():
    heads = filled("heads")
    lattice, hidden, certain = HeadsLattice(heads=heads, top_k=3), torch.randn(2, WIDTH), torch.tensor([4, 6])
    logits = heads.of_hidden(hidden, certain)
    columns, logp, _ = top_of_logits(logits, 3)
    found = lattice.sausages(logits)
    assert found.ids.tolist() == IDS.numpy()[columns].tolist()
    np.testing.assert_allclose(found.cost, -logp, rtol=1e-6)
    every = HeadsLattice(heads=heads, top_k=64).sausages(logits)  # more than there are
    assert np.sort(every.ids).tolist() == np.broadcast_to(IDS.numpy(), every.ids.shape).tolist()


def test_a_folder_is_what_was_saved(tmp_path):
    for _ in range(2):
        filled("heads").save(tmp_path / "heads", {})  # over its own
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    refuses(ValueError, lambda: filled("heads").save(tmp_path, {}), "config.json", "another", "'rescore heads'")


def test_exits_compute_what_is_written_in_their_file(tmp_path):
    filled("exits").save(tmp_path, {"model": "some"})
    tensors, heads = load_file(tmp_path / "exits.safetensors"), LOAD["exits"](tmp_path)
    state = torch.randn(3, 2, WIDTH)
    x = state / state.square().mean(dim=-1, keepdim=True).sqrt()
    for row, layers in enumerate((2, 4)):
        translation, offset = tensors["translation"][row].float(), tensors["offset"][row].float()
        torch.testing.assert_close(heads.translate(layers, state), x + x @ translation + offset)
        sure = 1 / (1 + torch.exp(-(x @ tensors["classifier"][row].float() + tensors["bias"][row].float())))
        torch.testing.assert_close(heads(layers, state, state), sure)


def test_new_exits_change_no_prediction():
    heads, state = ExitHeads(EXITS), torch.randn(4, WIDTH)
    turned = heads.translate(2, state)
    torch.testing.assert_close(torch.nn.functional.cosine_similarity(turned, state, dim=-1), torch.ones(4))
    assert heads(2, state, state).tolist() == [0.5] * 4
