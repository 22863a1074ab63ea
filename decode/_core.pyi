"""Native core of rescore.

Arrays are C-contiguous numpy arrays of exactly the dtypes named; another dtype is a TypeError, never a copy.
Letters are those of docs/reference/concepts.md: B lattices, T slots, K candidates, V vocabulary, S states, A arcs,
J models. The GIL is released while the core works.
"""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

processor: str  # what it was compiled for: a level of x86-64, native (this machine alone) or generic
MAX_SLOTS: int  # T
MAX_CANDIDATES: int  # K
MAX_ORDER: int  # N of n-gram models
MAX_TEXT_ORDER: int  # N of the running text
MAX_MODELS: int  # J
MAX_PATHS: int  # p
MAX_NODES: int  # n of a tree
MAX_TOP: int  # k of `top`
FIXED_ONE: float  # a nat, in units of weights
IMPOSSIBLE: int  # the weight of what cannot be, in those units
MAX_WEIGHT: float  # nats; any other weight is less
LEAST_MASS: float  # that a head leaves to tokens it does not list
RAREST: float  # nats that a unigram counts for at most

@final
class Automaton:
    """An n-gram automaton over arrays that the caller keeps, for example maps of a file;
    docs/reference/ngram-format.md describes them.

    State 0 is the root, with exactly V arcs, tokens 0..V-1. Another state is a context; its failure arc leads to the
    next shorter context. Costs are negated natural logarithms. Only facts that take constant time are checked here;
    `check` reads everything. Look-ups compare every index they read with its bound, so damaged arrays raise
    RuntimeError and never read outside.
    """

    def __init__(
        self,
        sizes: NDArray[np.uint64],  # [N, 6]
        root_cost: NDArray[np.float32],  # [V]
        arc_token: NDArray[np.uint16] | NDArray[np.uint8],  # [A - V], or [3 (A - V)] where V > 65536
        arcs: NDArray[np.uint8],
        arc_book: NDArray[np.float32],
        contexts: NDArray[np.uint8],
        backoff_book: NDArray[np.float32],
        wide: NDArray[np.uint32],
        first_state: NDArray[np.uint32],  # [(N - 1) (V + 1)]
        jumps: NDArray[np.uint32],
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

    def start_batch(
        self, histories: NDArray[np.int32], threads: int = 1, out: NDArray[np.uint32] | None = None
    ) -> NDArray[np.uint32]:
        """The states [B] of `histories` [B, n]; a shorter history is padded with -1 in front."""

    def step(self, state: int, token: int) -> tuple[int, float]:
        """The next state and the cost of `token` in `state`."""

    def score(
        self, tokens: NDArray[np.int32], offsets: NDArray[np.int64], states: NDArray[np.uint32]
    ) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """Costs [n] of the tokens of B sequences, tokens[offsets[b]:offsets[b + 1]] read from states[b], and the states
        [B] after them.
        """

    def walk(
        self, tokens: NDArray[np.int32], state: int
    ) -> tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.uint32], int]:
        """Tokens [n] read from a state: their costs [n], the orders [n] of the n-grams that had them, the states [n]
        before them, and the state after the last.
        """

    def distribution(self, state: int) -> NDArray[np.float32]:
        """The costs [V] of every token in `state`."""

def encode(
    arc_begin: NDArray[np.uint64],  # [S + 1]
    arc_token: NDArray[np.uint16] | NDArray[np.uint32],  # [A]
    arc_cost: NDArray[np.float32],  # [A]
    arc_next: NDArray[np.uint32],  # [A]
    backoff_state: NDArray[np.uint32],  # [S]
    backoff_cost: NDArray[np.float32],  # [S]
    *,
    order: int,
    vocab_size: int,
    next_bits: int,
    choose_book: Callable[[NDArray[np.float32]], NDArray[np.float32]],
) -> tuple[
    NDArray[np.uint64],
    NDArray[np.uint8],
    NDArray[np.uint8],
    NDArray[np.float32],
    NDArray[np.uint8],
    NDArray[np.float32],
    NDArray[np.uint32],
    NDArray[np.uint32],
    NDArray[np.uint32],
    NDArray[np.uint64],
]:
    """What an `Automaton` is made of but root_cost: sizes [6 N], the bytes of arc_token, arcs, arc_book, contexts,
    backoff_book, wide,
    first_state, jumps, backoff_state.

    next_bits    1 to 15, low bits of a state's number in a code; up to 7 a code has 1 byte, else 2
    choose_book  for the costs of an order, or the backoff costs of a length: the at most 65536 floats, ascending, that
                 they are rounded to; none: they stay as they are
    """

