"""A decoder whose layers can be left: behind its exit a position stores keys and values of the state it left with.

Schuster et al. 2022 (arXiv 2207.07061), section 3, state propagation: the state of the exit layer stands for those of
all layers above, whose keys and values are projections of it. A `Gate` around every layer does so. Whatever the family
does in a layer before it stores keys and values (norms, projections, rotations) is done by the layer itself, which is
interrupted as soon as it has stored them; so no family has code here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rescore.decode.models.decoder_layers import DecoderLayers
from rescore.decode.models.slot_cache import SlotCache


class ExitPass:
    """What the gates of one pass share.

    exits      numbers of layers behind which a position may leave
    leaves     bool [R, L] of (layers run, state, state of the layer below): which positions are confident enough
    translate  the state that is put out for a position that leaves behind so many layers
    """

    def __init__(
        self,
        shape: torch.Size,
        depth: int,
        exits: frozenset[int],
        leaves: Callable[[int, Tensor, Tensor], Tensor],
        translate: Callable[[int, Tensor], Tensor],
        device: torch.device,
    ):
        self.exits, self.depth = exits, depth
        self.left = torch.zeros(shape, dtype=torch.bool, device=device)
        self.used = torch.full(shape, depth, device=device)
        self.done = False
        self._leaves, self._translate = leaves, translate
        self._output: Any = None
        self._final: Tensor | None = None

    def layer(self, gate: Gate, below: Tensor, *args: Any, **kwargs: Any) -> Any:
        """What the layer hands on: its own output for positions that go on, `below` for those that have left."""
        if self.done:
            self._store_alone(gate, below, *args, **kwargs)
        else:
            output = gate.inner(below, *args, **kwargs)
            state = torch.where(self.left[..., None], below, state_of(output))
            if gate.number in self.exits:
                self._let_go(gate.number, state, below)
            self._output = with_state(output, state)
        if gate.number == self.depth and self._final is not None:
            return with_state(self._output, torch.where(self.left[..., None], self._final, state_of(self._output)))
        return self._output

    def stored(self, layer: int) -> None:
        """Of the cache: a layer has stored keys and values."""
        if self.done:
            raise _Stored

    def _let_go(self, number: int, state: Tensor, below: Tensor) -> None:
        leaving = self._leaves(number, state, below) & ~self.left
        if not leaving.any():
            return
        final = state if self._final is None else self._final
        self._final = torch.where(leaving[..., None], self._translate(number, state), final)
        self.used.masked_fill_(leaving, number)
        self.left |= leaving
        self.done = bool(self.left.all())

    def _store_alone(self, gate: Gate, below: Tensor, *args: Any, **kwargs: Any) -> None:
        try:
            gate.inner(below, *args, **kwargs)
        except _Stored:
            return
        raise ValueError(
            f"{type(gate.inner).__name__}: expected a layer that stores keys and values of its own, got one that does "
            "not; its model cannot be left early"
        )


class _Stored(Exception):
    """Leaves a layer that has stored its keys and values."""


class Gate(nn.Module):
    """A layer of a decoder, in a pass or, outside of one, as it is. number: of layers run behind it, from 1."""

    def __init__(self, inner: nn.Module, number: int, gated: GatedDecoder):
        super().__init__()
        self.inner, self.number = inner, number
        self._gated = (gated,)  # in a tuple, since a module would become part of this one

    def forward(self, below: Tensor, *args: Any, **kwargs: Any) -> Any:
        under_way = self._gated[0].under_way
        if under_way is None:
            return self.inner(below, *args, **kwargs)
        return under_way.layer(self, below, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


class GatedDecoder:
    """A decoder of Hugging Face with gates; it shares its layers with the model's own, which stays as it is.

    decoder    runs as the model's own does
    norm       what is done to the last layer's states
    depth      of its layers
    under_way  the pass that gates are to heed, None: they are open
    """

    def __init__(self, decoder: Any):
        found = DecoderLayers.of(decoder)
        self.norm, self.depth = found.norm, len(found.layers)
        self.under_way: ExitPass | None = None
        self.decoder = found.replaced([Gate(layer, i, self) for i, layer in enumerate(found.layers, 1)])

    @contextmanager
    def running(self, started: ExitPass, cache: SlotCache) -> Iterator[None]:
        """The gates heed this pass in the block, which reads into that cache."""
        self.under_way, cache.stored = started, started.stored
        try:
            yield
        finally:
            self.under_way, cache.stored = None, None


def state_of(output: Any) -> Tensor:
    """The hidden states of a layer's output, which may come with other things."""
    return output[0] if isinstance(output, tuple) else output


def with_state(output: Any, state: Tensor) -> Any:
    return (state, *output[1:]) if isinstance(output, tuple) else state
