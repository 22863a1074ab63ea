"""Heads in a separate folder or file, of any kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from rescore.decode.models.bita import holds_bita
from rescore.decode.models.conditioned_heads import ConditionedHeads, holds_heads
from rescore.decode.models.medusa import MedusaHeads


def stored_heads(
    path: str | Path, output: Callable[[Tensor], Tensor], embedding: Tensor, table: Tensor
) -> ConditionedHeads | MedusaHeads:
    """Loads heads of `rescore train heads`, or Medusa's, for a target with these input and output embeddings [V,
    width], in their dtype and on their device. output: the target's logits of a hidden state. ValueError or
    FileNotFoundError says what is wrong.
    """
    path = Path(path)
    if holds_bita(path):
        raise ValueError(
            f"{path}: expected heads of `rescore train heads`, or none, got mask tokens of BiTA, which only causal "
            "language models of Hugging Face can read"
        )
    if path.is_dir() and holds_heads(path):
        return ConditionedHeads.load(path, embedding=embedding, table=table, dtype=table.dtype, device=table.device)
    return MedusaHeads.load(
        path,
        width=table.shape[1],
        vocab_size=table.shape[0],
        output=output,
        dtype=table.dtype,
        device=table.device,
    )
