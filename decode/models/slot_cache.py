"""Keys and values of the tokens read so far, stored so that rejecting a draft costs nothing.

Slot s of a row holds the row's token s. A pass writes its tokens after the row's text and sees the slots below the
row's length, and ancestors in the block. Remains of a rejected draft, or padding from a longer row, are therefore
overwritten before they are ever seen: rolling back is reading on from an earlier position. They must be finite all the
same, since a masked NaN makes the attention's sum NaN.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
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

__all__ = ["CACHE", "DynamicCache", "EncoderDecoderCache", "SlotLayers", "SlotStorage", "attention_mask"]

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


def attention_mask(block: Block, implementation: str, dtype: torch.dtype, window: int | None = None) -> Tensor:
    """What a block sees as a term for the scores [R, 1, L, end], 0 or, of unseen slots, the least number of `dtype`;
    sdpa takes -inf. It would otherwise convert bools in every layer.

    window: the tokens that a layer sees; None: all. transformers does not change masks of four dimensions.
    """
    seen = block.seen(window)
    unseen = -torch.inf if implementation == "sdpa" else torch.finfo(dtype).min
    mask = torch.full(seen.shape, unseen, dtype=dtype, device=seen.device).masked_fill_(seen, 0.0)
    return mask.expand(block.rows, -1, -1, -1)


Form = tuple[torch.device, torch.dtype, int, int]
"""Of a layer's keys, or of its values: device, dtype, attention heads, width of a head."""


class SlotStorage:
    """The tensors of a `SlotCache`, one [planes, rows, attention heads, slots, width] for each form. Every layer has a
    plane for its keys and one for its values. All elements are finite.

    keys, values  views of the planes [rows, attention heads, slots, width], by layer
    graphs        captured passes over these tensors (`FixedPasses`), dropped where one is replaced
    lasting       whether calls in and outside of inference mode may use the tensors one after another, which takes
                  longer
    """

    def __init__(self, rows: int, slots: int, expected: Mapping[Form, int] | None = None, *, lasting: bool = False):
        self.rows, self.slots, self.lasting = rows, slots, lasting
        self.stores: dict[Form, Tensor] = {}
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.graphs: Any = None
        self._expected = expected or {}
        self._places: list[tuple[Form, int]] = []  # of keys and values, layer by layer
        self._bytes: list[NDArray[np.uint8]] = []

    @property
    def planes(self) -> dict[Form, int]:
        """How many planes layers use of each form: what to expect of another storage for the model."""
        forms = [form for form, _ in self._places]
        return {form: forms.count(form) for form in self.stores}

    def add_layer(self, keys: Tensor, values: Tensor) -> None:
        """Gives the next layer planes of the forms of `keys` and `values`, [R, H, L, D] each."""
        for new in (keys, values):
            form = new.device, new.dtype, new.shape[1], new.shape[3]
            used = sum(form == other for other, _ in self._places)
            if form not in self.stores:
                planes = self._expected.get(form, 1)
                with self._mode():
                    self.stores[form] = new.new_zeros(planes, self.rows, form[2], self.slots, form[3])
            elif used == len(self.stores[form]):
                self._replace(form, lambda store: torch.cat((store, torch.zeros_like(store))))
            self._places.append((form, used))
        self._see()

    def grow(self, slots: int) -> None:
        """Adds slots. Of one tensor at a time there are two."""

        def longer(store: Tensor) -> Tensor:
            made = store.new_zeros(*store.shape[:3], slots, store.shape[4])
            made[..., : self.slots, :] = store
            return made

        for form in [*self.stores]:
            self._replace(form, longer)
        self.slots = slots
        self._see()

    def select(self, rows: Sequence[int]) -> None:
        """Copies these rows, in this order, to tensors of as many rows."""
        index = torch.tensor(rows, dtype=torch.int64)
        for form in [*self.stores]:
            self._replace(form, lambda store: store[:, index.to(store.device)])
        self.rows = len(rows)
        self._see()

    def row(self, row: int) -> SlotStorage:
        """A copy of one row."""
        made = copy.copy(self)
        made.rows, made.graphs, made.keys, made.values = 1, None, [], []
        made.stores = {form: store[:, row : row + 1].clone() for form, store in self.stores.items()}
        made._places = [*self._places]
        made._see()
        return made

    def clear(self) -> None:
        """Forgets all tokens."""
        for store in self.stores.values():
            store.zero_()

    def move(self, rows: Tensor, sources: Tensor, targets: Tensor) -> None:
        """Copies slots `sources` of `rows` to the slots `targets`, int64 [m] each on the tensors' device, all of them
        as before the call.
        """
        for store in self.stores.values():
            store[:, rows, :, targets] = store[:, rows, :, sources]

    def wipe(self, row: int, slot: int) -> None:
        """Forgets a token."""
        for store in self.stores.values():
            store[:, row, :, slot] = 0

    def as_bytes(self) -> list[NDArray[np.uint8]]:
        """Byte views of all keys and values on the CPU [rows, heads, slots, bytes of a slot], valid as long as the
        tensors.
        """
        if not self._bytes:
            self._bytes = [store.detach().view(torch.uint8).numpy() for store in (*self.keys, *self.values)]
        return self._bytes

    def _replace(self, form: Form, made: Callable[[Tensor], Tensor]) -> None:
        self.keys, self.values, self.graphs = [], [], None  # or the old tensor would stay
        with self._mode():
            self.stores[form] = made(self.stores.pop(form))

    def _mode(self) -> AbstractContextManager[Any]:
        return torch.inference_mode(False) if self.lasting else nullcontext()

    def _see(self) -> None:
        """Makes the views that are missing."""
        views = [self.stores[form][plane] for form, plane in self._places[2 * len(self.keys) :]]
        self.keys += views[::2]
        self.values += views[1::2]
        self._bytes = []


