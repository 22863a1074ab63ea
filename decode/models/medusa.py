"""Medusa heads: residual blocks on the target's last hidden state, one stack per head.

Cai et al. 2024 (arXiv 2401.10774), section 2.1.1: head k is softmax(W2 (SiLU(W1 h + b) + h)), for the token k + 1
positions after the one that gave h. W2 is the head's own, or the backbone's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from rescore.decode.models.draft_vocabulary import DraftVocabulary
from rescore.decode.models.heads import Memoryless
from rescore.decode.models.medusa_files import CONFIG, WEIGHTS, MedusaForm, read_medusa
from rescore.lattice.atomic import replacing


class ResidualBlock(nn.Module):
    """x + SiLU(W x + b), the identity before training."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(x))


class MedusaHeads(nn.Module, Memoryless):
    """T heads of `layers` residual blocks each, as `Heads`.

    output  maps hidden states [..., width] to logits [..., V]: the backbone's (`target.logits`), shared by all heads
            and not part of this module. None: each head has its own linear layer for `vocab_size` tokens
    Parameters are named as in the public checkpoints, after "heads.": <head>.<layer>.linear.{weight,bias} and, if heads
    have their own last layer, <head>.<layers>.weight.
    """

    def __init__(
        self,
        *,
        heads: int,
        width: int,
        layers: int = 1,
        output: Callable[[Tensor], Tensor] | None = None,
        vocab_size: int | None = None,
    ):
        super().__init__()
        if (output is None) == (vocab_size is None):
            raise ValueError(
                "expected either output, the backbone's, or vocab_size for heads with their own last layers; "
                "got both or neither"
            )
        self.form = MedusaForm(heads=heads, layers=layers, width=width, vocab_size=vocab_size)
        self.slots = heads
        self._output = (output,)  # in a tuple, so that a module does not become a submodule
        self.heads = nn.ModuleList(nn.Sequential(*self._stack()) for _ in range(heads))

    def _stack(self) -> list[nn.Module]:
        stack: list[nn.Module] = [ResidualBlock(self.form.width) for _ in range(self.form.layers)]
        if self.form.vocab_size is not None:
            stack.append(nn.Linear(self.form.width, self.form.vocab_size, bias=False))
        return stack

    @property
    def _stacks(self) -> list[nn.Sequential]:
        return [cast(nn.Sequential, head) for head in self.heads]

    def states(self, hidden: Tensor) -> Tensor:
        """States [..., T, width] after each head's residual blocks, from hidden states [..., width]."""
        return torch.stack([stack[: self.form.layers](hidden) for stack in self._stacks], dim=-2)

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        """Logits [..., T, V] from hidden states [..., width]; ignores the root tokens."""
        mixed = self.states(hidden)
        (output,) = self._output
        if output is not None:
            return output(mixed)
        return torch.stack([stack[-1](mixed[..., t, :]) for t, stack in enumerate(self._stacks)], dim=-2)

    def save(self, folder: str | Path, base_model: str = "") -> None:
        """Writes the public format into `folder`: medusa_lm_head.safetensors and config.json. `base_model` names the
        backbone.
        """
        folder = Path(folder)
        _refuse_other_config(folder / CONFIG)
        tensors = {
            name.removeprefix("heads."): tensor.detach().cpu().contiguous()
            for name, tensor in self.state_dict().items()
        }
        with replacing(folder / WEIGHTS) as file:
            file.write(safetensors_bytes(tensors))
        config = {
            "medusa_num_heads": self.form.heads,
            "medusa_num_layers": self.form.layers,
            "base_model_name_or_path": base_model,
        }
        with replacing(folder / CONFIG) as file:
            file.write(json.dumps(config, indent=2).encode())

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        width: int,
        vocab_size: int,
        output: Callable[[Tensor], Tensor],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> MedusaHeads:
        """Loads a public checkpoint (see `read_medusa`) for a backbone of this width and V, in evaluation mode.

        `output` is used if the heads have no last layer of their own.
        """
        form, tensors = read_medusa(path, width=width, vocab_size=vocab_size)
        own = form.vocab_size is not None
        heads = cls(
            heads=form.heads,
            width=width,
            layers=form.layers,
            output=None if own else output,
            vocab_size=form.vocab_size,
        )
        heads.load_state_dict({f"heads.{name}": tensor for name, tensor in tensors.items()})
        if form.vocab_size is not None and form.vocab_size < vocab_size:
            known = torch.arange(form.vocab_size, dtype=torch.int32, device=device)
            heads.vocabulary = DraftVocabulary(ids=known, size=vocab_size)
        return heads.to(device=device, dtype=dtype).eval()


def _refuse_other_config(path: Path) -> None:
    """Protects the config.json of other models, such as the backbone, from being overwritten."""
    if path.exists() and "medusa_num_heads" not in path.read_text(encoding="utf-8", errors="replace"):
        raise ValueError(
            f"{path}: expected no file, or that of Medusa heads, got another; save the heads in a separate folder"
        )
