"""The interface of a target, the model that verifies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.lattice.short_repr import short_repr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """L tokens for each of R rows.

    ids       int64 [R, L] in [0, V); padding of shorter rows is any id
    start     int64 [R], number of tokens in the row's cache, which is the position of column 0
    depths    int64 [R, L]; a token's position is start + depth in the tree, not its column
    ancestors bool [R, L, L], whether column i sees column j; None for chains, where i sees all j <= i
    end       greatest start + L, the number of slots read

    Column i of a row is stored in slot start + i of its cache; it sees every slot below `start`, and its ancestors.
    """

    ids: Tensor
    start: Tensor
    depths: Tensor
    ancestors: Tensor | None
    end: int

    __repr__ = short_repr

    @classmethod
    def chain(cls, ids: Tensor, start: Tensor, end: int) -> Block:
        """Chains: column i follows column i - 1."""
        return cls(
            ids=ids,
            start=start,
            depths=torch.arange(ids.shape[1], device=ids.device).expand(ids.shape),
            ancestors=None,
            end=end,
        )

    @classmethod
    def of_texts(cls, texts: Sequence[NDArray[np.integer]], starts: Sequence[int], device: torch.device) -> Block:
        """Chains of different lengths, texts[r] after starts[r] tokens.

        Padding takes the position of the row's last token, so that it never exceeds the model's context.
        """
        lengths = np.array([[len(text)] for text in texts])
        columns = np.arange(lengths.max())
        ids = np.zeros((len(texts), len(columns)), np.int64)
        for row, text in zip(ids, texts):
            row[: len(text)] = text
        return cls(
            ids=torch.from_numpy(ids).to(device),
            start=torch.tensor(starts, device=device),
            depths=torch.from_numpy(np.minimum(columns, np.maximum(lengths, 1) - 1)).to(device),
            ancestors=None,
            end=max(starts) + len(columns),
        )

    def to(self, device: torch.device) -> Block:
        """The block on a device."""
        tensors = {name: getattr(self, name).to(device) for name in ("ids", "start", "depths")}
        return replace(self, **tensors, ancestors=None if self.ancestors is None else self.ancestors.to(device))

    @property
    def rows(self) -> int:
        return self.ids.shape[0]

    @property
    def width(self) -> int:
        """L."""
        return self.ids.shape[1]

    @property
    def common_start(self) -> int | None:
        """Number of tokens in every row's cache, if known on the host and equal for all rows."""
        if self.is_causal:
            return 0
        if self.start.device.type != "cpu":
            return None
        starts = self.start.tolist()
        return starts[0] if starts.count(starts[0]) == len(starts) else None

    @property
    def positions(self) -> Tensor:
        """int64 [R, L]."""
        return self.start[:, None] + self.depths

    @property
    def last(self) -> Tensor:
        """The greatest position of each row's tokens, int64 [R]."""
        return self.positions.amax(dim=1)

    @property
    def slots(self) -> Tensor:
        """Slots of the tokens' keys and values, int64 [R, L]."""
        return self.start[:, None] + torch.arange(self.width, device=self.ids.device)

    @property
    def is_causal(self) -> bool:
        """Whether these are chains that begin all texts: each token sees the columns up to its own, and there are no
        others.
        """
        return self.ancestors is None and self.end == self.width

    def parts(self, width: int) -> Iterator[Block]:
        """Chains as blocks of at most `width` columns, one after another."""
        for first in range(0, self.width, width):
            columns, rest = slice(first, first + width), max(0, self.width - first - width)
            yield Block(
                ids=self.ids[:, columns],
                start=self.start + first,
                depths=self.depths[:, columns] - first,
                ancestors=None,
                end=self.end - rest,
            )

    def seen(self, window: int | None = None) -> Tensor:
        """The attention mask, bool [R, 1, L, end], or [1, 1, L, end] of chains with one start: the slots that each
        token attends to. A `window` limits them to fewer than so many positions back.
        """
        if self.rows > 1 and self.ancestors is None and self.common_start is not None:
            return Block.chain(self.ids[:1], self.start[:1], self.end).seen(window)
        if window is None and self.ids.device.type == "cpu":
            return torch.from_numpy(self._seen_on_host())
        return self.seen_on_device(window)

    def seen_on_device(self, window: int | None = None) -> Tensor:
        """As `seen`, without reading values on the host."""
        slot = torch.arange(self.end, device=self.ids.device)
        column = slot - self.start[:, None]  # [R, end]: negative for earlier text
        inside = (column >= 0) & (column < self.width)
        seen = (column < 0)[:, None] | (inside[:, None] & self._among_columns(column))
        if window is not None:
            seen &= self._positions_of_slots(slot, column, inside)[:, None] > (self.positions - window)[:, :, None]
        return seen[:, None]

    def _seen_on_host(self) -> NDArray[np.bool_]:
        """As `seen`, on the host: only the block's columns differ between tokens, so other slots are filled at once."""
        among = np.tri(self.width, dtype=bool)[None] if self.ancestors is None else self.ancestors.numpy()
        seen = np.zeros((self.rows, 1, self.width, self.end), bool)
        for row, start in enumerate(self.start.tolist()):
            seen[row, 0, :, :start] = True
            seen[row, 0, :, start : start + self.width] = among[row % len(among)]
        return seen

    def _among_columns(self, column: Tensor) -> Tensor:
        """bool [R, L, end]: whether token i sees the column in slot s."""
        if self.ancestors is None:
            return column[:, None] <= torch.arange(self.width, device=column.device)[:, None]
        index = column.clamp(0, self.width - 1)[:, None].expand(-1, self.width, -1)
        return self.ancestors.gather(2, index)

    def _positions_of_slots(self, slot: Tensor, column: Tensor, inside: Tensor) -> Tensor:
        """int64 [R, end]: slots of earlier text have their own position, columns that of their depth."""
        depth = self.depths.gather(1, column.clamp(0, self.width - 1))
        return torch.where(inside, self.start[:, None] + depth, slot)


