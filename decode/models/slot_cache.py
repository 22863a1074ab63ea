"""Keys and values of the tokens read so far, stored so that rejecting a draft costs nothing.

Slot s of a row holds the row's token s. A pass writes its tokens after the row's text and reads the slots below the
row's length, and ancestors in the block. Remains of a rejected draft, or padding from a longer row, are therefore
overwritten before they are ever read: rolling back is reading on from an earlier position.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore import _core
from rescore.decode.models.target import Block
from rescore.lattice.extras import needed_for

with needed_for("a model of Hugging Face"):
    from transformers import Cache, DynamicCache, EncoderDecoderCache
    from transformers.modeling_outputs import BaseModelOutputWithPast

__all__ = ["CACHE", "DynamicCache", "EncoderDecoderCache", "SlotLayers", "attention_mask"]

# The argument of a model's forward and of generate that holds the cache, and the field of their outputs.
# transformers 5.24 renamed it; older versions do not know the new name.
CACHE = "cache" if "cache" in {field.name for field in fields(BaseModelOutputWithPast)} else "past_key_values"


class SlotLayers(Cache):
    """A `SlotCache` as the cache of one pass, after `SlotCache.begin`.

    start  number of tokens in the rows, for models that derive positions from it; arbitrary if rows differ, when the
           model is given its positions
    """

    def __init__(self, cache: SlotCache, start: int = 0):
        super().__init__(layers=[])
        self._cache = cache
        self._start = start

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return self._cache.update(layer_idx, key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._start


def attention_mask(seen: Tensor, implementation: str, dtype: torch.dtype) -> Tensor:
    """Converts bool [R, 1, L, end] to what the attention takes. Eager: a term for the scores, 0 or the least number of
    `dtype`. sdpa on a CPU: likewise with -inf, which every layer would otherwise compute; elsewhere the bool mask.

    transformers does not change masks of four dimensions.
    """
    if implementation == "sdpa" and seen.device.type != "cpu":
        return seen
    unseen = -torch.inf if implementation == "sdpa" else torch.finfo(dtype).min
    return torch.full(seen.shape, unseen, dtype=dtype, device=seen.device).masked_fill_(seen, 0.0)


class SlotCache:
    """Keys and values [rows, attention heads, slots, head width] of every layer, allocated when a layer first stores.

    Rows may differ in length; slots are added when they run out.
    held: number of tokens in each row when a target opened it.
    tail: tokens that the next pass reads again in each row, where a target does that.
    room: the most draft tokens of a row that can be rolled back; None: any number.
    stored: called with every layer whose keys and values of a pass have been stored.
    selecting: called with the rows that stay, before the others are removed.
    """

    tail: int | None = None
    room: int | None = None

    def __init__(self, rows: int, slots: int):
        if rows < 1 or slots < 1:
            raise ValueError(f"expected at least one row and one slot, got {rows} and {slots}")
        self.rows = rows
        self.slots = slots
        self.held = [0] * rows
        self.stored: Callable[[int], None] | None = None
        self.selecting: Callable[[Sequence[int]], None] | None = None
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._bytes: list[NDArray[np.uint8]] = []  # views of all keys and values, on the CPU
        self._end = 0
        self._used = 0  # slots that were ever written
        self._rows: Tensor | None = None
        self._at: slice | tuple[Tensor, slice, Tensor] | None = None
        self._places: dict[int, Tensor] = {}  # of the current pass, by number of attention heads

    def begin(self, block: Block, rows: Tensor | None = None) -> None:
        """Starts a pass that reads `block`, for all rows of the cache or for `rows`, int64 [R]."""
        expected = self.rows if rows is None else len(rows)
        if block.rows != expected:
            raise ValueError(f"expected a block of {expected} rows, one for each of the cache, got {block.rows}")
        if block.end > self.slots:
            self._grow(max(block.end, 2 * self.slots))
        self._end = block.end
        self._used = max(self._used, block.end)
        self._rows = rows
        start = block.common_start if rows is None else None
        if start is not None:
            self._at = slice(start, start + block.width)
            return
        self._places.clear()
        every = torch.arange(self.rows, device=block.ids.device) if rows is None else rows
        self._at = (every[:, None], slice(None), block.slots)

    def update(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores a block's [R, H, L, D]; returns all keys and values [R, H, end, D]. First called in layer order."""
        assert self._at is not None, "begin() names the block that a pass reads"
        if layer == len(self.keys):
            self.keys.append(self._empty(keys))
            self.values.append(self._empty(values))
            self._bytes = []
        self._store(self.keys[layer], keys)
        self._store(self.values[layer], values)
        if self.stored is not None:
            self.stored(layer)
        keys, values = self.keys[layer][:, :, : self._end], self.values[layer][:, :, : self._end]
        return (keys, values) if self._rows is None else (keys[self._rows], values[self._rows])

    def _store(self, store: Tensor, new: Tensor) -> None:
        assert self._at is not None
        if isinstance(self._at, slice):
            store[:, :, self._at] = new
        elif store.device.type == "cpu":
            # For so little, torch would split an indexed assignment over threads and wait until they are free.
            store.view(-1, store.shape[3]).index_copy_(0, self._rows_of(store), new.reshape(-1, new.shape[3]))
        else:
            store[self._at] = new.transpose(1, 2)

    def _rows_of(self, store: Tensor) -> Tensor:
        """Indices of the block's slots in the flattened rows, heads and slots, int64 [R H L]."""
        heads = store.shape[1]
        if heads not in self._places:
            assert isinstance(self._at, tuple)
            rows, _, slots = self._at
            head = rows[:, :, None] * heads + torch.arange(heads)[:, None]
            self._places[heads] = (head * self.slots + slots[:, None]).flatten()
        return self._places[heads]

    def keep(self, starts: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Moves the accepted columns paths[row], ascending, of the last block to the slots from `starts[row]` on.

        A chain's columns are already there; a tree's move up after the first omitted one.
        """
        moved = [
            (row, start, column, place)
            for row, (start, path) in enumerate(zip(starts, paths))
            for place, column in enumerate(path)
            if column != place
        ]
        if not moved:
            return
        rows, start, column, place = np.ascontiguousarray(np.array(moved).T)
        if self.keys[0].device.type == "cpu":
            _core.move_slots(self._as_bytes(), rows, start + column, start + place)
            return
        where = (torch.from_numpy(one).to(self.keys[0].device) for one in (rows, start + column, start + place))
        row, source, target = where
        for store in (*self.keys, *self.values):
            store[row, :, target] = store[row, :, source]

    def _as_bytes(self) -> list[NDArray[np.uint8]]:
        """Byte views of every store [rows, heads, slots, bytes of a slot], valid as long as the stores."""
        if not self._bytes:
            self._bytes = [store.detach().view(torch.uint8).numpy() for store in (*self.keys, *self.values)]
        return self._bytes

    def copy(self, sources: Sequence[int] | Tensor, starts: Sequence[int], stops: Sequence[int]) -> None:
        """Copies slots starts[row] .. stops[row] - 1 of row sources[row], as before the call, to each `row`."""
        widths = torch.tensor([stop - start for start, stop in zip(starts, stops)])
        if not self.keys or int(widths.max()) < 1:
            return
        device = self.keys[0].device
        # A shorter row copies its last slot again; an empty one copies nothing from another row.
        slots = torch.tensor(starts)[:, None] + torch.arange(int(widths.max())).minimum(
            (widths - 1).clamp(min=0)[:, None]
        )
        own = torch.arange(self.rows, device=device)
        source = torch.where((widths > 0).to(device), torch.as_tensor(sources, device=device), own)[:, None]
        slots = slots.clamp(max=self.slots - 1).to(device)
        for store in (*self.keys, *self.values):
            store[own[:, None], :, slots] = store[source, :, slots]

    def put(self, rows: Sequence[int], other: SlotCache) -> None:
        """Copies the rows of another cache, in order, to `rows` of this one."""
        if other.slots > self.slots:
            self._grow(other.slots)
        self._used = max(self._used, other.slots)
        at = torch.tensor(rows, dtype=torch.int64)
        for stores, others in ((self.keys, other.keys), (self.values, other.values)):
            for store, new in zip(stores, others):
                store[at.to(store.device), :, : other.slots] = new

    def select(self, rows: Sequence[int]) -> None:
        """Keeps only these rows, in this order; a row may occur more than once.

        If rows are only removed, the remaining ones move up in place, without allocation.
        """
        if self.selecting is not None:
            self.selecting(rows)
        self.rows = len(rows)
        self._bytes = []
        if all(row < after for row, after in zip(rows, rows[1:])):
            for stores in (self.keys, self.values):
                stores[:] = [_moved_up(store, rows, self._used) for store in stores]
            return
        index = torch.tensor(rows, dtype=torch.int64)
        self.keys = [store[index.to(store.device)] for store in self.keys]
        self.values = [store[index.to(store.device)] for store in self.values]

    def row(self, row: int) -> SlotCache:
        """A copy of one row."""
        made = copy.copy(self)
        made.rows, made.held, made.stored, made.selecting = 1, [self.held[row]], None, None
        made.keys, made.values = ([store[row : row + 1].clone() for store in of] for of in (self.keys, self.values))
        made._bytes, made._places = [], {}
        return made

    def _empty(self, like: Tensor) -> Tensor:
        return like.new_zeros(self.rows, like.shape[1], self.slots, like.shape[3])

    def _grow(self, slots: int) -> None:
        for stores in (self.keys, self.values):
            for layer, store in enumerate(stores):
                longer = store.new_zeros(*store.shape[:2], slots, store.shape[3])
                longer[:, :, : self.slots] = store
                stores[layer] = longer
        self.slots = slots
        self._bytes = []


def _moved_up(store: Tensor, rows: Sequence[int], used: int) -> Tensor:
    for place, row in enumerate(rows):
        if place != row:
            store[place, :, :used] = store[row, :, :used]
    return store[: len(rows)]
