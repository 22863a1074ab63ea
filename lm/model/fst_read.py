"""Reads acceptors from OpenFst files into arrays; every count and state is checked before it is used.

OpenFst itself aborts the process if a damaged header makes it allocate too much memory.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lm.model.gram_rows import tables_of_rows
from rescore.lm.model.grams import MAX_ORDER, TOKEN_BITS, pack
from rescore.lm.model.tables import MAX_COST, NEVER, ROUNDING, Tables

MAGIC = struct.pack("<i", 2125659606)
HEADER = "<iiQqqq"  # after the names of the FST and arc types: version, flags, properties, start, states, arcs
VECTOR, CONST, CONST_ALIGNED = 2, 2, 1  # versions

# fst/properties.h
EXPANDED, MUTABLE, ACCEPTOR = 0x1, 0x2, 0x10000
EPSILONS, NO_EPSILONS = 0x5400000, 0xA800000  # on both sides, on the input side, on the output side
SORTED, NOT_SORTED = 0x50000000, 0xA0000000  # by input and by output labels
WEIGHTED, UNWEIGHTED, NOT_TOP_SORTED = 0x100000000, 0x200000000, 0x8000000000

ARC = np.dtype([("input", "<i4"), ("output", "<i4"), ("cost", "<f4"), ("next", "<i4")])
CONST_STATE = np.dtype(
    [("final", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("input_epsilons", "<u4"), ("output_epsilons", "<u4")]
)
WORD = np.dtype("<i4")  # a vector FST is a whole number of words after its header
STATE_WORDS, ARC_WORDS = 3, 4
VERSIONS = {"vector": (VECTOR,), "const": (CONST, CONST_ALIGNED)}
ARC_TYPES = ("standard", "log")  # whose weight is a float32 cost
INPUT_SYMBOLS, OUTPUT_SYMBOLS, ALIGNED = 1, 2, 4  # flags
SYMBOLS = 2125658996  # magic number of a symbol table
BOUNDARY = 16  # bytes of alignment


def outside(length: int, begin: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    """A mask [length] that is false for the `size` entries from each `begin` on."""
    mask = np.ones(length, bool)
    for place in range(size):
        mask[begin + place] = False
    return mask


class FstArcs(NamedTuple):
    """An acceptor of S states and A arcs.

    start    its start state, in [0, S)
    first    int64 [S + 1], the arcs of state s are first[s] .. first[s + 1] - 1
    arcs     ARC [A]: equal labels of input and output, `next` in [0, S), costs neither NaN nor -inf
    final    float32 [S], final costs, +inf if a state is not final
    symbols  of its input labels; None if the file has none
    """

    start: int
    first: NDArray[np.int64]
    arcs: NDArray[Any]
    final: NDArray[np.float32]
    symbols: dict[int, str] | None = None


def read(data: NDArray[np.uint8]) -> FstArcs:
    """The acceptor in the bytes of a file.

    ValueError unless the file is one complete vector or const FST of standard or log arcs.
    """
    if data[: len(MAGIC)].tobytes() != MAGIC:
        raise ValueError(f"expected an OpenFst file, which begins with {MAGIC!r}, got {data[: len(MAGIC)].tobytes()!r}")
    cursor = _Cursor(data, len(MAGIC))
    kind, arc_type = cursor.text("the type of the FST"), cursor.text("the type of its arcs")
    if kind not in VERSIONS or arc_type not in ARC_TYPES:
        raise ValueError(
            f"expected a vector or const FST of standard arcs, got {kind[:40]!r} of {arc_type[:40]!r}; convert it with "
            "fstconvert --fst_type=vector or fstmap --map_type=to_standard"
        )
    version, flags, _, start, states, arcs = cursor.take(HEADER, "a header")
    if version not in VERSIONS[kind]:
        raise ValueError(f"expected a {kind} FST of version {VERSIONS[kind][0]}, got {version}")
    symbols, _ = (cursor.symbols() if flags & flag else None for flag in (INPUT_SYMBOLS, OUTPUT_SYMBOLS))
    if kind == "vector":
        parts = _read_vector(data[cursor.at :], states)
    else:
        parts = _read_const(cursor, states, arcs, bool(flags & ALIGNED) or version == CONST_ALIGNED)
    found = FstArcs(start, *parts, symbols)
    _check(found)
    return found


class _Cursor:
    """A position in a file."""

    def __init__(self, data: NDArray[np.uint8], at: int) -> None:
        self.data, self.at = data, at

    def bytes(self, size: int, what: str) -> NDArray[np.uint8]:
        """The next bytes."""
        left = len(self.data) - self.at
        if not 0 <= size <= left:
            raise ValueError(
                f"byte {self.at}: expected {what} of {size} bytes, got {left} to the end; it is truncated or damaged"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def take(self, numbers: str, what: str) -> tuple[Any, ...]:
        return struct.unpack(numbers, self.bytes(struct.calcsize(numbers), what).tobytes())

    def text(self, what: str) -> str:
        (size,) = self.take("<i", what)
        return self.bytes(size, what).tobytes().decode("utf-8", "backslashreplace")

    def symbols(self) -> dict[int, str]:
        """symbol-table.h: magic, name, next free label, number of symbols; each symbol with its label."""
        at, (magic,) = self.at, self.take("<i", "a symbol table")
        if magic != SYMBOLS:
            raise ValueError(f"byte {at}: expected a symbol table, which begins with {SYMBOLS}, got {magic}")
        self.text("the name of a symbol table")
        _, size = self.take("<qq", "a symbol table")
        found = {}
        for _ in range(size):
            symbol = self.text("a symbol")
            (label,) = self.take("<q", "the label of a symbol")
            found[label] = symbol
        return found


Parts = tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32]]


def _read_vector(body: NDArray[np.uint8], states: int) -> Parts:
    """`first`, `arcs` and `final` of a vector FST. states: -1 if the header does not give their number."""
    if len(body) % WORD.itemsize or not -1 <= states <= len(body) // (STATE_WORDS * WORD.itemsize):
        raise ValueError(
            f"header: expected {states} states within the {len(body)} bytes to the end; it is truncated or damaged"
        )
    words = body.view(WORD)
    heads = np.fromiter(_heads(words, states), np.int64, states)
    first = np.zeros(len(heads) + 1, np.int64)
    np.cumsum(words[heads + 1], out=first[1:])
    if left := len(words) - STATE_WORDS * len(heads) - ARC_WORDS * int(first[-1]):
        raise ValueError(f"expected the file to end after {len(heads)} states, got {WORD.itemsize * left} more bytes")
    return first, words[outside(len(words), heads, STATE_WORDS)].view(ARC), words[heads].view(np.float32)


def _heads(words: NDArray[np.int32], states: int) -> Iterator[int]:
    """Yields where each state begins; the number of its arcs gives where the next one does."""
    view, at, end = words.view(np.uint8).data.cast("i"), 0, len(words)
    for state in itertools.count() if states < 0 else range(states):
        if at == end and states < 0:
            return
        if at + STATE_WORDS > end:
            raise ValueError(f"state {state}: the file ends before it; it is truncated or damaged")
        low, high = view[at + 1], view[at + 2]
        room = (end - at - STATE_WORDS) // ARC_WORDS
        if high or not 0 <= low <= room:
            raise ValueError(
                f"state {state}: expected at most the {room} arcs that the file has room for, got "
                f"{(high << 32) + low % 2**32}; it is truncated or damaged"
            )
        yield at
        at += STATE_WORDS + ARC_WORDS * low


def _read_const(cursor: _Cursor, states: int, arcs: int, aligned: bool) -> Parts:
    """`first`, `arcs` (a view of the file) and `final` of a const FST."""
    if aligned:
        cursor.bytes(-cursor.at % BOUNDARY, "padding")
    table = cursor.bytes(states * CONST_STATE.itemsize, f"{states} states").view(CONST_STATE)
    if aligned:
        cursor.bytes(-cursor.at % BOUNDARY, "padding")
    entries = cursor.bytes(arcs * ARC.itemsize, f"{arcs} arcs").view(ARC)
    if left := len(cursor.data) - cursor.at:
        raise ValueError(f"expected the file to end after {arcs} arcs, got {left} more bytes")
    first = np.zeros(states + 1, np.int64)
    np.cumsum(table["arcs"], out=first[1:])
    wrong = np.append(table["first"], arcs) != first
    if wrong.any():
        state = int(wrong.argmax())
        raise ValueError(f"state {state}: expected its arcs from number {first[state]} on; the file is damaged")
    return first, entries, np.ascontiguousarray(table["final"])


def _check(found: FstArcs) -> None:
    arcs, states = found.arcs, len(found.final)
    if not states:
        raise ValueError("expected an automaton with a start state, got one without states")
    if not 0 <= found.start < states:
        raise ValueError(f"expected a start state below {states}, got {found.start}")
    refuse_arcs(found, arcs["input"] != arcs["output"], "an acceptor, got labels {input}:{output}")
    refuse_arcs(found, (arcs["next"] < 0) | (arcs["next"] >= states), f"a next state below {states}, got {{next}}")
    refuse_arcs(found, ~(arcs["cost"] > -np.inf), "a cost, got {cost}")
    if (wrong := ~(found.final > -np.inf)).any():
        state = int(wrong.argmax())
        raise ValueError(f"state {state}: expected a final cost, got {found.final[state]}")


def refuse_arcs(found: FstArcs, wrong: NDArray[np.bool_], expected: str) -> None:
    """ValueError that names the first wrong arc and its state; {input}, {output}, {cost} and {next} are the arc's."""
    if wrong.any():
        number = int(wrong.argmax())
        state = int(np.searchsorted(found.first, number, "right")) - 1
        arc = dict(zip(ARC.names or (), found.arcs[number].tolist()))
        raise ValueError(f"state {state}, arc {number - found.first[state]}: expected {expected.format(**arc)}")


