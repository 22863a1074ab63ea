"""A decoder with exits: above its exit, a position only stores keys and values of the state it exited with.

Schuster et al. 2022 (arXiv 2207.07061), section 3, state propagation: the state at the exit replaces the states of all
layers above, which project it to their keys and values. A `Gate` around every layer does this. It runs the layer, so
norms, projections and rotations need no code per model family, and interrupts it once keys and values are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rescore.decode.models.decoder_layers import DecoderLayers
from rescore.decode.models.slot_cache import SlotCache


def untranslated(layers: int, state: Tensor) -> Tensor:
    """The state as it is, where there are no exit heads to translate it."""
    return state


class ExitPass:
    """The state shared by the gates of one pass.

    exits      numbers of layers after which a position may exit
    leaves     leaves(layers, state, state of the layer below) returns the positions confident enough to exit, bool
               [R, L]
    translate  translate(layers, state) returns the output state of positions that exit after `layers` layers
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
        """Returns the gate's output: the layer's for positions that continue, `below` for those that have exited."""
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
        """Called by the cache when a layer has stored keys and values."""
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
            f"{type(gate.inner).__name__}: expected a layer that stores its own keys and values, got one that does "
            "not; the model does not support early exits"
        )


class _Stored(Exception):
    """Raised to interrupt a layer once it has stored its keys and values."""


class Gate(nn.Module):
    """A decoder layer, gated while a pass is running. number: layers run up to and including this one, from 1."""

    def __init__(self, inner: nn.Module, number: int, gated: GatedDecoder):
        super().__init__()
        self.inner, self.number = inner, number
        self._gated = (gated,)  # a tuple keeps torch from registering it as a submodule

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
    """A Hugging Face decoder with gates. It shares its layers with the model's own decoder, which is not modified.

    decoder    called like the model's own
    norm       the final norm
    depth      number of layers
    under_way  the running pass; None: the gates are open
    """

    def __init__(self, decoder: Any):
        found = DecoderLayers.of(decoder)
        self.norm, self.depth = found.norm, len(found.layers)
        self.under_way: ExitPass | None = None
        self.decoder = found.replaced([Gate(layer, i, self) for i, layer in enumerate(found.layers, 1)])

    @contextmanager
    def running(self, started: ExitPass, cache: SlotCache) -> Iterator[None]:
        """Gates act on pass `started`, which reads into `cache`, within the context."""
        self.under_way, cache.stored = started, started.stored
        try:
            yield
        finally:
            self.under_way, cache.stored = None, None


def state_of(output: Any) -> Tensor:
    """Returns the hidden states of a layer's output, which may be a tuple."""
    return output[0] if isinstance(output, tuple) else output


def with_state(output: Any, state: Tensor) -> Any:
    return (state, *output[1:]) if isinstance(output, tuple) else state
