"""Rotary angles that depend on the length of the text.

transformers takes the length from the last position of a pass, in a batch the longest row's. A pass over a draft, or
over rows that are not at the same step, would get other angles than plain decoding. Longrope has only two sets of
angles, so a text is decoded in two stretches; dynamic NTK has new ones at every step, and nothing can be drafted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rescore.decode.models.block import Block
from rescore.decode.models.decoder_layers import with_modules

LONG = "longrope"
_ROTARY = "rotary_emb"


def rope_types(config: Any) -> dict[str, dict[str, Any]]:
    """The rotary parameters of a configuration by type, such as "default" and "longrope"."""
    rope = getattr(config, "rope_parameters", None) or {}
    # Either one set of parameters, or one per kind of layer.
    return {one["rope_type"]: one for one in (rope, *rope.values()) if isinstance(one, dict) and "rope_type" in one}


def switch_of(rope: dict[str, dict[str, Any]]) -> int:
    """The length of a text past which longrope, one of these parameters, takes its long factors."""
    return int(rope[LONG]["original_max_position_embeddings"])


def is_rotary(decoder: Any) -> bool:
    """Whether positions are angles that the decoder computes, as far as one likes, and not rows of a table."""
    rotary = getattr(decoder, _ROTARY, None)
    return isinstance(rotary, nn.Module) and any(name.endswith("inv_freq") for name, _ in rotary.named_buffers())


class LongRope(nn.Module):
    """A decoder's longrope angles, those of long or of short texts, whichever positions a pass reads.

    long  which of them, for all rows; None: for each row those of its text, which is long if a pass reads it from its
          start to past the switch, or goes on past it. Drafts of a short text may go further
    block is set before each pass.
    """

    def __init__(self, rotary: nn.Module, switch: int):
        super().__init__()
        self.rotary, self.switch = rotary, switch
        self.long: bool | None = None
        self.block: Block | None = None

    @classmethod
    def in_decoder(cls, decoder: Any, switch: int) -> tuple[Any, LongRope]:
        """The decoder with such angles, its weights shared, and the angles."""
        angles = cls(getattr(decoder, _ROTARY), switch)
        return with_modules(decoder, {_ROTARY: angles}), angles

    def forward(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self.long is not None:
            return (self._of_long if self.long else self._of_short)(x, position_ids, *args, **kwargs)
        assert self.block is not None, "a pass names its block"
        start = self.block.start
        is_long = (torch.where(start == 0, self.block.last, start) >= self.switch)[:, None, None]
        cos, sin = self._of_long(x, position_ids, *args, **kwargs)
        short_cos, short_sin = self._of_short(x, position_ids, *args, **kwargs)
        return torch.where(is_long, cos, short_cos), torch.where(is_long, sin, short_sin)

    def _of_short(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self.rotary(x, position_ids.clamp(max=self.switch - 1), *args, **kwargs)

    def _of_long(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        last = torch.full_like(position_ids[..., :1], self.switch)
        cos, sin = self.rotary(x, torch.cat((position_ids, last), dim=-1), *args, **kwargs)
        return cos[..., :-1, :], sin[..., :-1, :]