def length_of(end: int, grain: int) -> int:
    """`end` rounded up to a multiple of the grain and, unless that is 1, of a quarter of the power of two above it, so
    that few lengths occur.
    """
    step = 1 if grain == 1 else max(grain, 1 << max(0, (end - 1).bit_length() - 2))
    return -(-end // step) * step


class SlotCache:
    """Keys and values of the tokens that rows have read, in a `SlotStorage`.

    Rows may differ in length; slots are added when they run out.
    held: number of tokens in each row when a target opened it.
    tail: tokens that the next pass reads again in each row, where a target does that.
    room: the most draft tokens of a row that can be rolled back; None: any number.
    stored: called with every layer whose keys and values of a pass have been stored.
    selecting: called with the rows that stay, before the others are removed.
    grain: passes read numbers of slots that are rounded up (`length_of`).
    shift: int64 [rows], what is added to the positions of each row's tokens, behind images whose tokens share some;
    None: nothing.

    Accepted nodes are moved to their places by the next pass (`keep`), or before anything else uses the cache.
    """

    tail: int | None = None
    room: int | None = None

    def __init__(self, rows: int, slots: int, *, storage: SlotStorage | None = None, grain: int = 1):
        if rows < 1 or slots < 1:
            raise ValueError(f"expected at least one row and one slot, got {rows} and {slots}")
        self.rows, self.grain = rows, grain
        self.held = [0] * rows
        self.shift: NDArray[np.int64] | Tensor | None = None
        self.stored: Callable[[int], None] | None = None
        self.selecting: Callable[[Sequence[int]], None] | None = None
        self.storage = storage or SlotStorage(rows, slots)
        self._end = 0
        self._used = 0  # slots that were ever written
        self._rows: Tensor | slice | None = None  # that the current pass reads, None: all of the storage's
        self._at: slice | tuple[Tensor, slice, Tensor] | None = None
        self._places: dict[int, Tensor] = {}  # of the current pass, by number of attention heads
        self._moves: list[tuple[int, int, int]] = []  # row, source, target: of the last block's accepted nodes

    @property
    def slots(self) -> int:
        return self.storage.slots

    @property
    def keys(self) -> list[Tensor]:
        """[rows, attention heads, slots, width] of every layer; rows that have left may follow."""
        self.settle()
        return self.storage.keys

    @property
    def values(self) -> list[Tensor]:
        """As `keys`."""
        self.settle()
        return self.storage.values

    def length(self, end: int) -> int:
        """How many slots a pass reads that needs the first `end`."""
        return length_of(end, self.grain)

    def reserve(self, end: int) -> None:
        """Makes room for a pass that reads `end` slots."""
        if end > self.slots:
            self.storage.grow(self.length(max(end, 2 * self.slots)))
        self._used = max(self._used, end)

    def begin(self, block: Block, rows: Tensor | None = None) -> None:
        """Starts a pass that reads `block`, for all rows of the cache or for `rows`, int64 [R]."""
        expected = self.rows if rows is None else len(rows)
        if block.rows != expected:
            raise ValueError(f"expected a block of {expected} rows, one for each of the cache, got {block.rows}")
        self.settle()
        self.reserve(block.end)
        self._end, self._rows = block.end, rows
        if rows is None and block.rows < self.storage.rows:
            self._rows = slice(block.rows)
        start = block.common_start if rows is None else None
        if start is not None:
            self._at = slice(start, start + block.width)
            return
        self._places.clear()
        every = torch.arange(block.rows, device=block.ids.device) if rows is None else rows
        self._at = (every[:, None], slice(None), block.slots)

    def update(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores a block's [R, H, L, D]; returns all keys and values [R, H, end, D]. First called in layer order."""
        assert self._at is not None, "begin() names the block that a pass reads"
        storage = self.storage
        if layer == len(storage.keys):
            storage.add_layer(keys, values)
        of_keys, of_values = storage.keys[layer], storage.values[layer]
        self._store(of_keys, keys)
        self._store(of_values, values)
        if self.stored is not None:
            self.stored(layer)
        of_keys, of_values = of_keys[:, :, : self._end], of_values[:, :, : self._end]
        return (of_keys, of_values) if self._rows is None else (of_keys[self._rows], of_values[self._rows])

    def _store(self, store: Tensor, new: Tensor) -> None:
        assert self._at is not None
        if isinstance(self._at, slice):
            store[self._rows or slice(None), :, self._at] = new
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
            head = rows[:, :, None] * heads + torch.arange(heads, device=rows.device)[:, None]
            self._places[heads] = (head * self.slots + slots[:, None]).flatten()
        return self._places[heads]

    def keep(self, starts: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Moves the accepted columns paths[row], ascending, of the last block to the slots from `starts[row]` on.

        A chain's columns are already there; a tree's move up after the first omitted one.
        """
        self.settle()
        self._moves = [
            (row, start + column, start + place)
            for row, (start, path) in enumerate(zip(starts, paths))
            for place, column in enumerate(path)
            if column != place
        ]

    def positions(self, block: Block) -> Tensor:
        """Those of a block's tokens in the rows of the current pass, int64 [R, L]."""
        if self.shift is None:
            return block.positions
        shift = torch.as_tensor(self.shift, device=block.ids.device)
        return block.positions + (shift if self._rows is None else shift[self._rows])[:, None]

    def moves(self, most: int) -> NDArray[np.int64]:
        """Rows, sources and targets of the slots that are still to be moved, int64 [3, m], for a pass that moves them
        first; none if there are more than `most`, which are moved now.
        """
        if len(self._moves) > most:
            self.settle()
        moves, self._moves = np.array(self._moves, np.int64).reshape(-1, 3), []
        return np.ascontiguousarray(moves.T)

    def settle(self) -> None:
        """Moves what is still to be moved."""
        if not self._moves:
            return
        rows, sources, targets = self.moves(len(self._moves))
        device = self.storage.keys[0].device
        if device.type == "cpu":
            _core.move_slots(self.storage.as_bytes(), rows, sources, targets)
        else:
            self.storage.move(*torch.from_numpy(np.stack((rows, sources, targets))).to(device))

    def copy(self, sources: Sequence[int] | Tensor, starts: Sequence[int], stops: Sequence[int]) -> None:
        """Copies slots starts[row] .. stops[row] - 1 of row sources[row], as before the call, to each `row`."""
        self.settle()
        widths = torch.tensor([stop - start for start, stop in zip(starts, stops)])
        if not self.storage.keys or int(widths.max()) < 1:
            return
        # A shorter row copies its last slot again; an empty one copies nothing from another row.
        slots = torch.tensor(starts)[:, None] + torch.arange(int(widths.max())).minimum(
            (widths - 1).clamp(min=0)[:, None]
        )
        for store in self.storage.stores.values():
            own = torch.arange(self.rows, device=store.device)
            source = torch.where((widths > 0).to(store.device), torch.as_tensor(sources, device=store.device), own)
            at = slots.clamp(max=self.slots - 1).to(store.device)
            store[:, own[:, None], :, at] = store[:, source[:, None], :, at]

    def put(self, rows: Sequence[int], other: SlotCache) -> None:
        """Copies the rows of another cache, in order, to `rows` of this one."""
        self.settle()
        self.reserve(other.slots)
        at = torch.tensor(rows, dtype=torch.int64)
        for stores, others in ((self.storage.keys, other.keys), (self.storage.values, other.values)):
            for store, new in zip(stores, others):
                store[at.to(store.device), :, : other.slots] = new[: other.rows]

    def select(self, rows: Sequence[int]) -> None:
        """Keeps only these rows, in this order; a row may occur more than once.

        If rows are only removed, the remaining ones move up in place, without allocation.
        """
        if self.selecting is not None:
            self.selecting(rows)
        self.settle()
        self.rows = len(rows)
        self.shift = None if self.shift is None else self.shift[list(rows)]
        if any(row >= after for row, after in zip(rows, rows[1:])):
            self.storage.select(rows)
            return
        for place, row in enumerate(rows):
            if place != row:
                for store in self.storage.stores.values():
                    store[:, place, :, : self._used] = store[:, row, :, : self._used]

    def row(self, row: int) -> SlotCache:
        """A copy of one row."""
        self.settle()
        made = copy.copy(self)
        made.rows, made.held, made.stored, made.selecting = 1, [self.held[row]], None, None
        made.shift = None if self.shift is None else self.shift[row : row + 1]
        made.storage, made._places = self.storage.row(row), {}
        return made
