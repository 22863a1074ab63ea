"""Converts models to and from OpenFst, and writes the symbols of their labels.

Label = token id + 1, as 0 is epsilon. The failure arc has label 0 or a label of the caller's choice; every state is
final. Files are read and written without OpenFst; only `to_fst` and `from_fst`, which use objects of `pywrapfst`, need
pynini.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.atomic import atomic_file
from rescore.lm.model import fst_read
from rescore.lm.model.arpa_write import unwritable_word
from rescore.lm.model.compile import Arrays, check_costs
from rescore.lm.model.grams import check_vocabulary
from rescore.lm.model.ngram import NGram

if TYPE_CHECKING:
    import pywrapfst

BLOCK = 1 << 20  # arcs that are written at a time
EPSILON, FAILURE = "<epsilon>", "<phi>"


def to_fst(model: NGram, *, failure_label: int = 0, start: int = 0) -> pywrapfst.VectorFst:
    """The automaton as an acceptor over the tropical semiring, with the same states in the same order.

    failure_label  label of the failure arcs: 0 for epsilon, or one above V for a phi matcher
    start          the start state; 0, the root, means an empty history
    """
    import pywrapfst

    fst = pywrapfst.VectorFst("standard")
    fst.union(pywrapfst.Fst.read_from_string(b"".join(_parts(model, failure_label, start))))  # copies: fst is empty
    return fst


def save_fst(model: NGram, path: str | os.PathLike[str], *, failure_label: int = 0, start: int = 0) -> None:
    """Saves the acceptor of `to_fst` to a file, a VectorFst, atomically. Needs about 25 bytes of memory per n-gram."""
    parts = _parts(model, failure_label, start)
    with atomic_file(path) as file:
        for part in parts:
            file.write(part)


def _parts(model: NGram, failure_label: int, start: int) -> Iterator[bytes | memoryview]:
    if failure_label != 0 and failure_label <= model.vocab_size:
        raise ValueError(f"failure_label: expected 0 or more than V = {model.vocab_size}, got {failure_label}")
    if not 0 <= start < model.core.num_states:
        raise ValueError(f"start: expected a state below {model.core.num_states}, got {start}")
    arrays = model.arrays
    check_costs(arrays)
    return vector_parts(arrays, failure_label=failure_label, start=start)


def from_fst(
    fst: pywrapfst.Fst,
    *,
    vocab_size: int,
    failure_label: int = 0,
    unseen_cost: float | None = None,
    bos: int | None = None,
    eos: int | None = None,
) -> NGram:
    """Builds a model from an acceptor; its states may be in any order.

    A model over fragments, as `to_fst` makes, has final costs of 0. A model over sentences, as OpenGrm makes, has the
    context of <s> as its start state and the costs of </s> as its final costs; `bos` and `eos` give the ids of <s> and
    </s>. unseen_cost: cost of ids without an arc at the root; None makes these an error.
    """
    import pywrapfst

    check_vocabulary(vocab_size, 1)
    found = fst_read.read(np.frombuffer(pywrapfst.convert(fst, "vector").write_to_string(), np.uint8))
    events = fst_read.events_of(found, vocab_size, failure_label)
    tables = fst_read.tables_of(events, found.start, vocab_size=vocab_size, unseen_cost=unseen_cost, bos=bos, eos=eos)
    return NGram.from_tables(tables)


def load_fst(path: str | os.PathLike[str]) -> NGram:
    """Loads a model from a file of `save_fst` with the root as start, a vector or const FST.

    V is the number of the root's arcs, the failure label the one outside 1..V. ValueError names the file and the state.
    """
    data = np.fromfile(path, np.uint8) if os.path.getsize(path) == 0 else np.memmap(path, np.uint8, "r")
    try:
        found = fst_read.read(data)
        vocab_size = int(found.first[found.start + 1] - found.first[found.start])
        events = fst_read.events_of(found, vocab_size, _failure_label(found, vocab_size))
        if events.root != found.start:
            raise ValueError(f"expected the root, state {events.root}, as start state, got {found.start}; use from_fst")
        return NGram.from_tables(fst_read.tables_of(events, found.start, vocab_size=vocab_size))
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def _failure_label(fst: fst_read.FstArcs, vocab_size: int) -> int:
    """A label outside 1..V; 0 if there is none."""
    label = fst.arcs["input"]
    failures = label[(label < 1) | (label > vocab_size)]
    return int(failures[0]) if len(failures) else 0


def vector_parts(arrays: Arrays, *, failure_label: int = 0, start: int = 0) -> Iterator[bytes | memoryview]:
    """Yields the file of a VectorFst in parts, byte for byte as OpenFst writes the automaton of `to_fst`."""
    first = _first_arcs(arrays)
    properties = fst_read.MUTABLE | _properties(arrays, failure_label)
    yield _header("vector", fst_read.VECTOR, properties, start, len(first) - 1, 0)
    for a, b in _ranges(first):
        heads = fst_read.STATE_WORDS * np.arange(b - a) + fst_read.ARC_WORDS * (first[a:b] - first[a])
        words = np.zeros(fst_read.STATE_WORDS * (b - a) + fst_read.ARC_WORDS * int(first[b] - first[a]), fst_read.WORD)
        words[heads + 1] = np.diff(first[a : b + 1])
        words[fst_read.outside(len(words), heads, fst_read.STATE_WORDS)] = _arcs(
            arrays, first, a, b, failure_label
        ).view(fst_read.WORD)
        yield words.data


def const_parts(arrays: Arrays, *, failure_label: int = 0, start: int = 0) -> Iterator[bytes | memoryview]:
    """Yields the same automaton as the file of a ConstFst, which OpenFst opens faster."""
    first = _first_arcs(arrays)
    table = np.zeros(len(first) - 1, fst_read.CONST_STATE)
    table["first"], table["arcs"] = first[:-1], np.diff(first)
    table["input_epsilons"][1:] = table["output_epsilons"][1:] = failure_label == 0
    yield _header("const", fst_read.CONST, _properties(arrays, failure_label), start, len(table), int(first[-1]))
    yield table.data
    for a, b in _ranges(first):
        yield _arcs(arrays, first, a, b, failure_label).data


def _first_arcs(arrays: Arrays) -> NDArray[np.int64]:
    """Where the arcs of each state begin, int64 [S + 1]. In all states but the root the failure arc comes first."""
    first = arrays.arc_begin.astype(np.int64)
    first[1:] += np.arange(len(first) - 1)
    return first


def _ranges(first: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges (from, to) of states with about BLOCK arcs each."""
    edges = np.searchsorted(first[:-1], np.arange(0, first[-1], BLOCK))
    return itertools.pairwise(np.unique(np.append(edges, len(first) - 1)).tolist())


