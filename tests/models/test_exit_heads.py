"""Exit heads: their outputs, and invalid files."""

import json

import torch
from safetensors.torch import load_file

from rescore.decode.models.exit_heads import ExitForm, ExitHeads

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
