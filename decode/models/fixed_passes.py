"""Passes of a few fixed shapes, each captured once as a CUDA graph: one upload, one replay and one download a pass.

An eager pass of a small model is a thousand and more launches, which take longer than the arithmetic of a hundred
tokens. A replay takes no launch, but it fixes every shape, so rows, drafts and what is read of the cache are padded to
a few sizes. Everything that depends on the text comes in one buffer of integers; positions, masks and slots are made of
it on the device, and the accepted nodes of the last pass are moved to their places first.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import RLock
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import module as torch_module

from rescore.decode.models.model_state import state_of
from rescore.decode.models.slot_cache import Form, SlotCache, SlotStorage, length_of
from rescore.decode.models.target import Block, Draw, PassResult, Target
from rescore.lattice.tensors import top_on_device

NODES = (0, 1, 4, 8, 16, 32, 64, 128)  # of drafts, to which others are padded; larger ones to multiples of the last
GRAIN = 512  # slots
MOVES = 16  # a row, of accepted nodes that a pass moves itself
GRAPHS = 64  # that are kept with a storage, the latest used
IDLE = 2  # storages that are kept between calls, the latest used
# cuDNN's attention is wrong on some devices for few heads of keys (pytorch#193893).
BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)

Results = tuple[Tensor, Tensor, Tensor]
"""Of `FixedPasses.compute`."""
Compute = Callable[[Tensor], Results]


class PassShape(NamedTuple):
    """Rows, tokens in each, slots that they read, the number of most probable tokens that are wanted after each, and
    how one is drawn there (`Draw.tokens`); None: it is the most probable.
    """

    rows: int
    width: int
    end: int
    top: int
    draw: Callable[[Tensor, Tensor], Tensor] | None = None

    @property
    def moves(self) -> int:
        return MOVES * self.rows

    @property
    def size(self) -> int:
        """Integers that a pass is given."""
        return _parts(self)[-1][0].stop

    def split(self, inputs: Any) -> list[Any]:
        """Views of an array or tensor int64 [size]: starts and shifts [2, rows], moves [3, m], ids and depths
        [rows, width], the bits of the ancestors in words of 64, [rows, width, words], and those of the numbers to draw
        with, [rows, width].
        """
        return [inputs[at].reshape(part) for at, part in _parts(self)]

    def pack(
        self,
        block: Block,
        moves: NDArray[np.int64],
        uniform: NDArray[np.float64] | None = None,
        shift: Any = None,
    ) -> NDArray[np.int64]:
        """int64 [size]. block: on the host, of at most these rows and columns; moves, shift: as in `SlotCache`;
        uniform: as in `Draw`.

        Padding is token 0 at the root token's position, or a row of its own, and sees itself.
        """
        rows, width = block.rows, block.width
        inputs = _padding(self).copy()
        starts, moved, ids, depths, words, numbers = self.split(inputs)
        if uniform is not None:
            numbers.view(np.float64)[:rows, :width] = uniform
        starts[0, :rows] = block.start.numpy()
        if shift is not None:
            starts[1, :rows] = shift
        moved[:, : moves.shape[1]] = moves
        ids[:rows, :width] = block.ids.numpy()
        depths[:rows, :width] = block.depths.numpy()
        if width > 1:
            seen = np.tri(width, dtype=bool)[None] if block.ancestors is None else block.ancestors.numpy()
            bits = np.packbits(seen, axis=-1, bitorder="little")
            words.view(np.uint8)[:rows, :width, : bits.shape[2]] = bits
        return inputs

    def unpack(self, inputs: Tensor) -> tuple[Block, Tensor, Tensor, Tensor]:
        """The block, the shift int64 [rows], the moves int64 [3, m], and the numbers float64 [rows, width]."""
        starts, moves, ids, depths, words, numbers = self.split(inputs)
        column = torch.arange(self.width, device=inputs.device)
        ancestors = (words[..., column // 64] >> (column % 64)) & 1
        block = FixedBlock(ids=ids, start=starts[0], depths=depths, ancestors=ancestors.bool(), end=self.end)
        return block, starts[1], moves, numbers.view(torch.float64)


@lru_cache(4 * GRAPHS)
def _parts(shape: PassShape) -> list[tuple[slice, tuple[int, ...]]]:
    """The places and shapes of the parts of what a pass is given."""
    nodes = shape.rows, shape.width
    numbers = nodes if shape.draw else (0, 0)
    parts = (2, shape.rows), (3, shape.moves), nodes, nodes, (*nodes, -(-shape.width // 64)), numbers
    stops = np.cumsum([np.prod(part) for part in parts]).tolist()
    return [(slice(start, stop), part) for start, stop, part in zip([0, *stops], stops, parts)]


@lru_cache(4 * GRAPHS)
def _padding(shape: PassShape) -> NDArray[np.int64]:
    """What a pass without rows is given. Slot 0, which is no node's, moves onto itself."""
    inputs = np.zeros(shape.size, np.int64)
    own = np.eye(shape.width, 64 * -(-shape.width // 64), dtype=bool)
    shape.split(inputs)[4][:] = np.packbits(own, axis=-1, bitorder="little").view(np.int64)
    return inputs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FixedBlock(Block):
    """A block of which nothing is read on the host."""

    @property
    def common_start(self) -> int | None:
        return None

    def seen(self, window: int | None = None) -> Tensor:
        return self.seen_on_device(window)


class Graph:
    """A captured pass over a storage, with its buffers."""

    def __init__(self, graphs: _Graphs, shape: PassShape, compute: Compute):
        self._device, pinned = graphs.device, graphs.device.type == "cuda"
        found = shape.rows, shape.width, 1 + 2 * shape.top
        with torch.inference_mode(False):  # or only calls in inference mode could write them
            self._inputs = torch.zeros(shape.size, dtype=torch.int64, device=self._device)
            self._host = torch.zeros(shape.size, dtype=torch.int64, pin_memory=pinned)
            self._found = torch.zeros(found, dtype=torch.int32, device=self._device)
            self._found_host = torch.zeros(found, dtype=torch.int32, pin_memory=pinned)
        self._kept = [*graphs.results(shape), self._found]

        def run() -> None:
            for kept, result in zip(self._kept, compute(self._inputs)):
                kept.copy_(result)

        self._capture(run, graphs)

    def _capture(self, run: Callable[[], None], graphs: _Graphs) -> None:
        self._graph = torch.cuda.CUDAGraph()
        stream, before = graphs.stream, torch.cuda.current_stream(self._device)
        stream.wait_stream(before)
        with torch.cuda.stream(stream):
            self._graph.capture_begin(pool=graphs.pool, capture_error_mode="thread_local")
            try:
                run()
            finally:
                self._graph.capture_end()
        before.wait_stream(stream)

    def replay(self, inputs: NDArray[np.int64]) -> Results:
        """As `FixedPasses.compute`, with the last result on the host; waits for the device."""
        self._host.numpy()[:] = inputs
        self._inputs.copy_(self._host, non_blocking=True)
        self._graph.replay()
        self._found_host.copy_(self._found, non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        hidden, logits, _ = self._kept
        return hidden, logits, self._found_host


class _Graphs:
    """The captured passes of one storage, the latest used last. They share memory, so that the results of a replay are
    valid up to the next one.

    captured  by shape; None of a shape that occurred once
    """

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":  # one stream, since each has matrix products' workspace of its own
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)
        self.captured: dict[PassShape, Graph | None] = {}
        self._results: list[Tensor] = []

    def expect(self, hidden: Tensor, logits: Tensor) -> None:
        """Makes room for the results of a pass like this one."""
        kept = self._results or [hidden.new_empty(0, hidden.shape[2]), logits.new_empty(0, logits.shape[2])]
        tokens = hidden.shape[0] * hidden.shape[1]
        if tokens > len(kept[0]):
            with torch.inference_mode(False):
                kept = [one.new_empty(1 << (tokens - 1).bit_length(), one.shape[1]) for one in kept]
        self._results = kept

    def results(self, shape: PassShape) -> list[Tensor]:
        """Hidden states and logits, [R, L, ..] each."""
        tokens = shape.rows * shape.width
        return [one[:tokens].unflatten(0, (shape.rows, shape.width)) for one in self._results]

    def keep(self, shape: PassShape, graph: Graph | None) -> None:
        self.captured.pop(shape, None)
        self.captured[shape] = graph
        while len(self.captured) > GRAPHS:
            self.captured.pop(next(iter(self.captured)))


class _Model(Target, Protocol):
    """A target of a model of transformers, of which caches have these `planes` (`SlotStorage`)."""

    @property
    def model(self) -> Any: ...

    @property
    def planes(self) -> Mapping[Form, int]: ...


class FixedPasses:
    """Passes over the drafts of a target, and the storages of its caches, which outlive a call with their graphs.

    sizes    numbers of nodes that passes have
    grain    of the caches
    capture  whether a pass is captured when its shape occurs for the second time; the first one finds out what it needs
    eager    why passes are not captured any more; None: they are
    """

    sizes = NODES

    def __init__(self, target: _Model, *, grain: int = GRAIN, capture: bool = True):
        self._target = weakref.ref(target)
        self.grain, self.capture = grain, capture
        self.eager: str | None = None
        self._idle: list[SlotStorage] = []
        self._state: tuple[Any, ...] = ()
        self._lock = RLock()  # the collector may end a cache, and so return a storage, while this thread holds it

    def of(self, target: _Model) -> FixedPasses:
        """Such passes of another target."""
        return FixedPasses(target, grain=self.grain, capture=self.capture)

    @property
    def target(self) -> _Model:
        target = self._target()
        assert target is not None, "a target outlives its passes"
        return target

    def rows(self, rows: int) -> int:
        return 1 << (rows - 1).bit_length()

    def nodes(self, nodes: int) -> int:
        return next((one for one in NODES if one >= nodes), -(-nodes // NODES[-1]) * NODES[-1])

    def open(self, rows: int, slots: int) -> SlotCache:
        """A cache, in a storage that it has to itself as long as it is referred to."""
        storage = self._storage(self.rows(rows), slots + NODES[-1])
        cache = SlotCache(rows, slots, storage=storage, grain=self.grain)
        weakref.finalize(cache, self._return, cache.storage, self._state).atexit = False
        return cache

    def _storage(self, rows: int, slots: int) -> SlotStorage:
        model = self.target.model
        weights = tuple(one.data_ptr() for part in (model.parameters(), model.buffers()) for one in part)
        state = weights, state_of(model)
        with self._lock:
            if state != self._state:  # graphs read weights where they were, and repeat what modules then decided
                self._idle, self._state = [], state
            found = next((one for one in self._idle if one.rows >= rows and one.slots >= slots), None)
            self._idle = [one for one in self._idle if one is not found][: IDLE - 1]
        if found is None:
            length = length_of(max(slots, 2 * self.grain), self.grain)
            return SlotStorage(rows, length, self.target.planes, lasting=True)
        found.clear()
        return found

    def release(self) -> None:
        """Frees the storages that no call uses, with their graphs."""
        with self._lock:
            self._idle = []

    def _return(self, storage: SlotStorage, state: tuple[Any, ...]) -> None:
        with self._lock:
            if state is self._state:
                self._idle = [storage, *self._idle][:IDLE]

    def read(self, block: Block, cache: SlotCache, top: int = 0, draw: Draw | None = None) -> PassResult:
        """As in `FixedShapes`, with a cache from `open`."""
        rows, width = self.rows(block.rows), 1 + self.nodes(block.width - 1)
        end = cache.length(int(block.start.max()) + width)
        cache.reserve(end)
        shape = PassShape(rows, width, end, min(top, self.target.vocab_size), draw.tokens if draw else None)
        inputs = shape.pack(block, cache.moves(shape.moves), draw.uniform if draw else None, cache.shift)
        (hidden, logits, found), usual = self._results(shape, cache.storage, inputs)
        every = found.numpy()[: block.rows]
        if every[..., 0].min() < 0:
            for row, column in np.argwhere(every[..., 0] == -1).tolist():
                cache.storage.wipe(row, int(block.start[row]) + column)
        chosen, ids, p = np.split(every[:, : block.width], [1, 1 + shape.top], axis=-1)
        return PassResult(
            hidden=hidden[: block.rows, : block.width],
            logits=logits[: block.rows, : block.width],
            chosen=chosen[..., 0].astype(np.int64),
            top=(np.ascontiguousarray(ids), np.ascontiguousarray(p).view(np.float32)),
            usual=usual,
        )

    def _results(self, shape: PassShape, storage: SlotStorage, inputs: NDArray[np.int64]) -> tuple[Results, bool]:
        """What a pass finds, and whether it took the usual time."""

        def compute(inputs: Tensor) -> Results:
            return self.compute(shape, storage, inputs)

        if not self.capture or self.eager:
            return self._eagerly(compute, inputs), True
        graphs = storage.graphs = storage.graphs or _Graphs(self.target.device)
        graph, usual = graphs.captured.get(shape), True
        if graph is None:
            usual = False
            if shape not in graphs.captured:
                results = self._eagerly(compute, inputs)
                graphs.expect(*results[:2])
                graphs.keep(shape, None)
                return results, usual
            graph = self._captured(graphs, shape, compute)
            if graph is None:
                return self._eagerly(compute, inputs), usual
        graphs.keep(shape, graph)
        return graph.replay(inputs), usual

    def _captured(self, graphs: _Graphs, shape: PassShape, compute: Compute) -> Graph | None:
        try:
            return Graph(graphs, shape, compute)
        except Exception as error:  # whatever a model's code raises while nothing can be read
            self.eager = f"capturing failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            warnings.warn(
                f"passes of {type(self.target.model).__name__} are read eagerly, since {self.eager}", stacklevel=2
            )
            return None

    def _eagerly(self, compute: Compute, inputs: NDArray[np.int64]) -> Results:
        hidden, logits, found = compute(torch.from_numpy(inputs).to(self.target.device))
        return hidden, logits, found.cpu()

    def compute(self, shape: PassShape, storage: SlotStorage, inputs: Tensor) -> Results:
        """Moves the last pass's accepted nodes, and reads a block. Nothing is read on the host.

        Returns hidden states [R, L, width], logits [R, L, V], and int32 [R, L, 1 + 2 top]: the target's own token or
        -1 or -2, the most probable ones, and the bits of their probabilities.
        """
        block, shift, moves, uniform = shape.unpack(inputs)
        storage.move(*moves)
        cache = SlotCache(shape.rows, shape.end, storage=storage)
        cache.shift = shift
        with sdpa_kernel([*BACKENDS]):
            hidden = self.target.read(block, cache)
        logits = self.target.logits(hidden)
        if shape.draw:
            found = [shape.draw(logits, uniform)[..., None].int()]
        else:
            best = logits.argmax(dim=-1, keepdim=True)
            found = [torch.where(logits.gather(-1, best).isfinite(), best, -1).int()]
        if shape.top:
            ids, logp = top_on_device(logits, shape.top)
            found += [ids, logp.exp().clamp(max=1).view(torch.int32)]
        return hidden, logits, torch.cat(found, dim=-1)


def why_eager(decoder: Any, model: Any) -> str | None:
    """Why passes of a model run as they are; None if nothing is known that a graph would miss or could not hold."""
    quantized = getattr(model.config, "quantization_config", None)
    if quantized is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized.quant_method
        return f"its weights are quantised ({getattr(method, 'value', method)})"
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return "hooks on all modules are run at every pass"
    for module in (*decoder.modules(), model.get_output_embeddings()):
        if module._forward_hooks or module._forward_pre_hooks:
            return f"a hook on {type(module).__name__} is run at every pass"
        if "forward" in vars(module):
            return f"{type(module).__name__} has a forward of its own (torch.compile, accelerate)"
    return None
