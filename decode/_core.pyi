"""Native core of rescore.

Arrays are C-contiguous numpy arrays of exactly the dtypes named; another dtype is a TypeError, never a copy.
Letters are DESIGN's: B lattices, T slots, K candidates, V vocabulary, S states, A arcs, J models. The GIL is
released while the core works.
"""

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

@final
class Automaton:
    """An n-gram automaton over arrays that the caller keeps, for example maps of a file; docs/ngram-format.md describes them.

    State 0 is the root, with exactly V arcs, tokens 0..V-1. Another state is a context; its failure arc leads to the next
    shorter context. Costs are negated natural logarithms. Only facts that take constant time are checked here; `check` reads
    everything. Look-ups compare every index they read with its bound, so damaged arrays raise RuntimeError and never read
    outside.
    """

    def __init__(
        self,
        sizes: NDArray[np.uint64],  # [N, 6]
        root_cost: NDArray[np.float32],  # [V]
        arc_token: NDArray[np.uint16] | NDArray[np.uint8],  # [A - V], or [3 (A - V)] where V > 65536
        arc_next: NDArray[np.uint16] | NDArray[np.uint8],  # [A - V]
        arc_cost: NDArray[np.uint8],
        arc_book: NDArray[np.float32],
        backoff_cost: NDArray[np.uint8],
        backoff_book: NDArray[np.float32],
        first_state: NDArray[np.uint32],  # [(N - 1) (V + 1)]
        jumps: NDArray[np.uint32],
        arc_begin: NDArray[np.uint64],
        backoff_state: NDArray[np.uint64],
        *,
        order: int,
        vocab_size: int,
        next_bits: int,
    ) -> None: ...
    @property
    def num_states(self) -> int: ...
    @property
    def num_arcs(self) -> int: ...
    @property
    def order(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    def check(self) -> None:
        """Read every array; ValueError names the first entry that is not that of a closed model in canonical order."""

    def plain(
        self,
    ) -> tuple[
        NDArray[np.uint64],
        NDArray[np.uint16] | NDArray[np.uint32],
        NDArray[np.float32],
        NDArray[np.uint32],
        NDArray[np.uint32],
        NDArray[np.float32],
    ]:
        """arc_begin [S + 1]; arc_token, arc_cost, arc_next [A]; backoff_state, backoff_cost [S]: `NGram.arrays`."""

    def start(self, history: NDArray[np.int32]) -> int:
        """The state of the longest suffix of `history` [n] (its last N - 1 tokens) that the model knows."""

    def start_batch(self, histories: NDArray[np.int32], threads: int = 1) -> NDArray[np.uint32]:
        """The states [B] of `histories` [B, n]; a shorter history is padded with -1 in front."""

    def step(self, state: int, token: int) -> tuple[int, float]:
        """The next state and the cost of `token` in `state`."""

    def score(
        self, tokens: NDArray[np.int32], offsets: NDArray[np.int64], states: NDArray[np.uint32]
    ) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """Costs [n] of the tokens of B sequences, tokens[offsets[b]:offsets[b + 1]] read from states[b], and the states [B] after them."""

    def walk(
        self, tokens: NDArray[np.int32], state: int
    ) -> tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.uint32], int]:
        """Tokens [n] read from a state: their costs [n], the orders [n] of the n-grams that had them, the states [n]
        before them, and the state after the last."""

    def distribution(self, state: int) -> NDArray[np.float32]:
        """The costs [V] of every token in `state`."""

def encode_structure(
    arc_begin: NDArray[np.uint64],  # [S + 1]
    arc_token: NDArray[np.uint16] | NDArray[np.uint32],  # [A]
    arc_next: NDArray[np.uint32],  # [A]
    backoff_state: NDArray[np.uint32],  # [S]
    *,
    order: int,
    vocab_size: int,
    code_bytes: int,
    next_bits: int,
) -> tuple[
    NDArray[np.uint64],
    NDArray[np.uint64],
    NDArray[np.uint8],
    NDArray[np.uint8],
    NDArray[np.uint32],
    NDArray[np.uint32],
    NDArray[np.uint64],
    NDArray[np.uint64],
]:
    """States by length and arcs by order [N] each, then what an `Automaton` is made of but its costs: the bytes of arc_token
    and arc_next, first_state, jumps, arc_begin, backoff_state.

    code_bytes  1 or 2 bytes for each entry of arc_next, of which next_bits bits are of the state
    """

def encode_costs(cost: NDArray[np.float32], book: NDArray[np.float32]) -> tuple[int, NDArray[np.uint8], NDArray[np.float32]]:
    """Bits, packed bytes and book of a column of costs [n]: exact if `book` is empty, else rounded to its nearest of 1 to 256,
    which ascend."""

def best_paths(
    models: Sequence[Automaton],
    states: NDArray[np.uint32],  # [J, B]
    ids: NDArray[np.int32],  # [B, T, K], padding -1
    cost: NDArray[np.float32],  # [B, T, K]
    alpha: NDArray[np.float64],  # [J, T]
    *,
    paths: int,
    epsilon: bool = False,
    threads: int = 1,
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """The p = `paths` best strings of every lattice: tokens [B, p, T], costs [B, p], counts [B].

    Sorted by cost, ties by the ranks of the candidates, first slot first. Padding: token -1, cost +inf. `epsilon`
    composes with epsilon instead of failure arcs; it takes one model at most.
    """

def best_tree(
    models: Sequence[Automaton],
    states: NDArray[np.uint32],  # [J, B]
    ids: NDArray[np.int32],  # [B, T, K], padding -1
    cost: NDArray[np.float32],  # [B, T, K]
    alpha: NDArray[np.float64],  # [J, T]
    *,
    nodes: int,
    threads: int = 1,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """The n = `nodes` most probable prefixes of every lattice: tokens, parents, depths [B, n] int32, logq [B, n], counts [B].

    Ordered by logq, ties by depth, then by ranks; a node's parent comes before it, -1 being the certain token. Padding:
    token -1, parent -1, depth 0, logq -inf.
    """

def model_tree(
    model: Automaton, states: NDArray[np.uint32], *, slots: int, nodes: int, threads: int = 1
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """As `best_tree`, for the prefixes of at most `slots` tokens that the model alone finds most probable after states [B]."""