def _arcs(arrays: Arrays, first: NDArray[np.int64], a: int, b: int, failure_label: int) -> NDArray[Any]:
    """The arcs of states a .. b - 1, of dtype fst_read.ARC."""
    arcs = np.empty(int(first[b] - first[a]), fst_read.ARC)
    states = slice(max(a, 1), b)
    failure = first[states] - first[a]
    arcs["input"][failure] = failure_label
    arcs["cost"][failure] = arrays.backoff_cost[states]
    arcs["next"][failure] = arrays.backoff_state[states]
    own, mine = fst_read.outside(len(arcs), failure, 1), slice(int(arrays.arc_begin[a]), int(arrays.arc_begin[b]))
    arcs["input"][own] = arrays.arc_token[mine].astype(np.int32) + 1
    arcs["cost"][own] = arrays.arc_cost[mine]
    arcs["next"][own] = arrays.arc_next[mine]
    arcs["output"] = arcs["input"]
    return arcs


def _properties(arrays: Arrays, failure_label: int) -> int:
    """The property bits that OpenFst would derive if the arcs were added one by one."""
    states, arcs = len(arrays.backoff_state), len(arrays.arc_token)
    weighted = any(((cost != 0) & (cost != np.inf)).any() for cost in (arrays.arc_cost, arrays.backoff_cost))
    ascending = failure_label == 0 or arcs == int(arrays.arc_begin[1])  # a greater failure label comes first unsorted
    return (
        fst_read.EXPANDED
        | fst_read.ACCEPTOR
        | fst_read.NOT_TOP_SORTED  # failure arcs lead back; the arcs of a lone root lead to itself
        | (fst_read.EPSILONS if failure_label == 0 and states > 1 else fst_read.NO_EPSILONS)
        | (fst_read.SORTED if ascending else fst_read.NOT_SORTED)
        | (fst_read.WEIGHTED if weighted else fst_read.UNWEIGHTED)
    )


def _header(kind: str, version: int, properties: int, start: int, states: int, arcs: int) -> bytes:
    names = b"".join(struct.pack("<i", len(name)) + name.encode() for name in (kind, "standard"))
    return fst_read.MAGIC + names + struct.pack(fst_read.HEADER, version, 0, properties, start, states, arcs)


def save_symbols(
    model: NGram, path: str | os.PathLike[str], *, words: Literal["text", "ids", "chars"], failure_label: int = 0
) -> None:
    """Writes the symbols of `save_fst`'s labels atomically: 0 is <epsilon>, another failure label is <phi>.

    words  "text": the model's words; else decimal token ids. ValueError for words that a line cannot hold, as in
           `write_arpa`
    """
    names = list(model.words or ()) if words == "text" else list(map(str, range(model.vocab_size)))
    special = [EPSILON, *([FAILURE] if failure_label else [])]
    if why := unwritable_word([*names, *special]):
        raise ValueError(f"symbols: {why}; write decimal ids (words='ids')")
    lines = [f"{name}\t{label}\n" for label, name in enumerate([EPSILON, *names])]
    if failure_label:
        lines.append(f"{FAILURE}\t{failure_label}\n")
    with atomic_file(path) as file:
        file.write("".join(lines).encode())
