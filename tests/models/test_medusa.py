"""Medusa heads: their logits, published file formats, and invalid files."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.refusals import refused, refuses
from torch import nn

from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.medusa import MedusaHeads

WIDTH, V = 6, 11
BACKBONE = nn.Linear(WIDTH, V, bias=False)


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


def folder_of(tmp_path: Path, tensors, config: dict | None = None, name: str = "medusa_lm_head.safetensors") -> Path:
    folder = tmp_path / "heads"
    folder.mkdir(exist_ok=True)
    if name.endswith(".pt"):
        torch.save(tensors, folder / name)
    else:
        save_file(tensors, folder / name)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", ["medusa_lm_head.safetensors", "medusa_lm_head.pt"])
def test_heads_compute_what_the_paper_says(tmp_path, own, layers, name):
    tensors = published(layers=layers, own=own)
    heads = load(folder_of(tmp_path, tensors, {"medusa_num_heads": 3, "medusa_num_layers": layers}, name))
    hidden = torch.randn(2, WIDTH)
    step = DraftStep(
        histories=[np.zeros(1, np.int32)] * 2, hidden=hidden, fresh=[hidden[:1]] * 2, room=[9, 9], random=[]
    )
    session = heads.open(2)
    got = session.logits(step)
    assert got.shape == (2, 3, V) and heads.slots == 3 and not heads.training
    for head in range(3):
        torch.testing.assert_close(got[:, head], expected_logits(tensors, head, layers, hidden))


def test_new_heads_say_what_the_backbone_says():
    heads = MedusaHeads(heads=2, width=WIDTH, output=BACKBONE)
    hidden = torch.randn(3, 4, WIDTH)
    torch.testing.assert_close(said(heads, hidden), BACKBONE(hidden)[..., None, :].expand(-1, -1, 2, -1))
    assert len(list(heads.parameters())) == 4, "the backbone's output layer is no part of the heads"


@pytest.mark.parametrize("own", [True, False])
def test_what_is_saved_is_read_back(tmp_path, own):
    heads = MedusaHeads(heads=3, width=WIDTH, layers=2, **({"vocab_size": V} if own else {"output": BACKBONE}))
    for parameter in heads.parameters():
        parameter.normal_()
    heads.save(tmp_path / "saved", base_model="the/backbone")
    again = load(tmp_path / "saved")
    hidden = torch.randn(2, WIDTH)
    assert again.form == heads.form
    assert torch.equal(said(again, hidden), said(heads, hidden))
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert config == {"medusa_num_heads": 3, "medusa_num_layers": 2, "base_model_name_or_path": "the/backbone"}
    heads.save(tmp_path / "saved")  # over its own


def test_saving_spares_the_folder_of_another_model(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with refused(ValueError, "config.json", "another"):
        MedusaHeads(heads=1, width=WIDTH, vocab_size=V).save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]


def test_a_file_without_a_config_tells_its_own_form(tmp_path):
    folder = folder_of(tmp_path, published(heads=4, layers=1))
    assert load(folder).slots == load(folder / "medusa_lm_head.safetensors").slots == 4


def test_the_first_heads_are_taken_where_the_config_says_fewer(tmp_path):
    tensors = published(heads=4, layers=1)
    heads = load(folder_of(tmp_path, tensors, {"medusa_num_heads": 2}))
    hidden = torch.randn(1, WIDTH)
    torch.testing.assert_close(said(heads, hidden)[:, 1], expected_logits(tensors, 1, 1, hidden))
    assert heads.slots == 2


def test_heads_within_a_whole_model(tmp_path):
    tensors = published(heads=2, layers=1)
    model = {
        "model.embed_tokens.weight": torch.randn(V, WIDTH),
        **{f"medusa_head.{name}": tensor for name, tensor in tensors.items()},
    }
    hidden = torch.randn(1, WIDTH)
    one = folder_of(tmp_path, model, {"medusa_num_heads": 2}, "model.safetensors")
    got = said(load(one), hidden)
    torch.testing.assert_close(got[:, 1], expected_logits(tensors, 1, 1, hidden))

    names = sorted(model)
    (tmp_path / "parts").mkdir()
    for part in range(2):
        save_file({name: model[name] for name in names[part::2]}, tmp_path / "parts" / f"part{part}.safetensors")
    index = {"weight_map": {name: f"part{i % 2}.safetensors" for i, name in enumerate(names)}}
    (tmp_path / "parts" / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(said(load(tmp_path / "parts"), hidden), got)


def refused_folder(path, *named: str, **changed) -> None:
    refuses(ValueError, lambda: load(path, **changed), *named)


def test_tensors_that_do_not_fit_are_refused(tmp_path):
    good = published()
    refused_folder(folder_of(tmp_path, good), "0.0.linear.weight", "[8, 8]", "torch.float32", "[6, 6]", width=8)
    refused_folder(folder_of(tmp_path, good), "0.2.weight", "[8, 6]", vocab_size=8)
    refused_folder(
        folder_of(tmp_path, {**good, "1.0.linear.bias": torch.full((WIDTH,), float("nan"))}), "1.0.linear.bias", "NaN"
    )
    refused_folder(
        folder_of(tmp_path, {**good, "1.0.linear.bias": torch.zeros(WIDTH, dtype=torch.int64)}),
        "1.0.linear.bias",
        "torch.int64",
    )
    del good["2.1.linear.bias"]
    refused_folder(folder_of(tmp_path, good), "2.1.linear.bias")


def test_names_that_do_not_fit_are_refused(tmp_path):
    good = published()
    refused_folder(folder_of(tmp_path, {**good, "0.attention.weight": torch.zeros(2)}), "['0.attention.weight']")
    refused_folder(folder_of(tmp_path, {**good, "99999999999.0.linear.bias": torch.zeros(WIDTH)}), "tensors")
    refused_folder(folder_of(tmp_path, {**good, "9999.0.linear.bias": torch.zeros(WIDTH)}), "3.0.linear.weight")
    refused_folder(folder_of(tmp_path, {"lm_head.weight": torch.zeros(2)}), "0.0.linear.weight", "['lm_head.weight']")


def test_configs_that_do_not_fit_are_refused(tmp_path):
    good = published()
    for count in (4, 0, "3", True):
        refused_folder(
            folder_of(tmp_path, good, {"medusa_num_heads": count}),
            "tensors",
            "config.json's",
            "medusa_num_heads",
            f"{count!r}",
            "3",
        )
    refused_folder(
        folder_of(tmp_path, good, {"medusa_num_layers": 1}), "tensors", "medusa_num_layers", "1", "config.json", "2"
    )
    (tmp_path / "heads" / "config.json").write_text("{")
    refused_folder(tmp_path / "heads", "config.json")
    (tmp_path / "heads" / "config.json").write_text("[]")
    refused_folder(tmp_path / "heads", "config.json", "list")


class Touch:
    """A pickle that would make a file when it is opened."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickles_with_code_are_refused_and_not_run(tmp_path):
    mark = tmp_path / "was_run"
    refused_folder(folder_of(tmp_path, {"0.0.linear.weight": Touch(mark)}, name="medusa_lm_head.pt"), "safetensors")
    assert not mark.exists()
    refused_folder(folder_of(tmp_path, {**published(), "note": "text"}, name="medusa_lm_head.pt"), "dictionary")
    refused_folder(folder_of(tmp_path, [1], name="medusa_lm_head.pt"), "list")


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
    with refused(ValueError, "heads", "0"):
        MedusaHeads(heads=0, width=WIDTH, vocab_size=V)
    with refused(ValueError, "vocab_size"):
        MedusaHeads(heads=1, width=WIDTH)