Contexts = list[tuple[NDArray[np.int64], NDArray[np.uint32]]]


class Events(NamedTuple):
    """The A token arcs of an acceptor with S states over V tokens, and its failure arcs.

    source   uint32 [A], ascending
    token    uint32 [A]
    cost     float32 [A], at least 0 but for rounding
    next     uint32 [A]
    root     the state without a failure arc
    shorter  uint32 [S], where the failure arcs lead; the root for itself
    backoff  float32 [S], costs of the failure arcs; 0 for the root
    final    float32 [S]
    """

    source: NDArray[np.uint32]
    token: NDArray[np.uint32]
    cost: NDArray[np.float32]
    next: NDArray[np.uint32]
    root: int
    shorter: NDArray[np.uint32]
    backoff: NDArray[np.float32]
    final: NDArray[np.float32]


def events_of(fst: FstArcs, vocab_size: int, failure_label: int) -> Events:
    """Separates token arcs from failure arcs. ValueError for other labels, for costs that no model has, and unless one
    state has no failure arc.
    """
    states, label, cost = len(fst.final), fst.arcs["input"], fst.arcs["cost"]
    source = np.repeat(np.arange(states, dtype=np.uint32), np.diff(fst.first))
    is_event = label != failure_label
    other = is_event & ((label < 1) | (label > vocab_size))
    refuse_arcs(fst, other, f"a label in 1..{vocab_size} (token id + 1), got {{input}}")
    refuse_arcs(fst, np.abs(cost) > MAX_COST, f"a cost of at most {MAX_COST:.0f}, got {{cost}}")
    refuse_arcs(fst, is_event & (cost < -ROUNDING), "a cost of at least 0, for a probability of at most 1, got {cost}")
    keys = np.sort(pack(source[is_event], label[is_event] - 1))
    if (again := keys[1:] == keys[:-1]).any():
        state, token = divmod(int(keys[:-1][again][0]), 1 << TOKEN_BITS)
        raise ValueError(f"state {state}: expected one arc with label {token + 1}, got two")
    failing = source[~is_event]
    if (twice := failing[1:] == failing[:-1]).any():
        raise ValueError(f"state {failing[twice.argmax()]}: expected one failure arc, got two")
    roots = np.flatnonzero(np.bincount(failing, minlength=states) == 0)
    if len(roots) != 1:
        raise ValueError(f"expected one state without a failure arc, the root, got {len(roots)}: {roots[:5].tolist()}")
    shorter, backoff = np.full(states, roots[0], np.uint32), np.zeros(states, np.float32)
    shorter[failing], backoff[failing] = fst.arcs["next"][~is_event], cost[~is_event]
    return Events(
        source=source[is_event],
        token=label[is_event].astype(np.uint32) - np.uint32(1),
        cost=cost[is_event],
        next=fst.arcs["next"][is_event].astype(np.uint32),
        root=int(roots[0]),
        shorter=shorter,
        backoff=backoff,
        final=fst.final,
    )