class Target(Protocol):
    """A causal language model that reads blocks of tokens after those in a cache.

    vocab_size  V
    context     the most positions it can read; None if unlimited
    trees       whether it reads trees (positions by depth, a mask per token), or only chains
    reads_back  whether `logits` works for every hidden state; otherwise only for a prompt's last one, and for those of
                later passes right after the pass
    """

    vocab_size: int
    context: int | None
    trees: bool
    reads_back: bool

    @property
    def device(self) -> torch.device: ...

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[Any, list[NDArray[np.int64]]]:
        """Returns a cache with `copies` rows for each prompt, next to each other, and the tokens to read first.

        The cache is a `SlotCache`, or another type with its `held`, `tail`, `room`, `keep` and `select`, and `copy` if
        there may be several copies. The tokens to read first are the prompt's; for an encoder-decoder, whose encoder
        reads the prompt here, they are the decoder's first tokens. The cache may already hold some of them
        (`SlotCache.held`), but never the last.

        length: number of slots that will be needed.
        """

    def read(self, block: Block, cache: Any) -> Tensor:
        """Reads a block and stores its keys and values in the cache; returns last hidden states [R, L, width]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of the next token, from hidden states [..., width]."""


class Draw(NamedTuple):
    """tokens: tokens int64 [R, L], -1 and -2 as in `PassResult`, from logits [R, L, V] and numbers float64 [R, L] in
    [0, 1), without reading a value on the host; equal ones do the same. uniform: these numbers, on the host.
    """

    tokens: Callable[[Tensor, Tensor], Tensor]
    uniform: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassResult:
    """What a pass finds for the R rows and L columns of its block.

    hidden  last hidden states [R, L, width], and logits [R, L, V], on the target's device; if the pass has a fixed
            shape, the next one overwrites them
    chosen  int64 [R, L], the target's own token after each, the most probable or a drawn one; -1 where logits are NaN,
            +inf or only -inf, -2 where it is to be found from the logits; None: unknown
    top     int32 [R, L, k], the most probable tokens first, and float32, their probabilities; None: unknown
    usual   whether the pass took the time that such passes take, and did not prepare later ones
    """

    hidden: Tensor
    logits: Tensor
    chosen: NDArray[np.int64] | None = None
    top: tuple[NDArray[np.int32], NDArray[np.float32]] | None = None
    usual: bool = True

    __repr__ = short_repr

    def mapped(self, of: Callable[[Any], Any]) -> PassResult:
        """With every array and tensor mapped, all of which are known."""
        assert self.chosen is not None and self.top is not None
        hidden, logits, chosen, ids, p = map(of, (self.hidden, self.logits, self.chosen, *self.top))
        return replace(self, hidden=hidden, logits=logits, chosen=chosen, top=(ids, p))


class FixedShapes(Protocol):
    """Passes over drafts that have one of a few shapes.

    sizes  numbers of nodes that passes have
    """

    @property
    def sizes(self) -> Sequence[int]: ...

    def rows(self, rows: int) -> int:
        """The rows of a pass that reads so many."""

    def nodes(self, nodes: int) -> int:
        """The nodes that a pass reads for drafts of so many."""

    def read(self, block: Block, cache: Any, top: int = 0, draw: Draw | None = None) -> PassResult:
        """Reads a block, which is on the host.

        top   how many of the most probable tokens are wanted after each
        draw  how the target's own token is drawn after each; None: it is the most probable one
        """


@runtime_checkable
class Fixable(Protocol):
    """A target that may read drafts in passes of fixed shape."""

    @property
    def fixed(self) -> FixedShapes | None:
        """None: drafts are read as they are."""


@runtime_checkable
class Seeing(Protocol):
    """A target whose prompts may have images or sound. placeholders: the ids that stand for them."""

    @property
    def placeholders(self) -> frozenset[int]: ...


@runtime_checkable
class Switching(Protocol):
    """A target that reads a text otherwise once it is longer than `switch` tokens, as longrope does.

    switch       None: it does not
    longest      the most positions of a text that is read so, in place of `context`
    reads_again  whether it then reads the whole text again; otherwise keys and values of earlier tokens stay
    """

    switch: int | None
    longest: int | None
    reads_again: bool
