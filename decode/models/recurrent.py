"""Models with recurrent state (linear attention, state spaces, short convolutions) as targets.

No such state can be rolled back, so it is kept, and accepted tokens are read again:

    kept: the state after the text's first s tokens; keys and values of all of it
    pass: text[s:] and the draft, from a copy of the state
    all accepted: the copy is kept, s moves on.  Else: the next pass reads text[s:] again, in front of its own draft

A rejected draft costs some tokens in the next pass, never another pass. Layers that are convolutions alone record the
inputs of a pass, so the state after any of its tokens can be cut from them, and nothing is read again.

Padding within a continued text would enter the state, so all rows of a pass read equally many tokens: those that a row
lacks are filled with tokens that are never accepted.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.causal_lm import FULL, SLIDING, CausalLMTarget
from rescore.decode.models.decoder_layers import with_attributes
from rescore.decode.models.model_check import check_logits, is_recurrent
from rescore.decode.models.slot_cache import DynamicCache, SlotCache, SlotLayers
from rescore.decode.models.target import Block
from rescore.lattice.extras import needed_for

with needed_for("a model of Hugging Face"):
    from transformers.cache_utils import (
        DynamicLayer,
        DynamicSlidingWindowLayer,
        LinearAttentionCacheLayerMixin,
        LinearAttentionLayer,
    )

_AFTER_STATES = (
    "when several tokens are read after a kept state",
    "in such a pass the family ignores the state, or changes it otherwise than token by token; "
    "decode it without drafts, with model.generate",
)
LONGEST = 32  # tokens that a pass reads again; a longer tail is read once more, by itself, and its state kept

CHUNK, SHORT = 16, 64  # tokens of a chunk in passes of at most so many tokens

Layers = dict[int, LinearAttentionLayer]
"""The layers of a cache that have states [rows, ..], by their places in the model."""


def causal_target(model: Any) -> CausalLMTarget:
    """A causal language model of transformers as a target. ValueError for families that cannot be drafted for."""
    return RecurrentTarget(model) if is_recurrent(model.config) else CausalLMTarget(model)


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """What the last pass read: `width` tokens in each row, of which ids[row] are the block's, and its layers."""

    width: int
    ids: list[list[int]]
    layers: Layers


