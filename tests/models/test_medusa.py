"""Medusa heads: their logits, published file formats, and invalid files."""

import json
import os
from pathlib import Path

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from safetensors.torch import save_file
from support.refusals import refuses
from torch import nn

from rescore.decode.models.medusa import MedusaHeads

WIDTH, V = 6, 11
BACKBONE = nn.Linear(WIDTH, V, bias=False)
FILES = "medusa_lm_head.safetensors", "medusa_lm_head.pt"


pytestmark = pytest.mark.usefixtures("no_gradients")


def published(heads: int = 3, layers: int = 2, own: bool = True) -> dict[str, torch.Tensor]:
    """Tensors as the public checkpoints name them."""
    tensors = {}
    for head in range(heads):
        for layer in range(layers):
            tensors[f"{head}.{layer}.linear.weight"] = torch.randn(WIDTH, WIDTH)
            tensors[f"{head}.{layer}.linear.bias"] = torch.randn(WIDTH)
        if own:
            tensors[f"{head}.{layers}.weight"] = torch.randn(V, WIDTH)
    return tensors


def expected_logits(tensors, head: int, layers: int, hidden: torch.Tensor) -> torch.Tensor:
    """Section 2.1.1 of the paper, written out."""
    x = hidden
    for layer in range(layers):
        z = x @ tensors[f"{head}.{layer}.linear.weight"].T + tensors[f"{head}.{layer}.linear.bias"]
        x = x + z / (1 + torch.exp(-z))
    return x @ tensors.get(f"{head}.{layers}.weight", BACKBONE.weight).T


def load(path, **changed) -> MedusaHeads:
    return MedusaHeads.load(path, **{"width": WIDTH, "vocab_size": V, "output": BACKBONE, **changed})


def said(heads: MedusaHeads, hidden: torch.Tensor) -> torch.Tensor:
    """Logits, which do not depend on the root tokens."""
    return heads.of_hidden(hidden, torch.zeros(len(hidden), dtype=torch.int64))


def folder_of(tmp_path: Path, tensors, config: dict | None = None, name: str = FILES[0]) -> Path:
    folder = tmp_path / "heads"
    folder.mkdir(exist_ok=True)
    (torch.save if name.endswith(".pt") else save_file)(tensors, folder / name)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("own, layers, name", [(True, 2, FILES[0]), (False, 1, FILES[0]), (True, 1, FILES[1])])
def test_heads_compute_what_the_paper_says(tmp_path, own, layers, name):
    tensors = published(layers=layers, own=own)
    heads = load(folder_of(tmp_path, tensors, {"medusa_num_heads": 3, "medusa_num_layers": layers}, name))
    got = said(heads, hidden := torch.randn(2, WIDTH))
    assert got.shape == (2, 3, V) and heads.slots == 3 and not heads.training
    for head in range(3):
        torch.testing.assert_close(got[:, head], expected_logits(tensors, head, layers, hidden))


@pytest.mark.parametrize("form", [{"vocab_size": V}, {"output": BACKBONE}], ids=["own", "backbone's"])
def test_what_is_saved_is_read_back(tmp_path, form):
    heads = MedusaHeads(heads=3, width=WIDTH, layers=2, **form)
    for parameter in heads.parameters():
        parameter.normal_()
    for _ in range(2):  # the second time over its own
        heads.save(tmp_path, base_model="the/backbone")
    again, hidden = load(tmp_path), torch.randn(2, WIDTH)
    assert again.form == heads.form and torch.equal(said(again, hidden), said(heads, hidden))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {"medusa_num_heads": 3, "medusa_num_layers": 2, "base_model_name_or_path": "the/backbone"}


def test_a_file_tells_its_own_form_and_the_config_how_many_heads_are_taken(tmp_path):
    tensors, hidden = published(heads=4, layers=1), torch.randn(1, WIDTH)
    folder = folder_of(tmp_path, tensors)
    assert load(folder).slots == load(folder / FILES[0]).slots == 4
    got = said(load(folder_of(tmp_path, tensors, {"medusa_num_heads": 2})), hidden)
    torch.testing.assert_close(got, torch.stack([expected_logits(tensors, i, 1, hidden) for i in range(2)], dim=1))


