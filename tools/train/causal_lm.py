"""Causal language models of Hugging Face as their trunk and the table that turns hidden states into logits."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, PreTrainedConfig, PreTrainedModel

# layers, width, hidden: Kim et al. 2024, table 6; the names are the paper's, whose models have a vocabulary of 50,257
# tokens
PRESETS = {"32M": (2, 384, 1536), "61M": (12, 384, 1536), "94M": (6, 768, 3072)}


def preset(name: str, vocab_size: int, context: int) -> GPT2Config:
    """A rescoring model of the paper (appendix C.2): learned positions, twelve heads, no dropout."""
    layers, width, hidden = PRESETS[name]
    return GPT2Config(
        vocab_size=vocab_size,
        n_positions=context,
        n_layer=layers,
        n_embd=width,
        n_inner=hidden,
        n_head=12,
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )


def read_config(path: Path) -> PreTrainedConfig:
    """The configuration in a JSON file, or a folder with config.json; `model_type` says of which architecture."""
    try:
        return AutoConfig.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise SystemExit(
            f"{path}: expected the JSON of a Hugging Face configuration with its model_type, "
            f"got one that does not load: {error}"
        ) from None


def new_model(config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """fp32, random weights."""
    torch.manual_seed(seed)
    return checked(AutoModelForCausalLM.from_config(config, dtype=torch.float32))


def open_model(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The causal LM that `save_pretrained` wrote to `folder`, in evaluation mode."""
    try:
        return checked(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)).eval()
    except (OSError, ValueError) as error:
        raise SystemExit(
            f"{folder}: expected a folder with a causal language model, got one that does not open: {error}"
        ) from None


def hidden_states(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Last hidden states [B, L, width] of `ids` int64 [B, L]; times the transposed `table`, they are the logits."""
    return model.base_model(input_ids=ids, use_cache=False).last_hidden_state


def table(model: PreTrainedModel) -> Tensor:
    """The output embedding [V, width]."""
    return model.get_output_embeddings().weight


@torch.no_grad()
def checked(model: PreTrainedModel) -> PreTrainedModel:
    """The model itself, if its logits are its last hidden states times its output embedding; else an error."""
    ids = torch.arange(2, device=model.device)[None]
    logits = model(input_ids=ids, use_cache=False).logits.float()
    plain = (hidden_states(model, ids) @ table(model).T).float()
    # neither a cap on small logits nor a bias of zeros shows in an untrained model's
    hides = (
        getattr(model.config, "final_logit_softcapping", None)
        or getattr(model.get_output_embeddings(), "bias", None) is not None
    )
    if hides or not torch.allclose(logits, plain, atol=1e-2 * float(plain.abs().max())):
        raise SystemExit(
            f"{type(model).__name__}: expected logits that are the last hidden states times the output embedding, "
            "got others "
            "(scaled, capped or with a bias); choose another architecture"
        )
    return model


def save_model(model: PreTrainedModel, folder: Path, tokenizer: Path) -> None:
    """Writes what `AutoModelForCausalLM.from_pretrained(folder)` opens, and tokenizer.json; every file
    appears whole.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving.") as temporary:
        model.save_pretrained(temporary)
        shutil.copy(tokenizer, Path(temporary) / "tokenizer.json")
        for file in Path(temporary).iterdir():
            os.replace(file, folder / file.name)