class KeptStates(SlotCache):
    """Keys and values of the tokens read so far, and for each row the recurrent state after its first tokens.

    seen    tokens that the row's state has read
    tails   ids of the text's tokens after these that have been read before
    layers  the states
    """

    def __init__(self, rows: int, slots: int, layers: Layers):
        super().__init__(rows, slots)
        self.seen = [0] * rows
        self.tails: list[list[int]] = [[] for _ in range(rows)]
        self.layers = layers
        self.places: dict[int, int] = {}  # of the layers with keys and values, among these
        self.unread = True  # whether no pass has read anything
        self._spare: Layers | None = None  # states that the next copy overwrites
        self._pass: _Pass | None = None

    @property
    def recordable(self) -> bool:
        """Whether the state after any token of a pass can be had: where it is a convolution's alone."""
        return all(layer.is_croppable for layer in self.layers.values())

    @property
    def tail(self) -> int | None:  # type: ignore[override]
        return None if self.recordable else max(map(len, self.tails))

    def check(self, starts: list[int]) -> None:
        """ValueError unless each row is read on from where it ends."""
        if starts != self.ends():
            raise ValueError(
                f"expected a block that begins after {self.ends()} tokens, got {starts}: a recurrent state cannot "
                "be rolled back; as a small model, take one with attention alone"
            )

    def ends(self) -> list[int]:
        """How many tokens of each row's text were read."""
        return [seen + len(tail) for seen, tail in zip(self.seen, self.tails)]

    def start_from(self, layers: Mapping[int, LinearAttentionCacheLayerMixin], seen: Sequence[int]) -> None:
        """Begins after `seen` tokens of each row, whose states are those of a cache's `layers`; copies them."""
        for place, layer in layers.items():
            put_state(self.layers[place], layer)
        self.layers, self.seen, self.held = _mapped(self.layers, torch.clone), list(seen), list(seen)

    def begin_plain(self, ids: list[list[int]]) -> Layers:
        """The states for a pass that reads tails and `ids`, all of them part of the texts."""
        self._pass = _Pass(len(self.tails[0]) + len(ids[0]), ids, self.layers)
        return self.layers

    def begin_drafted(self, width: int, ids: list[list[int]]) -> Layers:
        """The states for a pass of `width` tokens a row, of which some may be rejected: copies or, where that is
        possible, the kept ones, which the pass does not change but extends.
        """
        layers = self._recording() if self.recordable else self._copied()
        self._pass = _Pass(width, ids, layers)
        return layers

    def _recording(self) -> Layers:
        layers = _mapped(self.layers, lambda state: state)
        for layer in layers.values():
            layer.record_past = True
        return layers

    def _copied(self) -> Layers:
        if self._spare is None:
            self._spare = _mapped(self.layers, torch.clone)
            return self._spare
        for spare, kept in zip(_states(self._spare), _states(self.layers)):
            spare.copy_(kept)
        return self._spare

    def keep(self, starts: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Keeps the accepted columns of the last block: the first len(paths[row]) ones."""
        self._take(range(self.rows), [len(path) for path in paths])

    def copy(self, sources: Sequence[int] | Tensor, starts: Sequence[int], stops: Sequence[int]) -> None:
        """As in `SlotCache`: keeps stops[row] - starts[row] columns of row sources[row] for each `row`."""
        super().copy(sources, starts, stops)
        self._take([int(source) for source in sources], [stop - start for start, stop in zip(starts, stops)])

    def put(self, rows: Sequence[int], other: SlotCache) -> None:
        assert isinstance(other, KeptStates)
        super().put(rows, other)
        self.advance(rows, other.layers, 0)
        for row, seen in zip(rows, other.seen):
            self.seen[row], self.tails[row] = seen, []

    def select(self, rows: Sequence[int]) -> None:
        super().select(rows)
        self.layers, self._spare = self.of_rows(rows), None
        self.seen, self.tails = [self.seen[row] for row in rows], [self.tails[row] for row in rows]

    def row(self, row: int) -> KeptStates:
        made = super().row(row)
        assert isinstance(made, KeptStates)
        made.layers, made._spare, made._pass = self.of_rows([row]), None, None
        made.seen, made.tails = [self.seen[row]], [self.tails[row]]
        return made

    def of_rows(self, rows: Sequence[int]) -> Layers:
        """A copy of some rows' states."""
        index = torch.tensor(rows)
        return _mapped(self.layers, lambda state: state[index.to(state.device)])

    def advance(self, rows: Sequence[int], layers: Layers, length: int, sources: Sequence[int] | None = None) -> None:
        """Keeps states of a pass for `rows`, which have read `length` tokens more. sources: theirs; None: in order."""
        sources = range(len(rows)) if sources is None else sources
        if list(rows) == list(sources) == list(range(self.rows)):
            self.layers, self._spare = layers, self.layers if any(self.seen) else None
        else:
            if not any(self.seen):
                self.layers = _mapped(layers, lambda state: state.new_zeros(self.rows, *state.shape[1:]))
            to, of = torch.tensor(rows), torch.tensor(sources)
            for kept, new in zip(_states(self.layers), _states(layers)):
                kept[to.to(kept.device)] = new[of.to(new.device)]
        for row in rows:
            self.seen[row] += length

    def _take(self, sources: Sequence[int], taken: Sequence[int]) -> None:
        last, self._pass = self._pass, None
        assert last is not None, "a block was read"
        if any(layer.record_past for layer in last.layers.values()):
            self._cut(last.layers, sources, taken)
            self.seen = [seen + many for seen, many in zip(self.seen, taken)]
            return
        tails = [self.tails[source] + last.ids[source][:many] for source, many in zip(sources, taken)]
        whole = [row for row, tail in enumerate(tails) if len(tail) == last.width]
        if last.layers is self.layers:
            self.seen = [seen + last.width for seen in self.seen]
        elif whole:
            self.advance(whole, last.layers, last.width, [sources[row] for row in whole])
        self.tails = [[] if len(tail) == last.width else tail for tail in tails]

    def _cut(self, recorded: Layers, sources: Sequence[int], taken: Sequence[int]) -> None:
        """Keeps the inputs that convolutions need after the accepted tokens."""
        for place, layer in self.layers.items():
            for number, inputs in recorded[place].conv_states.items():
                kept = layer.conv_states[number]
                if inputs is not None and kept is not None:
                    size, device = kept.shape[-1], inputs.device
                    window = torch.tensor(taken, device=device)[:, None] + torch.arange(size, device=device)
                    at = window.view(-1, *[1] * (inputs.dim() - 2), size).expand(-1, *inputs.shape[1:-1], -1)
                    layer.conv_states[number] = inputs[torch.tensor(sources, device=device)].gather(-1, at)


class _HybridLayers(SlotLayers):
    """The cache of one pass: keys and values by slots, and the layers with states."""

    def __init__(self, cache: KeptStates, layers: Layers, start: int, count: int):
        super().__init__(cache, start)
        self.layers = [layers.get(place) or DynamicLayer() for place in range(count)]  # those without states stay empty
        self._places = cache.places

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        place = self._places.setdefault(layer_idx, len(self._places))
        return super().update(key_states, value_states, place)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Of masks that some families make although no layer attends."""
        return self._start + query_length, 0


class RecurrentTarget(CausalLMTarget):
    """A causal language model of transformers with recurrent layers as a `Target`. It reads chains.

    When it is made, a self-test reads chains after a kept state and after one that was kept while a draft was rejected.
    A family whose pass over several tokens ignores the state, or that keeps it outside the cache, is refused.
    """

    trees = False
    eager = "its layers keep a recurrent state"
    _in_short_chunks: tuple[Any, Any] | None = None  # a decoder, and the same in short chunks

    def _decoder_for(self, block: Block) -> Any:
        """On a CPU, a pass is padded to whole chunks of the 64 to 256 tokens that suit prompts."""
        decoder = super()._decoder_for(block)
        if block.width > SHORT or self.device.type != "cpu":
            return decoder
        if self._in_short_chunks is None or self._in_short_chunks[0] is not decoder:
            self._in_short_chunks = decoder, in_chunks(decoder, CHUNK)
        return self._in_short_chunks[1]

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[KeptStates, list[NDArray[np.int64]]]:
        self.narrow()
        return KeptStates(len(prompts) * copies, length + LONGEST, self._new_layers()), list(prompts)

    def read(self, block: Block, cache: SlotCache) -> Tensor:
        if not isinstance(cache, KeptStates):
            raise TypeError(f"expected the cache from open(), got {type(cache).__name__}")
        texts = _texts_of(block)
        cache.check(block.start.tolist())
        if cache.unread:
            return self._read_prompts(texts, block.width, cache)
        plain = block.width == 1
        self._shorten(cache, plain)
        rows = [tail + text for tail, text in zip(cache.tails, texts)]
        width = max(map(len, rows))
        ids = torch.tensor([row + row[-1:] * (width - len(row)) for row in rows], device=self.device)
        layers = cache.begin_plain(texts) if plain else cache.begin_drafted(width, texts)
        states = self._chains(ids, cache, layers)
        row = torch.arange(len(rows), device=self.device)[:, None]
        first = torch.tensor([[len(tail)] for tail in cache.tails], device=self.device)
        return states[row, (first + torch.arange(block.width, device=self.device)).clamp(max=width - 1)]

    def _read_prompts(self, texts: list[list[int]], width: int, cache: KeptStates) -> Tensor:
        found, cache.unread = self._read_whole(dict(enumerate(texts)), cache), False
        if not all(any(True for _ in _states({0: layer})) for layer in cache.layers.values()):
            raise ValueError("expected the states of all recurrent layers in the cache, got none")
        padded = [torch.nn.functional.pad(found[row], (0, 0, 0, width - len(text))) for row, text in enumerate(texts)]
        return torch.stack(padded)

    def _shorten(self, cache: KeptStates, plain: bool) -> None:
        """Reads long tails by themselves, and those of different lengths before a plain pass, in which every row would
        otherwise wait for the others.
        """
        longest = max(map(len, cache.tails))
        if longest > LONGEST or (plain and min(map(len, cache.tails)) < longest):
            self.catch_up(cache)

    def catch_up(self, cache: KeptStates) -> None:
        """Reads the tails, so that the states are those of the whole texts."""
        self._read_whole({row: tail for row, tail in enumerate(cache.tails) if tail}, cache)
        cache.tails = [[] for _ in cache.tails]

    def _read_whole(self, texts: Mapping[int, list[int]], cache: KeptStates) -> dict[int, Tensor]:
        """Reads tokens that are part of the rows' texts; returns each row's hidden states [m, width]. Rows of one
        length are read together, so that nothing is padded.
        """
        found: dict[int, Tensor] = {}
        for length, begun in sorted({(len(text), cache.seen[row] > 0) for row, text in texts.items()}):
            rows = [row for row, text in texts.items() if (len(text), cache.seen[row] > 0) == (length, begun)]
            layers = cache.of_rows(rows) if begun else self._new_layers()
            ids = torch.tensor([texts[row] for row in rows], device=self.device)
            found.update(zip(rows, self._chains(ids, cache, layers, rows)))
            cache.advance(rows, layers, length)
        return found

    def _chains(self, ids: Tensor, cache: KeptStates, layers: Layers, rows: Sequence[int] | None = None) -> Tensor:
        """Hidden states of tokens [R, W] after those that the states of `rows` (None: all) have seen."""
        seen = cache.seen if rows is None else [cache.seen[row] for row in rows]
        block = Block.chain(ids, torch.tensor(seen, device=self.device), max(seen) + ids.shape[1])
        index = None if rows is None or len(rows) == cache.rows else torch.tensor(rows, device=self.device)
        hybrid = _HybridLayers(cache, layers, max(seen), self.config.num_hidden_layers)
        return self._pass(block, cache, hybrid, rows=index)

    def masks(self, block: Block) -> Any:
        if not self._kinds:
            return None
        masks = super().masks(block)
        return {**dict.fromkeys(self.config.layer_types), **masks} if isinstance(masks, dict) else masks

    def _attention_kinds(self) -> tuple[str, ...]:
        layers = [layer for layer in DynamicCache(config=self.config).layers if isinstance(layer, DynamicLayer)]
        return tuple(sorted({SLIDING if isinstance(layer, DynamicSlidingWindowLayer) else FULL for layer in layers}))

    def _new_layers(self) -> Layers:
        return {
            place: LinearAttentionLayer(number_of_states=layer.number_of_states)
            for place, layer in enumerate(DynamicCache(config=self.config).layers)
            if isinstance(layer, LinearAttentionCacheLayerMixin)
        }

    def _check(self, got: Tensor, expected: Tensor) -> None:
        super()._check(got[:2], expected[:2])
        check_logits(self.model, got, expected, _AFTER_STATES)

    def _probe(self) -> tuple[Tensor, Tensor]:
        """Logits [10, V] of two rows: of a token each; of a draft that is rejected and one that is accepted; of what
        follows them. And the model's own.
        """
        text = torch.arange(9) * 7 % self.vocab_size
        expected = self.model(input_ids=text[None].to(self.device), use_cache=False).logits[0]
        own = text.tolist()
        cache, prompts = self.open([text[:4].numpy(), text[:3].numpy()], 1, 16)
        self.read(Block.of_texts(prompts, [0, 0], self.device), cache)

        def logits(starts: list[int], tokens: list[list[int]], accepted: list[int]) -> Tensor:
            block = Block.of_texts([np.array(row) for row in tokens], starts, self.device)
            found = self.logits(self.read(block, cache))
            cache.keep(starts, [range(many) for many in accepted])
            return found

        one = logits([4, 3], [own[4:5], own[3:4]], [1, 1])
        drafted = logits([5, 4], [[own[5], own[3], own[3]], own[4:7]], [1, 3])
        later = logits([6, 7], [own[6:8], own[7:9]], [2, 2])
        got = torch.cat((one.flatten(0, 1), drafted[0, :1], drafted[1], later.flatten(0, 1)))
        return got, expected[[4, 3, 5, 4, 5, 6, 6, 7, 7, 8]]


def in_chunks(decoder: Any, size: int) -> Any:
    """The decoder with recurrent layers that compute in chunks of at most `size` tokens."""
    functions = (one for one in vars(inspect.getmodule(type(decoder))).values() if inspect.isfunction(one))
    sizes = (inspect.signature(one).parameters.get("chunk_size") for one in functions)
    if any(one is not None and one.default is not one.empty for one in sizes):  # linear attention: its keyword
        return partial(decoder, chunk_size=size)
    return with_chunks(decoder, size)


def with_chunks(module: Any, size: int) -> Any:
    """The module with state-space layers that compute in chunks of at most `size` tokens; the module itself if it has
    none. The sums are the same, in another order.
    """

    def shorter(part: Any) -> dict[str, int]:
        return {"chunk_size": size} if "A_log" in part._parameters and getattr(part, "chunk_size", 0) > size else {}

    try:
        return with_attributes(module, shorter)
    except ValueError:  # a part is bound to the module as it is
        return module


def put_state(layer: LinearAttentionCacheLayerMixin, other: LinearAttentionCacheLayerMixin) -> None:
    """Gives a layer of any kind the states of another, which they share."""
    for name in vars(LinearAttentionLayer()):
        value = getattr(other, name)
        setattr(layer, name, dict(value) if isinstance(value, dict) else value)


def join_rows(parts: Sequence[Layers]) -> Layers:
    """The states of several caches, one row after another."""
    made = _mapped(parts[0], torch.clone)
    for place, layer in made.items():
        for of in ("conv_states", "recurrent_states"):
            states = [getattr(part[place], of) for part in parts]
            for at, first in states[0].items():
                if first is not None:
                    getattr(layer, of)[at] = torch.cat([state[at] for state in states])
    return made


def _states(layers: Layers) -> Iterator[Tensor]:
    """All states, in an order that is the same for layers of one model."""
    for layer in layers.values():
        for states in (layer.conv_states, layer.recurrent_states):
            yield from (state for state in states.values() if state is not None)


def _mapped(layers: Layers, of: Callable[[Tensor], Tensor]) -> Layers:
    """Layers with the states of(state), and all else alike."""
    return {place: _mapped_layer(layer, of) for place, layer in layers.items()}


def _mapped_layer(layer: LinearAttentionLayer, of: Callable[[Tensor], Tensor]) -> LinearAttentionLayer:
    made = copy.copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, dict):
            setattr(made, name, dict(value))
    for states in (made.conv_states, made.recurrent_states):
        states.update({number: of(state) for number, state in states.items() if state is not None})
    return made


def _texts_of(block: Block) -> list[list[int]]:
    """The tokens of each row, without padding. ValueError for trees."""
    if block.ancestors is not None:
        raise ValueError("expected chains, got a tree, which recurrent layers cannot read; draft one chain per request")
    ids, depths = block.ids.cpu().numpy(), block.depths.cpu().numpy()
    lengths = (depths == np.arange(block.width)).sum(axis=1).tolist()
    return [row[:length].tolist() for row, length in zip(ids, lengths)]