def tables_of(
    events: Events,
    start: int,
    *,
    vocab_size: int,
    unseen_cost: float | None = None,
    bos: int | None = None,
    eos: int | None = None,
) -> Tables:
    """The model of the arcs; see `from_fst` for the arguments.

    An arc's n-gram is the context of its state and its token. Its backoff cost is that of the next state's failure arc,
    if that state's context is longer.
    """
    number, length, contexts = _contexts(events, None if bos is None else (start, bos))
    _check_final(events.final, eos)
    _check_suffixes(events, length, None if bos is None else (start, bos))
    rows, costs, paid = [], [], []
    reached = length[events.next]
    for size, (states, tokens) in enumerate(contexts):
        own = np.flatnonzero(length[events.source] == size)
        grams = [_followed(tokens[number[events.source[own]]], events.token[own])]
        cost = [events.cost[own].astype(np.float64)]
        backoff = [np.where(reached[own] > size, events.backoff[events.next[own]], 0).astype(np.float64)]
        if eos is not None:
            ends = np.isfinite(events.final[states])
            grams.append(_followed(tokens[ends], np.full(ends.sum(), eos)))
            cost.append(events.final[states[ends]].astype(np.float64))
            backoff.append(np.zeros(ends.sum()))
        if size == 0 and bos is not None:
            grams.append(np.array([[bos]], np.uint32))
            cost.append(np.array([NEVER]))
            backoff.append(events.backoff[[start]].astype(np.float64))
        rows.append(np.concatenate(grams))
        costs.append(np.concatenate(cost))
        paid.append(np.concatenate(backoff))
    while len(rows) > 1 and not len(rows[-1]) and not paid[-2].any():
        rows.pop(), costs.pop(), paid.pop()
    return tables_of_rows(rows, costs, paid[:-1], vocab_size=vocab_size, unseen_cost=unseen_cost, bos=bos, eos=eos)


