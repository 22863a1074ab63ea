"""Writes n-gram models as OpenFst files, a block of states at a time; `pywrapfst` would add arcs one by one."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lm import fst_read as layout
from rescore.lm.compile import Arrays
from rescore.lm.fst_read import ARC, ARC_WORDS, CONST_STATE, STATE_WORDS, WORD, outside

BLOCK = 1 << 20  # arcs


def vector_parts(arrays: Arrays, *, failure_label: int = 0, start: int = 0) -> Iterator[bytes | memoryview]:
    """Yields the file of a VectorFst in parts, byte for byte as OpenFst writes the automaton of `to_fst`."""
    first = _first_arcs(arrays)
    properties = layout.MUTABLE | _properties(arrays, failure_label)
    yield _header("vector", layout.VECTOR, properties, start, len(first) - 1, 0)
    for a, b in _ranges(first):
        heads = STATE_WORDS * np.arange(b - a) + ARC_WORDS * (first[a:b] - first[a])
        words = np.zeros(STATE_WORDS * (b - a) + ARC_WORDS * int(first[b] - first[a]), WORD)
        words[heads + 1] = np.diff(first[a : b + 1])
        words[outside(len(words), heads, STATE_WORDS)] = _arcs(arrays, first, a, b, failure_label).view(WORD)
        yield words.data


def const_parts(arrays: Arrays, *, failure_label: int = 0, start: int = 0) -> Iterator[bytes | memoryview]:
    """Yields the same automaton as the file of a ConstFst, which OpenFst opens faster."""
    first = _first_arcs(arrays)
    table = np.zeros(len(first) - 1, CONST_STATE)
    table["first"], table["arcs"] = first[:-1], np.diff(first)
    table["input_epsilons"][1:] = table["output_epsilons"][1:] = failure_label == 0
    yield _header("const", layout.CONST, _properties(arrays, failure_label), start, len(table), int(first[-1]))
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
    """The arcs of states a .. b - 1, of dtype ARC."""
    arcs = np.empty(int(first[b] - first[a]), ARC)
    states = slice(max(a, 1), b)
    failure = first[states] - first[a]
    arcs["input"][failure] = failure_label
    arcs["cost"][failure] = arrays.backoff_cost[states]
    arcs["next"][failure] = arrays.backoff_state[states]
    own, mine = outside(len(arcs), failure, 1), slice(int(arrays.arc_begin[a]), int(arrays.arc_begin[b]))
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
        layout.EXPANDED
        | layout.ACCEPTOR
        | layout.NOT_TOP_SORTED  # failure arcs lead back; the arcs of a lone root lead to itself
        | (layout.EPSILONS if failure_label == 0 and states > 1 else layout.NO_EPSILONS)
        | (layout.SORTED if ascending else layout.NOT_SORTED)
        | (layout.WEIGHTED if weighted else layout.UNWEIGHTED)
    )


def _header(kind: str, version: int, properties: int, start: int, states: int, arcs: int) -> bytes:
    names = b"".join(struct.pack("<i", len(name)) + name.encode() for name in (kind, "standard"))
    return layout.MAGIC + names + struct.pack(layout.HEADER, version, 0, properties, start, states, arcs)
