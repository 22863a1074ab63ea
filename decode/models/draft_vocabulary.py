"""Heads that give logits for a part of the vocabulary alone: the tokens that a model writes often."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftVocabulary:
    """ids int32 [D], rising, of the tokens that have a logit; size: V, of the target's vocabulary."""

    ids: Tensor
    size: int

    def tokens(self, columns: Tensor) -> Tensor:
        """Ids int32 [...] of columns of the logits, integers [...]; both may be on a device."""
        return self.ids[columns.long()]
