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


CONFIG_FAULTS = [
    ({"format": "other"}, "format: .*'rescore exits', got 'other'"),
    ({"version": 2}, "version: .*got 2"),
    ({"exits": "24"}, "exits: .*'24'"),
    ({"exits": []}, r"exits: .*\[\]"),
    ({"exits": [4, 2]}, "exits: expected ascending layers below the last, 5"),
    ({"exits": [2, 5]}, "exits: expected ascending layers below the last, 5"),
    ({"exits": [2, None]}, r"exits\[1\]: .*None"),
    ({"exits": [True, 4]}, r"exits\[0\]: .*True"),
    ({"exits": [0, 4]}, r"exits\[0\]: .*0"),
    ({"depth": 10**9}, "depth: .*4096, got 1000000000"),
    ({"width": "6"}, "width: .*'6'"),
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
    ({"more": torch.zeros(1)}, "expected the 4 tensors of its configuration, got also 'more'"),
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
    with pytest.raises(ValueError, match="expected a safetensors file, got one that cannot be read"):
        ExitHeads.load(tmp_path, depth=DEPTH, width=WIDTH)
    (tmp_path / "exits.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="exits.safetensors: expected beside exits.json"):
        ExitHeads.load(tmp_path, depth=DEPTH, width=WIDTH)
    (tmp_path / "exits.json").unlink()
    with pytest.raises(FileNotFoundError, match="exits.json: expected beside exits.safetensors"):
        ExitHeads.load(tmp_path, depth=DEPTH, width=WIDTH)
