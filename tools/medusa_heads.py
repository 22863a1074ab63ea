"""Medusa heads (Cai et al. 2024, section 2.1.1): residual blocks on the last hidden state of a frozen causal LM, then a table of logits.

The folder of a checkpoint holds `config.json` (medusa_num_heads, medusa_num_layers, base_model_name_or_path) and
`medusa_lm_head.safetensors` with `<head>.<layer>.linear.{weight,bias}` and, for heads with a table of their own,
`<head>.<layers>.weight`. Heads are counted from 0 there: head 0 predicts the second token ahead, head 2 of ours.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch.nn.functional as F
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from rescore.lm.atomic import replacing


class ResidualBlock(nn.Module):
    """x + SiLU(Wx + b), at first the identity."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(x))


class MedusaHeads(nn.ModuleList):
    """Heads 2..h: `count` stacks of `layers` residual blocks, with a table [V, width] each if one to start from is given."""

    def __init__(self, count: int, layers: int, width: int, table: Tensor | None = None):
        super().__init__(nn.Sequential(*(ResidualBlock(width) for _ in range(layers))) for _ in range(count))
        self.layers = layers
        if table is not None:
            for head in self:
                own = nn.Linear(width, len(table), bias=False)
                own.weight.data.copy_(table)
                head.append(own)

    def blocks(self) -> list[nn.Module]:
        """What each head does to a hidden state before the table."""
        return [head[: self.layers] for head in self]

    def tables(self, shared: Tensor) -> list[Tensor]:
        """The table [V, width] of each head; `shared` where it has none."""
        return [head[self.layers].weight if len(head) > self.layers else shared for head in self]

    def save(self, folder: Path, base: str) -> None:
        config = {"medusa_num_heads": len(self), "medusa_num_layers": self.layers, "base_model_name_or_path": base}
        with replacing(folder / "config.json") as file:
            file.write((json.dumps(config, indent=2) + "\n").encode())
        with replacing(folder / "medusa_lm_head.safetensors") as file:
            file.write(safetensors_bytes({name: tensor.contiguous() for name, tensor in self.state_dict().items()}))