def exact_book(cost: NDArray[np.float32]) -> NDArray[np.float32]:
    """All that costs [n] are, ascending, if they are so few that their numbers take at most three quarters of the
    space; else nothing.
    """

def top(logits: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """The k greatest logits of each row [m, V]: ids [m, k], equal logits by id, their log softmax over all V [m, k],
    and the row's entropy in nats [m].

    Ids behind the finite logits are -1. The entropy of a row with NaN or +inf, or without a finite logit, is NaN.
    """

def top_predictions(
    logits: Sequence[NDArray[np.float32]] | Sequence[NDArray[np.uint16]], k: int, threads: int = 1
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The k most probable tokens of each row of arrays [m, V], one array after another: ids [sum of m, k] as of `top`,
    and probabilities among all V.

    uint16 are the bits of bfloat16. Of a row with NaN or +inf, or without a finite logit, probabilities are NaN.
    """

def best_tokens(logits: NDArray[np.float32] | NDArray[np.uint16]) -> NDArray[np.int64]:
    """The token of the greatest logit of each row [m, V], the first of equal ones; -1 where a logit is NaN or +inf, or
    none is finite. uint16 are the bits of bfloat16.
    """

def best_paths(
    models: Sequence[Automaton],
    histories: NDArray[np.int32],  # [B, n], padding -1 in front
    ids: NDArray[np.int32],  # [B, T, K], padding -1
    cost: NDArray[np.float32],  # [B, T, K]
    alpha: NDArray[np.float64],  # [J, T]
    *,
    paths: int,
    epsilon: bool = False,
    threads: int = 1,
    out: tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """The p = `paths` best strings of every lattice: tokens [B, p, T], costs [B, p], counts [B].

    Sorted by cost, ties by the ranks of the candidates, first slot first. Padding: token -1, cost +inf. `epsilon`
    composes with epsilon instead of failure arcs; it takes one model at most. `out`: arrays for the answer.
    """

def best_tree(
    models: Sequence[Automaton],
    histories: NDArray[np.int32],  # [B, n], padding -1 in front
    ids: NDArray[np.int32],  # [B, T, K], padding -1
    cost: NDArray[np.float32],  # [B, T, K]
    alpha: NDArray[np.float64],  # [J, T]
    *,
    nodes: int,
    threads: int = 1,
    out: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]
    | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """The n = `nodes` most probable prefixes of every lattice: tokens, parents, depths [B, n] int32, logq [B, n],
    counts [B].

    Ordered by logq, ties by depth, then by ranks; a node's parent comes before it, -1 being the root token. Padding:
    token -1, parent -1, depth 0, logq -inf.
    """

@final
class ContextModel:
    """Counts of what followed the contexts of a text, or of several, N = len(soft) orders. Threads may share it: a
    search waits while it grows, and the reverse.
    """

    def __init__(self, *, soft: NDArray[np.float64]) -> None:
        """soft [N], each in [0, 1]: how much of what follows a context of 0, 1, .. tokens is what the target predicted,
        not the token that came.
        """

    @property
    def order(self) -> int: ...
    @property
    def bytes(self) -> int:
        """Of memory."""

    @property
    def size(self) -> int:
        """Tokens of the text."""

    def begin(self) -> None:
        """What comes next is another text."""

    def extend(
        self,
        tokens: NDArray[np.int32],
        ids: NDArray[np.int32] | None = None,  # [n, k], padding -1
        p: NDArray[np.float32] | None = None,  # [n, k]
    ) -> None:
        """Read on: tokens [n], at least 0, and the tokens and probabilities among which the target chose each; a row of
        padding where that is not known. Nothing is read if something is refused.
        """

    def foresee(self, draft: NDArray[np.int32], ids: NDArray[np.int32], p: NDArray[np.float32]) -> None:
        """The target read a draft [d] behind the text, and predicted tokens [1, k] after it."""

    def mixture(
        self, draft: NDArray[np.int32], strength: NDArray[np.float64], tokens: NDArray[np.int32]
    ) -> tuple[NDArray[np.float64], float]:
        """Of p(w) = share(w) + rest * p_other(w) after the text and a draft [d], with strengths [order]: the shares of
        tokens [n], and rest.
        """

def read_pass(
    text: ContextModel,
    tokens: NDArray[np.int32],  # [1 + m]
    drafted: NDArray[np.int32],  # [n]
    parents: NDArray[np.int32],  # [n]
    accepted: NDArray[np.int32],  # [m]
    ids: NDArray[np.int32],  # [1 + n, k], padding -1
    p: NDArray[np.float32],  # [1 + n, k]
) -> None:
    """The text goes on with the tokens of the accepted nodes of a drafted tree, and the root token behind them.

    ids, p: what the target predicted behind the last root token, row 0, and behind node i, row 1 + i. What it predicted
    behind the other nodes is foreseen (`ContextModel.foresee`), in their order, then each token is read
    (`ContextModel.extend`). Nothing is read if something is refused.
    """

def move_slots(
    stores: Sequence[NDArray[np.uint8]],  # [rows, heads, slots, bytes of a slot]
    rows: NDArray[np.int64],  # [m]
    sources: NDArray[np.int64],  # [m]
    targets: NDArray[np.int64],  # [m]
) -> None:
    """In every store, all heads of slot sources[i] of row rows[i] become those of slot targets[i], in the moves' order.

    Nothing is moved if something is refused.
    """

def acceptance(
    logq: NDArray[np.float32],  # [B, n], padding -inf
    parents: NDArray[np.int32],  # [B, n], before their children
    depths: NDArray[np.int32],  # [B, n]
    edges: NDArray[np.float64],  # [E]
    rows: NDArray[np.int32],  # [D]: row of the table by depth, the last one for all greater depths
    rates: NDArray[np.float64],  # [R, E + 1]
) -> NDArray[np.float64]:
    """Probability [B, n] that each node of token trees is accepted: the product of the rates along its path.

    The column of a node's rate is the bin of its conditional q, exp(logq - logq of the parent). Padding gets 0.
    """

def count_accepted(
    counts: NDArray[np.float64],  # [2, R, E + 1]: accepted, tested
    edges: NDArray[np.float64],  # [E]
    rows: NDArray[np.int32],  # [D]
    logq: Sequence[NDArray[np.float32]],  # of each tree [n]
    parents: Sequence[NDArray[np.int32]],
    depths: Sequence[NDArray[np.int32]],
    accepted: Sequence[Sequence[int]],
) -> None:
    """Counts the nodes of verified trees in the bins of `acceptance`, in place.

    A node was tested if its parent is the root token or was accepted. Nothing is counted if something is refused.
    """

def open_tree(
    model: Automaton,
    histories: NDArray[np.int32],  # [B, n], padding -1 in front
    ids: NDArray[np.int32],  # [B, T, K], padding -1
    cost: NDArray[np.float32],  # [B, T, K]
    alpha: NDArray[np.float64],  # [1, T]
    weights: NDArray[np.float64],  # [3, T]: head, prior, floor
    *,
    open: bool,
    texts: Sequence[ContextModel],  # B, or none
    strength: NDArray[np.float64],  # [order of the texts]
    memory: ContextModel | None = None,
    memory_strength: NDArray[np.float64] | None = None,  # [order of the memory]
    least: float = 0.0,
    nodes: int,
    threads: int = 1,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """As `best_tree`, under the q of `rescore.decode.rescoring.calibration`, ties broken by tokens. With `open`, over
    the whole vocabulary, and slots may be without candidates. Prefixes of q below `least` are left out, which makes the
    search shorter. The memory stands between the texts and the model; where it goes on from, the end of each history
    says.
    """

@final
class Normalised:
    """q(w | prefix) over the drafts of B lattices, made of copies of the arrays; the models are kept.

    q(w_1..w_T) is proportional to exp(-cost / temperature); with `local`, q(w | prefix) is the softmax over the slot's
    candidates. ValueError beyond so many `transitions` (arcs of the composition) in one lattice or in all together.
    Methods may be called from several threads.
    """

    def __init__(
        self,
        models: Sequence[Automaton],
        histories: NDArray[np.int32],  # [B, n], padding -1 in front
        ids: NDArray[np.int32],  # [B, T, K], padding -1
        cost: NDArray[np.float32],  # [B, T, K]
        alpha: NDArray[np.float64],  # [J, T]
        *,
        temperature: float = 1.0,
        local: bool = False,
        transitions: int = 33554432,
        threads: int = 1,
    ) -> None: ...
    @property
    def log_mass(self) -> NDArray[np.float64]:
        """ln of the sum of exp(-cost / temperature) over all drafts [B], -inf where none is possible; [0] if local."""

    @property
    def states(self) -> NDArray[np.int64]:
        """Nodes of the compositions [B]; [0] if local."""

    def sample(
        self, uniforms: NDArray[np.float64], *, threads: int = 1
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]:
        """Paths drawn with uniforms [B, p, T] in [0, 1): tokens [B, p, T], q [B, p, T, K] by rank, ln q and lengths [B,
        p].
        """

    def rows(self, drafts: NDArray[np.int32], *, threads: int = 1) -> NDArray[np.float64]:
        """q [B, p, T, K] along drafts [B, p, T], padding -1; 0 after the padding's first row and after a token that is
        not possible.
        """

    def trees(
        self, *, nodes: int, threads: int = 1
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
        """The trees of the most probable prefixes: tokens, parents, depths, ln q [B, n] and count [B], as
        `best_tree`.
        """

    def logq(self, drafts: NDArray[np.int32], *, threads: int = 1) -> NDArray[np.float64]:
        """ln q [B, p] of drafts [B, p, T], padding -1; -inf where a token is not possible."""

def count_windows(
    parts: Sequence[tuple[NDArray[np.uint16] | NDArray[np.uint32] | NDArray[np.int32], int, int]],
    *,
    order: int,
    vocab_size: int,
    eot: int,
    starts: Sequence[int],
) -> tuple[bytes, list[int], int, int]:
    """A run: the windows of text, sorted and counted. Its bytes, where each slice begins in them and the end, distinct
    windows, tokens.

    parts   (array [n], begin, stop): the positions begin .. stop - 1 of an array of whole documents, ids in [0, V)
    starts  ascending tokens: a window belongs to slice i if the token before its last is in [starts[i - 1], starts[i]);
            none: one slice
    """

def run_of_windows(
    offsets: NDArray[np.int64],  # [n + 1] into tokens
    tokens: NDArray[np.int32],  # in [0, V)
    counts: NDArray[np.int64],  # [n], at least 1
    *,
    order: int,
    vocab_size: int,
    eot: int,
    starts: Sequence[int],
) -> tuple[bytes, list[int], int, int]:
    """As `count_windows`, for n windows that were counted elsewhere, in any order.

    A window has N tokens, or begins with `eot`.
    """

@final
class RunSlices:
    """One slice of several runs, merged into one; it is read once, by one of `LevelBuilder.add`, `spell` and `write`.

    sources  bytes, or (path, begin, end) of a file. Damage is a ValueError where it is met
    buffer   bytes read from each file at once
    """

    def __init__(
        self,
        sources: Sequence[bytes | tuple[str, int, int]],
        *,
        order: int,
        vocab_size: int,
        eot: int,
        buffer: int = 262144,
    ) -> None: ...
    @property
    def consumed(self) -> int:
        """Bytes of files read so far."""

    def spell(self, windows: int) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], bool]:
        """At most so many windows: offsets [n + 1] into tokens, counts [n]; and whether there may be more."""

    def write(self, windows: int) -> tuple[bytes, int, bool]:
        """At most so many windows as part of a slice of a run, how many they are, and whether there may be more."""

@final
class LevelBuilder:
    """The n-grams of every order, made of windows in ascending order.

    min_counts  N smallest counts kept, of order 1 first, never falling
    most        counts of counts are taken of 1..most
    adjusted    adjusted counts are wanted too, those of Kneser-Ney: how many different tokens stood before an n-gram;
                of order N, and of n-grams that begin with the end of text, how often they were seen
    """

    def __init__(
        self,
        *,
        order: int,
        vocab_size: int,
        eot: int,
        min_counts: Sequence[int],
        most: int,
        adjusted: bool = False,
    ) -> None: ...
    def add(self, slices: RunSlices, windows: int) -> bool:
        """Take at most so many windows of a merged slice; whether there may be more."""

    def finish(self) -> None:
        """Say that there are no more windows."""

    def take(
        self,
    ) -> list[
        tuple[
            NDArray[np.uint32],
            NDArray[np.uint32],
            NDArray[np.uint64],
            NDArray[np.uint64],
            NDArray[np.uint32],
            NDArray[np.uint64],
            NDArray[np.uint64],
            NDArray[np.uint64],
        ]
    ]:
        """What was completed since the last call, for orders 2..N: context_token, context_parent, context_total,
        context_end [C]; token, count [n]; the totals [C] and counts [n] that are adjusted, empty for order N and where
        they are not wanted.

        Parents and ends count from the first context and n-gram of all that were made.
        """

    def unigrams(self) -> NDArray[np.uint64]:
        """How often each token was seen so far, [V]."""

    def adjusted_unigrams(self) -> NDArray[np.uint64]:
        """The adjusted count of each token so far, [V], or [0]."""

    @property
    def of_counts(self) -> list[list[int]]:
        """For orders 0..N (0 and 1 unused): [r] is how many n-grams were seen r times, r = 1..most; [0] how many more
        often.
        """

    @property
    def of_adjusted(self) -> list[list[int]]:
        """The same of adjusted counts; empty lists where they are not wanted."""

@final
class Level:
    """The n-grams of one order (`lm/grams.py`), C contexts and n n-grams, over arrays that the caller keeps.

    Only sizes are checked here. The functions below check what they use as an index: damaged arrays are a ValueError
    that names the entry, never a read outside. They work on the contexts from_ .. to - 1, and what they return
    is of the n-grams or contexts of those alone. `below` is the order below, `above` the order above.
    """

    def __init__(
        self,
        context_token: NDArray[np.uint32],  # [C], empty for order 1
        context_parent: NDArray[np.uint32],  # [C], empty for order 1
        begin: NDArray[np.uint64],  # [C + 1], from 0 to n
        token: NDArray[np.uint32],  # [n]
    ) -> None: ...

def suffixes(level: Level, below: Level, from_: int, to: int) -> NDArray[np.uint32]:
    """The number of h'w in the order below, for each n-gram hw.

    ValueError where it is not there, here and in all that follow.
    """

def estimate(
    level: Level,
    below: Level,
    below_cost: NDArray[np.float64],  # of the n-grams of the order below
    count: NDArray[np.uint64],  # [n], at least 1
    total: NDArray[np.uint64],  # [C], how often any token followed
    discount: NDArray[np.float64],  # of counts 1, 2, .., the last one of all above
    from_: int,
    to: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Katz: costs of the n-grams and backoff costs of the contexts."""

def kneser_ney(
    level: Level,
    below: Level,
    below_cost: NDArray[np.float64],  # of the n-grams of the order below
    count: NDArray[np.uint64],  # [n], adjusted, at least 1
    total: NDArray[np.uint64],  # [C], adjusted, of all n-grams, kept or not
    discount: NDArray[np.float64],  # [3], of adjusted counts 1, 2, and of all above
    from_: int,
    to: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Interpolated modified Kneser-Ney: costs of the n-grams and backoff costs of the contexts."""

def normalise(
    level: Level, below: Level, below_cost: NDArray[np.float64], cost: NDArray[np.float64], from_: int, to: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Costs of the n-grams, scaled where a context left no mass, and backoff costs that make every context
    sum to one.
    """

def sums(
    level: Level,
    below: Level,
    below_cost: NDArray[np.float64],
    cost: NDArray[np.float64],
    backoff: NDArray[np.float64],  # [C]
    below_sum: NDArray[np.float64],  # of the contexts of the order below
    from_: int,
    to: int,
) -> NDArray[np.float64]:
    """The sum of the probabilities of all tokens after each context."""

def first_by_last_token(level: Level, below_first: NDArray[np.uint32], vocab_size: int) -> NDArray[np.uint32]:
    """For each token, the first context of an order whose last token is not below it, [V + 1]. below_first: the same
    for the order below; empty for order 2.
    """

def link(
    level: Level,
    below: Level,
    below_link: NDArray[np.uint32],  # what this function gave for the order below; empty for order 1
    above: Level,
    above_first: NDArray[np.uint32],  # [V + 1], `first_by_last_token` of `above`
    cursor: NDArray[np.uint32],  # [V], at first above_first[:-1]; changed
    from_: int,
    to: int,
) -> NDArray[np.uint32]:
    """The number of each n-gram among the contexts of the order above, 2^32 - 1 where it is none.

    Ranges in order, from the first.
    """

def context_logps(
    level: Level,
    cost: NDArray[np.float64],
    logp: NDArray[np.float64],  # [C], ln p(h)
    link: NDArray[np.uint32],  # [n]
    above: NDArray[np.float64],  # changed: ln p of the contexts of the order above that are n-grams of the range
    from_: int,
    to: int,
) -> None:
    """ln p of contexts, by the chain rule."""

def losses(
    level: Level,
    below: Level,
    below_cost: NDArray[np.float64],
    cost: NDArray[np.float64],
    backoff: NDArray[np.float64],  # [C]
    logp: NDArray[np.float64],  # [C], ln p(h)
    from_: int,
    to: int,
) -> NDArray[np.float64]:
    """What dropping each n-gram alone would cost: D of Stolcke (cs/0006025)."""

def scores(
    level: Level,
    loss: NDArray[np.float64],
    above: Level | None,  # None, and empty arrays, for the highest order
    above_score: NDArray[np.float64],
    above_best: NDArray[np.float64],
    link: NDArray[np.uint32],  # [n]
    from_: int,
    to: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest loss of each n-gram and of those of the order above that need it; and the largest of each context."""

def select(
    level: Level,
    score: NDArray[np.float64],
    limit: float,
    cost: NDArray[np.float64],
    below_number: NDArray[np.uint32],  # new numbers of the contexts of the order below; one 0 for order 2
    from_: int,
    to: int,
) -> tuple[
    NDArray[np.uint32],
    NDArray[np.uint32],
    NDArray[np.uint32],
    NDArray[np.uint64],
    NDArray[np.uint32],
    NDArray[np.float64],
]:
    """The n-grams whose score is above `limit`: which contexts are left, their first tokens, parents and numbers of
    n-grams; tokens and costs.
    """

def next_states(
    level: Level,
    below: Level,
    link: NDArray[np.uint32],  # [n], empty for the highest order
    below_next: NDArray[np.uint32],  # what this function gave for the order below; empty for order 1
    first_state: int,  # that of the contexts of the order above
    from_: int,
    to: int,
) -> NDArray[np.uint32]:
    """The state after each n-gram: its own number as a context, or that of its longest suffix."""
