"""The draft vocabulary: tokens that a model writes often, for heads that have logits for these alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftVocabulary:
    """ids int32 [D], ascending, of the tokens with a logit; size: V, of the target's vocabulary."""

    ids: Tensor
    size: int

    def tokens(self, columns: Tensor) -> Tensor:
        """Token ids int32 [...] of columns of the logits, integers [...]; both may be on a device."""
        return self.ids[columns.long()]
