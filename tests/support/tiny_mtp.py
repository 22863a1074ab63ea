"""Random multi-token prediction modules, and checkpoints in the published format."""

import re

import torch
import transformers
from safetensors.torch import load_file, save_file
from support.tiny_transformers import build, randomised
from transformers.modeling_layers import MtpModel


def modules_of(model) -> MtpModel:
    modules = MtpModel(model, model.config.num_mtp_layers)
    randomised(modules.layers)  # and not what they share with the model
    return modules.eval()


def checkpoint(folder, name: str = "deepseek-v3"):
    """Saves a model with its modules after its layers, as in published checkpoints. Returns model and modules."""
    model = build(name)
    modules = modules_of(model)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for key, tensor in modules.layers.state_dict().items():
        tensors.update(published_tensors(key, tensor, model.config.num_hidden_layers))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return model, modules


def published_tensors(key: str, tensor: torch.Tensor, layers: int) -> dict[str, torch.Tensor]:
    """One of MtpModel's tensors under the names of a checkpoint: module k is layer `layers` + k, experts lie apart."""
    module, rest = key.split(".", 1)
    prefix = f"model.layers.{layers + int(module)}."
    rest = re.sub("^post_norm", "shared_head.norm", rest.removeprefix("mtp_block."))
    if not rest.startswith("mlp.experts."):
        return {prefix + rest: tensor.clone()}
    parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}[rest.removeprefix("mlp.experts.")]
    return {
        f"{prefix}mlp.experts.{expert}.{part}.weight": piece.clone()
        for expert, weights in enumerate(tensor)
        for part, piece in zip(parts, weights.chunk(len(parts)))
    }


def known_to_transformers(monkeypatch) -> None:
    """transformers tells DeepSeek-V3's modules by the number of the published model's layers, 61; here they
    are 2 to 4.
    """
    kind = transformers.DeepseekV3ForCausalLM
    monkeypatch.setattr(kind, "_keys_to_ignore_on_load_unexpected", [r"model\.layers\.[234]\..*"])
