"""Converts models to and from OpenFst.

Label = token id + 1, as 0 is epsilon. The failure arc has label 0 or a label of the caller's choice; every state is
final. Files are read and written without OpenFst; only `to_fst` and `from_fst`, which use objects of `pywrapfst`, need
pynini.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rescore.lattice.atomic import replacing
from rescore.lm.compile import check_costs
from rescore.lm.fst_contexts import events_of, tables_of
from rescore.lm.fst_read import Acceptor, read
from rescore.lm.fst_write import vector_parts
from rescore.lm.grams import check_vocabulary
from rescore.lm.ngram import NGram

if TYPE_CHECKING:
    import pywrapfst


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
    with replacing(path) as file:
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
    found = read(np.frombuffer(pywrapfst.convert(fst, "vector").write_to_string(), np.uint8))
    events = events_of(found, vocab_size, failure_label)
    tables = tables_of(events, found.start, vocab_size=vocab_size, unseen_cost=unseen_cost, bos=bos, eos=eos)
    return NGram.from_tables(tables)


def load_fst(path: str | os.PathLike[str]) -> NGram:
    """Loads a model from a file of `save_fst` with the root as start, a vector or const FST.

    V is the number of the root's arcs, the failure label the one outside 1..V. ValueError names the file and the state.
    """
    data = np.fromfile(path, np.uint8) if os.path.getsize(path) == 0 else np.memmap(path, np.uint8, "r")
    try:
        found = read(data)
        vocab_size = int(found.first[found.start + 1] - found.first[found.start])
        events = events_of(found, vocab_size, _failure_label(found, vocab_size))
        if events.root != found.start:
            raise ValueError(f"expected the root, state {events.root}, as start state, got {found.start}; use from_fst")
        return NGram.from_tables(tables_of(events, found.start, vocab_size=vocab_size))
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def _failure_label(fst: Acceptor, vocab_size: int) -> int:
    """A label outside 1..V; 0 if there is none."""
    label = fst.arcs["input"]
    outside = label[(label < 1) | (label > vocab_size)]
    return int(outside[0]) if len(outside) else 0
