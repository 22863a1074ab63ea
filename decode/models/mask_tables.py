"""Tables of what each token may attend to, which some layers hold beside the mask that they are given.

GPT-Neo's layers cut rows and columns out of such a table by slots of the cache. But a tree's branches lie in different
slots at the same position, rows of a batch begin at different ones, and the slots of a draft may exceed the table. The
same cuts are therefore answered from the block that is read.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rescore.decode.models.block import Block
from rescore.decode.models.decoder_layers import with_modules


class MaskTable:
    """Stands for a layer's bool [1, 1, C, C]; any cut of it is what `block` sees, within `window` positions.

    block is set before each pass.
    """

    def __init__(self, window: int):
        self.window = window
        self.block: Block | None = None

    def __getitem__(self, cut: Any) -> Tensor:
        assert self.block is not None, "a pass names its block"
        return self.block.seen(self.window)


def with_mask_tables(module: Any) -> tuple[Any, list[MaskTable]]:
    """The module with a `MaskTable` in place of every table, everything else shared, and these; the module itself if it
    has none.
    """
    tables: list[MaskTable] = []

    def view(module: Any) -> Any:
        children = {name: child if child is None else view(child) for name, child in module._modules.items()}
        own = {name: MaskTable(window) for name, buffer in module._buffers.items() if (window := _window_of(buffer))}
        if not own and all(child is module._modules[name] for name, child in children.items()):
            return module
        copy = with_modules(module, children)
        copy._buffers = {name: buffer for name, buffer in module._buffers.items() if name not in own}
        vars(copy).update(own)
        tables.extend(own.values())
        return copy

    return view(module), tables


def _window_of(buffer: Tensor | None) -> int:
    """The positions that a token sees in a causal table, itself included; 0 if the buffer is none."""
    if buffer is None or buffer.dtype != torch.bool or buffer.dim() != 4 or buffer.shape[2] != buffer.shape[3]:
        return 0
    window = int(buffer[0, 0, -1].sum())
    causal = torch.ones_like(buffer).tril().triu(1 - window)
    return window if torch.equal(buffer, causal) else 0