def test_heads_within_a_whole_model(tmp_path):
    tensors = published(heads=2, layers=1)
    model = {f"medusa_head.{name}": tensor for name, tensor in tensors.items()}
    model["model.embed_tokens.weight"] = torch.randn(V, WIDTH)
    hidden = torch.randn(1, WIDTH)
    got = said(load(folder_of(tmp_path, model, {"medusa_num_heads": 2}, "model.safetensors")), hidden)
    torch.testing.assert_close(got[:, 1], expected_logits(tensors, 1, 1, hidden))
    (tmp_path / "parts").mkdir()
    save_torch_state_dict(model, tmp_path / "parts", max_shard_size=300)
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 1
    assert torch.equal(said(load(tmp_path / "parts"), hidden), got)


def refused_folder(path, *named: str, **changed) -> None:
    refuses(ValueError, lambda: load(path, **changed), *named)


GOOD = published()
BIAS = "1.0.linear.bias"
TENSORS = [
    (GOOD, {"width": 8}, ["0.0.linear.weight", "[8, 8]", "torch.float32", "[6, 6]"]),
    (GOOD, {"vocab_size": 8}, ["0.2.weight", "[8, 6]"]),
    ({**GOOD, BIAS: torch.full((WIDTH,), float("nan"))}, {}, [BIAS, "NaN"]),
    ({**GOOD, BIAS: torch.zeros(WIDTH, dtype=torch.int64)}, {}, [BIAS, "torch.int64"]),
    ({name: one for name, one in GOOD.items() if name != BIAS}, {}, [BIAS]),
    ({**GOOD, "0.attention.weight": torch.zeros(2)}, {}, ["['0.attention.weight']"]),
    ({**GOOD, "99999999999.0.linear.bias": torch.zeros(WIDTH)}, {}, ["tensors"]),
    ({**GOOD, "9999.0.linear.bias": torch.zeros(WIDTH)}, {}, ["3.0.linear.weight"]),
    ({"lm_head.weight": torch.zeros(2)}, {}, ["0.0.linear.weight", "['lm_head.weight']"]),
]


@pytest.mark.parametrize("tensors, changed, named", TENSORS, ids=range(len(TENSORS)))
def test_tensors_that_do_not_fit_are_refused(tmp_path, tensors, changed, named):
    refused_folder(folder_of(tmp_path, tensors), *named, **changed)


def test_configs_that_do_not_fit_are_refused(tmp_path):
    for count in (4, 0, "3", True):
        folder = folder_of(tmp_path, GOOD, {"medusa_num_heads": count})
        refused_folder(folder, "tensors", "config.json's", "medusa_num_heads", repr(count), "3")
    folder = folder_of(tmp_path, GOOD, {"medusa_num_layers": 1})
    refused_folder(folder, "tensors", "medusa_num_layers", "1", "config.json", "2")
    (folder / "config.json").write_text("{")
    refused_folder(folder, "config.json")


class Touch:
    """A pickle that would make a file when it is opened."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickles_with_code_are_refused_and_not_run(tmp_path):
    mark = tmp_path / "was_run"
    refused_folder(folder_of(tmp_path, {"0.0.linear.weight": Touch(mark)}, name=FILES[1]), "safetensors")
    assert not mark.exists()
    refused_folder(folder_of(tmp_path, {**published(), "note": "text"}, name=FILES[1]), "dictionary")
    refused_folder(folder_of(tmp_path, [1], name=FILES[1]), "list")


def test_paths_that_hold_no_heads(tmp_path):
    refused_folder(tmp_path, "medusa_lm_head.safetensors", "medusa_lm_head.pt", "'medusa_head.0...'")
    refuses(FileNotFoundError, lambda: load(tmp_path / "absent"), "absent")
    index = tmp_path / "model.safetensors.index.json"
    for name in ("../elsewhere.safetensors", "/etc/passwd", "model.bin", 3):
        index.write_text(json.dumps({"weight_map": {"medusa_head.0.0.linear.bias": name}}))
        refused_folder(tmp_path, "weight_map", "medusa_head.0.0.linear.bias", str(name))
    index.write_text('{"weight_map": 3}')
    refused_folder(tmp_path, "weight_map", "3")


def test_forms_are_checked():
    refuses(ValueError, lambda: MedusaHeads(heads=0, width=WIDTH, vocab_size=V), "heads", "0")
    refuses(ValueError, lambda: MedusaHeads(heads=1, width=WIDTH), "vocab_size")