def _followed(contexts: NDArray[np.uint32], token: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return np.column_stack([contexts, token]).astype(np.uint32, copy=False)


def _contexts(events: Events, start: tuple[int, int] | None) -> tuple[NDArray[np.uint32], NDArray[np.int8], Contexts]:
    """The context of each state: its number among those of its length, its length; and the contexts of each length.

    The latter are their states, ascending, and tokens uint32 [n, length]. Contexts are found breadth-first from the
    root: one of n tokens is first reached after n arcs.

    start  the state of the context <s>, to which no arc may lead, and the id of <s>
    """
    length, number = np.full(len(events.final), -1, np.int8), np.zeros(len(events.final), np.uint32)
    length[events.root] = 0
    contexts: Contexts = [(np.array([events.root]), np.zeros((1, 0), np.uint32))]
    while len(contexts[-1][0]):
        size, before = len(contexts), contexts[-1][1]
        here = np.flatnonzero((length[events.source] == size - 1) & (length[events.next] < 0))
        states, tokens = (
            events.next[here].astype(np.int64),
            _followed(before[number[events.source[here]]], events.token[here]),
        )
        if size == 1 and start is not None and length[start[0]] < 0:
            states, tokens = np.append(states, start[0]), np.append(tokens, np.array([start[1:]], np.uint32), axis=0)
        order = np.argsort(states, kind="stable")
        states = states[order]
        if (twice := states[1:] == states[:-1]).any():
            raise ValueError(
                f"state {states[twice.argmax()]}: expected one context that leads to it, got two of length {size}"
            )
        if len(states) and size >= MAX_ORDER:
            raise ValueError(f"state {states[0]}: expected contexts of at most {MAX_ORDER - 1} tokens, got {size}")
        length[states], number[states] = size, np.arange(len(states))
        contexts.append((states, tokens[order]))
    if (length < 0).any():
        raise ValueError(
            f"state {int((length < 0).argmax())}: no context leads to it; if it is the start state of <s>, give bos"
        )
    return number, length, contexts[:-1]


def _check_final(final: NDArray[np.float32], eos: int | None) -> None:
    ends = np.isfinite(final)
    wrong = final != 0 if eos is None else ends & ~((final >= -ROUNDING) & (final <= MAX_COST))
    if wrong.any():
        expected = (
            "0, as in a model over fragments; give bos and eos otherwise" if eos is None else f"0..{MAX_COST:.0f}"
        )
        raise ValueError(f"state {wrong.argmax()}: expected a final cost of {expected}, got {final[wrong.argmax()]}")


def _check_suffixes(events: Events, length: NDArray[np.int8], start: tuple[int, int] | None) -> None:
    """ValueError unless every failure arc leads to the longest shorter suffix of its state's context that is a context,
    and every other arc to the longest suffix of the context and its token that is one.
    """
    tree = length[events.next] > length[events.source]
    parent, token, child = events.source[tree], events.token[tree], events.next[tree]
    if start is not None:
        parent, token, child = np.append(parent, events.root), np.append(token, start[1]), np.append(child, start[0])
    keys = pack(parent, token)
    order = np.argsort(keys)
    sorted_keys, sorted_child = np.append(keys[order], np.iinfo(np.uint64).max), child[order]

    def after(state: NDArray[np.uint32], token: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The state of the longest suffix of a state's context and a token; `shorter` is right up to that state."""
        found, left = np.full(len(state), events.root, np.uint32), np.arange(len(state))
        while len(left):
            key = pack(state, token)
            at = np.searchsorted(sorted_keys, key)
            hit = sorted_keys[at] == key
            found[left[hit]] = sorted_child[at[hit]]
            on = ~hit & (state != events.root)
            left, state, token = left[on], events.shorter[state[on]], token[on]
        return found

    for size in range(1, int(length.max()) + 1):
        own = length[child] == size
        right = np.full(own.sum(), events.root) if size == 1 else after(events.shorter[parent[own]], token[own])
        _refuse_target(child[own], events.shorter[child[own]], right, "the failure arc")
    others = np.flatnonzero(~tree)
    right = after(events.source[others], events.token[others])
    if (wrong := events.next[others] != right).any():
        arc = others[wrong.argmax()]
        _refuse_target(events.source[[arc]], events.next[[arc]], right[wrong][:1], f"label {events.token[arc] + 1}")


def _refuse_target(state: NDArray[Any], got: NDArray[Any], right: NDArray[Any], arc: str) -> None:
    if (wrong := got != right).any():
        at = int(wrong.argmax())
        raise ValueError(
            f"state {state[at]}: expected {arc} to lead to state {right[at]}, the longest suffix of the context, got "
            f"{got[at]}; only n-gram automata are read"
        )
