"""Native core of rescore.

Arrays are C-contiguous numpy arrays of exactly the dtypes named; another dtype is a TypeError, never a copy.
Letters as in docs/reference/concepts.md: B lattices, T slots, K candidates, V vocabulary, S states, A arcs, J models.
The GIL is released during the work.
"""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

processor: str  # the instruction set compiled for: a level of x86-64, native (the building machine's) or generic
MAX_SLOTS: int  # T
MAX_CANDIDATES: int  # K
MAX_ORDER: int  # N of n-gram models
MAX_TEXT_ORDER: int  # N of the running text
MAX_MODELS: int  # J
MAX_PATHS: int  # p
MAX_NODES: int  # n of a tree
MAX_TOP: int  # k of `top`
MAX_WEIGHT: float  # nats; finite weights are below it
LEAST_MASS: float  # the least mass that a head is assumed to leave to tokens outside its candidates
RAREST: float  # nats; upper limit of a unigram's cost in the prior
NOTHING: float  # a tree's floor from which on tokens outside the candidates have no probability

@final
class Automaton:
    """An n-gram automaton over arrays that the caller keeps alive, for example maps of a file. The arrays are described
    in lm/ngram-format.md.

    State 0 is the root and has exactly V arcs, tokens 0..V-1. Every other state is a context; its failure arc leads to
    the next shorter context. Costs are negated natural logarithms. The constructor checks only what takes constant
    time; `check` reads everything. Look-ups check the bounds of every index that they read, so damaged arrays raise
    RuntimeError and are never read out of bounds.
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
    def check(self) -> None:
        """Checks every array; ValueError names the first entry that breaks a closed model in canonical order."""

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
        """The arrays of `NGram.arrays`: arc_begin [S + 1]; arc_token, arc_cost, arc_next [A]; backoff_state,
        backoff_cost [S].
        """

    def start(self, history: NDArray[np.int32]) -> int:
        """The state of the longest suffix of `history` [n] that the model knows; at most N - 1 tokens are read."""

    def start_batch(self, histories: NDArray[np.int32], threads: int = 1) -> NDArray[np.uint32]:
        """The states [B] of `histories` [B, n]; shorter histories are padded with -1 in front."""

    def step(self, state: int, token: int) -> tuple[int, float]:
        """The next state and the cost of reading `token` in `state`."""

    def score(
        self, tokens: NDArray[np.int32], offsets: NDArray[np.int64], states: NDArray[np.uint32]
    ) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """Scores B sequences: costs [n] of the tokens and the states [B] after them. Sequence b is
        tokens[offsets[b]:offsets[b + 1]], read from states[b].
        """

    def walk(
        self, tokens: NDArray[np.int32], state: int
    ) -> tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.uint32], int]:
        """Reads tokens [n] from a state: their costs [n], the orders [n] of the n-grams that matched, the states [n]
        before them, and the final state.
        """

    def distribution(self, state: int) -> NDArray[np.float32]:
        """The costs [V] of all tokens in `state`."""

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
    """Encodes plain arrays as the arrays of an `Automaton`, root_cost excepted: sizes [6 N], the bytes of arc_token,
    arcs, arc_book, contexts, backoff_book, wide, first_state, jumps, backoff_state.

    next_bits    1 to 15, low bits of a state's number in a code; a code has 1 byte up to 7, else 2
    choose_book  maps the costs of an order, or the backoff costs of a context length, to their codebook: at most 65536
                 floats, ascending. An empty codebook leaves the costs exact
    """

def exact_book(cost: NDArray[np.float32]) -> NDArray[np.float32]:
    """The distinct values of costs [n], ascending; empty if codes for them would take more than three quarters of the
    space.
    """

def top(logits: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """The k greatest logits of each row [m, V]: ids [m, k], ties by id; their log softmax over all V [m, k]; the row's
    entropy in nats [m].

    Ids past the finite logits are -1. The entropy of a row with NaN or +inf, or without a finite logit, is NaN.
    """

def top_predictions(
    logits: Sequence[NDArray[np.float32]] | Sequence[NDArray[np.uint16]], k: int, threads: int = 1
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The k most probable tokens of each row of the arrays [m, V], concatenated: ids [sum of m, k] as in `top`, and
    their probabilities among all V.

    uint16 logits are the bits of bfloat16. The probabilities of a row with NaN or +inf, or without a finite logit, are
    NaN.
    """

def best_tokens(logits: NDArray[np.float32] | NDArray[np.uint16]) -> NDArray[np.int64]:
    """The token of the greatest logit of each row [m, V], the first of equal ones; -1 if a logit is NaN or +inf, or
    none is finite. uint16 logits are the bits of bfloat16.
    """

def lay_trees(
    trees: Sequence[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]], roots: Sequence[int], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Root tokens and their trees (tokens, parents, depths [n] each) in L = `width` columns, at least 1 + n: ids and
    depths [B, L], 0 for padding, and whether column i sees column j, bool [B, L, L]. Column 0 is the root token, column
    1 + i node i, whose parent is -1 or an earlier node; padding sees itself.
    """

def child(tokens: NDArray[np.int32], parents: NDArray[np.int32], parent: int, token: int) -> int:
    """The node of a tree's columns [n] that follows `parent`, -1 the root token, with a token; -1 if there is none."""

@final
class Acceptor:
    """A deterministic acceptor over token ids, states 0 to S - 1. ValueError if arcs are not sorted or lead nowhere."""

    def __init__(
        self,
        first: NDArray[np.uint64],  # [S + 1]: where the arcs of each state begin, and their number A
        tokens: NDArray[np.int32],  # [A], ascending for each state
        targets: NDArray[np.uint32],  # [A]
        *,
        start: int,
    ) -> None: ...
    @property
    def start(self) -> int: ...
    def tokens(self, state: int) -> NDArray[np.int32]:
        """The tokens of a state's arcs, ascending."""

    def next(self, state: int, token: int) -> int:
        """The state after a token; -1 if it may not follow."""

def best_paths(
    models: Sequence[Automaton],
    histories: NDArray[np.int32],  # [B, n], padding -1 in front
    ids: NDArray[np.int32],  # [B, T, K], padding -1
    cost: NDArray[np.float32],  # [B, T, K]
    alpha: NDArray[np.float64],  # [J, T]
    *,
    paths: int,
    acceptor: Acceptor | None = None,
    threads: int = 1,
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """The p = `paths` best distinct paths of every lattice: tokens [B, p, T], costs [B, p], counts [B].

    Sorted by cost, ties by the ranks of the candidates, first slot first. Padding: token -1, cost +inf. `acceptor`:
    paths are those from its start.
    """

def best_strings(
    models: Sequence[Automaton],
    graphs: Sequence[
        tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], NDArray[np.int32]]
    ],
    starts: NDArray[np.uint32],  # [B, J]
    alpha: NDArray[np.float64],  # [J], may be negative
    *,
    paths: int,
    most: int = ...,
    threads: int = 1,
) -> list[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]]:
    """The p = `paths` best distinct strings of every acyclic graph, from its state 0 to its last one: costs [n], first
    [n + 1] and arcs; those of string i are arcs[first[i]:first[i + 1]], its cheapest path. Sorted by cost, ties by
    tokens, an end before all.

    graphs  first [S + 1]: the arcs of state s are first[s] .. first[s + 1] - 1; targets [A], later states; tokens [A],
            -1 for none; costs [A]; labels [J, A]: the token that each model reads, -1 for none
    most    transitions of a composition; ValueError beyond
    """

@final
class ContextModel:
    """What followed the contexts of one or several texts, and what the target predicted after rejected drafts, N =
    len(shares) orders. Thread-safe: searches share it, and only what changes it is exclusive.

    shares, predicted [N, 3]: the weights a, b, c of contexts of 0, 1, .. tokens. With `total` counts of `distinct`
    tokens, a context's counts have the share 1 / (1 + exp(-(a + b ln total + c ln distinct))) in the distribution after
    it: first those of what followed, then those of what was predicted.

    copied: the weights of the token that followed the longest match of the last tokens, of at least N - 1; `total` is
    how many match, at most 64, `distinct` how many tokens matches foretold so far for each one that they missed. None:
    matches are not sought.
    """

    def __init__(
        self,
        *,
        shares: NDArray[np.float64],
        predicted: NDArray[np.float64],
        copied: tuple[float, float, float] | None = None,
    ) -> None: ...
    @property
    def order(self) -> int: ...
    @property
    def bytes(self) -> int:
        """Memory in bytes."""

    @property
    def size(self) -> int:
        """Number of tokens read."""

    def begin(self) -> None:
        """Starts another text."""

    def sibling(self) -> ContextModel:
        """Another text that stands where this one does. Both read what either counts; the other's tokens count 0.3."""

    def extend(self, tokens: NDArray[np.int32], *, prompt: bool = False) -> None:
        """Appends tokens [n]. Each counts 1, those of a prompt 0.3; -1, where something stands that is no text, counts
        nothing, and contexts begin anew behind it.
        """

    def evidence(self, tokens: NDArray[np.int32], *, other: bool = False) -> NDArray[np.float32]:
        """Appends tokens [n]; returns what the context of each order, then the longest match, knew of each token
        before: its count, the total and the number of distinct tokens, of what followed and of what was predicted,
        [n, N + 1, 2, 3].

        other: the tokens are those of another text, which begins here and is not counted.
        """

    def foresee(self, draft: NDArray[np.int32], ids: NDArray[np.int32], p: NDArray[np.float32]) -> None:
        """Counts the target's prediction, tokens [k] and their probabilities, after the text and a rejected draft [d].

        Probabilities below 0.01 are not counted; ids may be padded with -1.
        """

    def mixture(self, draft: NDArray[np.int32], tokens: NDArray[np.int32]) -> tuple[NDArray[np.float64], float]:
        """The shares [n] of `tokens`, and rest, in p(w) = share(w) + rest * p_other(w): the distribution after the text
        and a draft [d].
        """

@final
class EditModel:
    """A text that is expected, as an automaton of edits (docs/how/predictions.md). Searches read it; one thread extends
    it.

    tokens  int32 [n]
    arcs    weights of replacing a token, inserting one, leaving the text, removing one more, jumping behind an equal
            pair, and the probability that a token which is not copied is taken to have; each in (0, 1)
    share   a, b: where the best place has weight m, copies have the share 1 / (1 + exp(-(a + b ln m)))
    """

    def __init__(
        self,
        tokens: NDArray[np.int32],
        *,
        arcs: tuple[float, float, float, float, float, float],
        share: tuple[float, float],
    ) -> None: ...
    def extend(self, tokens: NDArray[np.int32]) -> None:
        """Reads the tokens [m] of the text."""

    def mixture(self, draft: NDArray[np.int32], tokens: NDArray[np.int32]) -> tuple[NDArray[np.float64], float]:
        """The probabilities of tokens [m] after the text and a draft from copies, and the weight of the other model."""

def foresee_rejected(
    text: ContextModel,
    drafted: NDArray[np.int32],  # [n]
    parents: NDArray[np.int32],  # [n]
    accepted: NDArray[np.int32],  # [m]
    ids: NDArray[np.int32],  # [n, k], padding -1
    p: NDArray[np.float32],  # [n, k]
) -> None:
    """Counts the target's predictions ids, p after each rejected node of a drafted tree (`ContextModel.foresee`), in
    the nodes' order. Nothing is counted if an argument is invalid.
    """

def narrow_linear(
    x: int, weights: int, y: int, rows: int, inputs: int, outputs: int, threads: int, *, bfloat16: bool = False
) -> None:
    """Sets y to x @ weights.T on threads of torch's OpenMP. Addresses of float32 or bfloat16 arrays, row-major: x
    [rows, inputs], weights [outputs, inputs], y [rows, outputs]; widths are multiples of 16. Sums are floats, which y
    rounds.
    """

def narrow_rows(*, bfloat16: bool = False) -> tuple[int, int]:
    """The fewest and the most rows for which `narrow_linear` is as fast as libraries of linear algebra; (1, 0) without
    OpenMP's threads, or on processors of which that is not known.
    """

def move_slots(
    stores: Sequence[NDArray[np.uint8]],  # [rows, heads, slots, bytes of a slot]
    rows: NDArray[np.int64],  # [m]
    sources: NDArray[np.int64],  # [m]
    targets: NDArray[np.int64],  # [m]
) -> None:
    """Copies slot sources[i] of row rows[i] to slot targets[i], for all heads of every store, in the order of i.

    Nothing is moved if an argument is invalid.
    """

def acceptance(
    logq: NDArray[np.float32],  # [B, n], padding -inf
    parents: NDArray[np.int32],  # [B, n], before their children
    edges: NDArray[np.float64],  # [E]
    counts: NDArray[np.float64],  # [2, E + 1]: accepted, expected
    credit: float,
) -> NDArray[np.float64]:
    """Probability [B, n] that each node of token trees is accepted: along its path, the product of conditional q,
    exp(logq - logq of the parent), times how often tokens of its bin were accepted for one that was expected, at most
    1. Each bin starts with `credit` expected tokens, accepted as all have been. Padding gets 0.
    """

def count_accepted(
    counts: NDArray[np.float64],  # [2, E + 1]: accepted, expected
    edges: NDArray[np.float64],  # [E]
    logq: Sequence[NDArray[np.float32]],  # of each tree [n]
    parents: Sequence[NDArray[np.int32]],
    accepted: Sequence[Sequence[int]],
) -> None:
    """Counts the accepted nodes of verified trees, and adds up conditional q, in the bins of `acceptance`, in place.

    A node was tested if its parent is the root token or was accepted. Nothing is counted if something is refused.
    """

def best_tree(
    models: Sequence[Automaton],  # one, or B of one vocabulary size
    histories: NDArray[np.int32],  # [B, n], padding -1 in front
    ids: NDArray[np.int32],  # [B, T, K], padding -1
    cost: NDArray[np.float32],  # [B, T, K]
    alpha: NDArray[np.float64],  # [1, T]
    weights: NDArray[np.float64],  # [3, T]: head, prior, floor
    *,
    open: bool,
    texts: Sequence[ContextModel],  # B, or none
    memories: Sequence[ContextModel | None] = (),  # B, or none
    expected: Sequence[EditModel | None] = (),  # B, or none
    least: float = 0.0,
    depth: int,
    allowed: Callable[..., Sequence[tuple[int, ...] | NDArray[np.uint32] | None]] | None = None,
    few: int = 256,
    nodes: int,
    threads: int = 1,
    next: NDArray[np.int32] | None = None,  # [B, S, K]
    late: float | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    """The n = `nodes` most probable prefixes of every lattice under the q of `rescore.decode.draft.calibration`:
    tokens, parents, depths [B, n] int32, logq [B, n], counts [B].

    `late`: of texts, memories and expected texts this part, 0 to 1, is interpolated with the q of a slot, not with the
    model's p before.

    `next`: the lattices are of any shape: S states in topological order in place of slots, and where each candidate
    leads, a later state or none, -1. None: they are sausages.

    Ordered by logq, ties by depth, then by ranks, or by tokens if `open`; a node's parent comes before it, -1 being the
    root token. Padding: token -1, parent -1, depth 0, logq -inf.

    `open` searches the whole vocabulary, also past the lattices' slots, of which there may be none. Prefixes of more
    than `depth` tokens are left out, and those whose q is below `least`, which shortens the search. A memory is
    interpolated between the text and the model; its context is the end of the history.

    `allowed` restricts q after the prefixes that the search opens. It is called with lists of rows, numbers, lengths
    and tokens, of at most one prefix of each row: the number of a prefix that it was called with (those of a row are
    numbered from 0), how many tokens of that one's run follow, and the token after these, -1 for the empty prefix. It
    returns of each its run, a tuple of tokens that must follow one after another, none of which it is called with; or
    uint32 [words], a bit for each allowed token; or None. Where all V are set or None is, q is as without it. Elsewhere
    q is divided by the q of all allowed tokens, summed if they are at most `few`, else 1 without what the slot's
    candidates and the texts' short lists outside have; q of a single allowed token is 1.
    """

@final
class Normalised:
    """q(w | prefix) over the drafts of B lattices. The arrays are copied, the models are referenced.

    q(w_1..w_T) is proportional to exp(-cost / temperature). ValueError if one lattice, or all together, have more than
    `transitions` arcs of the composition. Thread-safe.
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
        acceptor: Acceptor | None = None,
        transitions: int = 33554432,
        threads: int = 1,
    ) -> None: ...
    def sample(
        self, uniforms: NDArray[np.float64], *, threads: int = 1
    ) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]:
        """Samples paths with uniforms [B, p, T] in [0, 1): tokens [B, p, T], q [B, p, T, K] by rank, ln q and lengths
        [B, p].
        """

    def rows(self, drafts: NDArray[np.int32], *, threads: int = 1) -> NDArray[np.float64]:
        """q [B, p, T, K] along drafts [B, p, T], padding -1. Rows after the first one of the padding, and after an
        impossible token, are 0.
        """

    def trees(
        self, *, nodes: int, threads: int = 1
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
        """The trees of the n most probable prefixes: columns as of `best_tree`, ties broken by ranks."""

    def logq(self, drafts: NDArray[np.int32], *, threads: int = 1) -> NDArray[np.float64]:
        """ln q [B, p] of drafts [B, p, T], padding -1; -inf if a token is impossible."""

def count_windows(
    parts: Sequence[NDArray[np.uint16] | NDArray[np.uint32] | NDArray[np.int32]],
    *,
    order: int,
    vocab_size: int,
    end_of_text: int,
    starts: Sequence[int],
) -> tuple[bytes, list[int], int, int]:
    """Sorts and counts the windows of a text into a run: its bytes, the offsets of its slices and of the end, the
    number of distinct windows, the number of tokens.

    parts   arrays [n] of whole documents, each followed by an end of text; the last one may lack it; ids in [0, V)
    starts  ascending tokens: a window belongs to slice i if its last token but one is in [starts[i - 1], starts[i]);
            empty: one slice
    """

def run_of_windows(
    offsets: NDArray[np.int64],  # [n + 1] into tokens
    tokens: NDArray[np.int32],  # in [0, V)
    counts: NDArray[np.int64],  # [n], at least 1
    *,
    order: int,
    vocab_size: int,
    end_of_text: int,
    starts: Sequence[int],
) -> tuple[bytes, list[int], int, int]:
    """As `count_windows`, from n windows already counted, in any order.

    A window has N tokens, or begins with `end_of_text`.
    """

@final
class RunSlices:
    """One slice of several runs, merged. It is read once, by one of `LevelBuilder.add`, `spell` and `write`.

    sources  bytes, or (path, begin, end) of a file; ValueError where the data are damaged
    """

    def __init__(
        self,
        sources: Sequence[bytes | tuple[str, int, int]],
        *,
        order: int,
        vocab_size: int,
        end_of_text: int,
    ) -> None: ...
    def spell(self, windows: int) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], bool]:
        """The next windows, at most `windows`: offsets [n + 1] into tokens, counts [n], and whether more may follow."""

    def write(self, windows: int) -> tuple[bytes, int, bool]:
        """The next windows, at most `windows`, as bytes of a slice of a run; their number; whether more may follow."""

@final
class LevelBuilder:
    """Builds the n-grams of every order from windows in ascending order.

    min_counts  the smallest count kept for each of orders 1..N, non-decreasing
    most        counts of counts are kept for counts 1..most
    adjusted    also compute the adjusted counts of Kneser-Ney: the number of distinct tokens seen before an n-gram; for
                order N, and for n-grams that begin with the end of text, the plain count
    """

    def __init__(
        self,
        *,
        order: int,
        vocab_size: int,
        end_of_text: int,
        min_counts: Sequence[int],
        most: int,
        adjusted: bool = False,
    ) -> None: ...
    def add(self, slices: RunSlices, windows: int) -> bool:
        """Reads at most `windows` windows of a merged slice; returns whether more may follow."""

    def finish(self) -> None:
        """Ends the input."""

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
        """The contexts and n-grams completed since the last call, for orders 2..N: context_token, context_parent,
        context_total, context_end [C]; token, count [n]; adjusted totals [C] and counts [n], empty for order N and
        without `adjusted`.

        Parents and ends are numbered from the first context and n-gram of all calls.
        """

    def unigrams(self) -> NDArray[np.uint64]:
        """The count of each token so far, [V]."""

    def adjusted_unigrams(self) -> NDArray[np.uint64]:
        """The adjusted count of each token so far, [V]; [0] without `adjusted`."""

    @property
    def of_counts(self) -> list[list[int]]:
        """Counts of counts of orders 0..N (0 and 1 unused): [r] n-grams were seen r times, r = 1..most; [0] of them
        more often.
        """

    @property
    def of_adjusted(self) -> list[list[int]]:
        """Counts of adjusted counts, likewise; empty lists without `adjusted`."""

@final
class Level:
    """The n-grams of one order (`lm/model/grams.py`): C contexts, n n-grams, over arrays that the caller keeps alive.

    The constructor checks only sizes. The functions below check the bounds of every index: damaged arrays are a
    ValueError that names the entry, never an out-of-bounds read. They process the contexts from_ .. to - 1 and return
    values for these contexts, or their n-grams, alone. `below` is the order below, `above` the order above.
    """

    def __init__(
        self,
        context_token: NDArray[np.uint32],  # [C], empty for order 1
        context_parent: NDArray[np.uint32],  # [C], empty for order 1
        begin: NDArray[np.uint64],  # [C + 1], from 0 to n
        token: NDArray[np.uint32],  # [n]
    ) -> None: ...

def suffixes(level: Level, below: Level, from_: int, to: int) -> NDArray[np.uint32]:
    """For each n-gram hw, the number of h'w in the order below.

    ValueError if h'w is missing, here and in all functions that follow.
    """

def estimate(
    level: Level,
    below: Level,
    below_cost: NDArray[np.float64],  # n-grams of the order below
    count: NDArray[np.uint64],  # [n], at least 1
    total: NDArray[np.uint64],  # [C], count of all tokens after the context
    discount: NDArray[np.float64],  # for counts 1, 2, ..; the last one for all greater counts
    from_: int,
    to: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Katz: costs of the n-grams and backoff costs of the contexts."""

def kneser_ney(
    level: Level,
    below: Level,
    below_cost: NDArray[np.float64],  # n-grams of the order below
    count: NDArray[np.uint64],  # [n], adjusted, at least 1
    total: NDArray[np.uint64],  # [C], adjusted, over all n-grams, kept or not
    discount: NDArray[np.float64],  # [3], for adjusted counts 1, 2 and greater
    from_: int,
    to: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Interpolated modified Kneser-Ney: costs of the n-grams and backoff costs of the contexts."""

def normalise(
    level: Level, below: Level, below_cost: NDArray[np.float64], cost: NDArray[np.float64], from_: int, to: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Normalises every context to sum to one: costs of the n-grams, scaled where a context left no mass, and backoff
    costs.
    """

def sums(
    level: Level,
    below: Level,
    below_cost: NDArray[np.float64],
    cost: NDArray[np.float64],
    backoff: NDArray[np.float64],  # [C]
    below_sum: NDArray[np.float64],  # contexts of the order below
    from_: int,
    to: int,
) -> NDArray[np.float64]:
    """The sum of the probabilities of all tokens after each context."""

def first_by_last_token(level: Level, below_first: NDArray[np.uint32], vocab_size: int) -> NDArray[np.uint32]:
    """For each token, the first context of an order whose last token is not less, [V + 1]. below_first: the same for
    the order below; empty for order 2.
    """

def link(
    level: Level,
    below: Level,
    below_link: NDArray[np.uint32],  # the result of this function for the order below; empty for order 1
    above: Level,
    above_first: NDArray[np.uint32],  # [V + 1], `first_by_last_token` of `above`
    cursor: NDArray[np.uint32],  # [V], initially above_first[:-1]; modified
    from_: int,
    to: int,
) -> NDArray[np.uint32]:
    """The number of each n-gram among the contexts of the order above; 2^32 - 1 if it is not one.

    Call it on consecutive ranges, starting at the first context.
    """

def context_logps(
    level: Level,
    cost: NDArray[np.float64],
    logp: NDArray[np.float64],  # [C], ln p(h)
    link: NDArray[np.uint32],  # [n]
    above: NDArray[np.float64],  # output: ln p of those contexts of the order above that are n-grams of the range
    from_: int,
    to: int,
) -> None:
    """Computes ln p of contexts by the chain rule."""

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
    """The relative-entropy loss of dropping each n-gram alone: D of Stolcke (cs/0006025)."""

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
    """The largest loss among each n-gram and its dependents in the order above; and the largest of each context."""

def select(
    level: Level,
    score: NDArray[np.float64],
    limit: float,
    cost: NDArray[np.float64],
    below_number: NDArray[np.uint32],  # new numbers of the contexts of the order below; [0] for order 2
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
    """Keeps the n-grams whose score is above `limit`: the remaining contexts, their first tokens, parents and numbers
    of n-grams; tokens and costs.
    """

def next_states(
    level: Level,
    below: Level,
    link: NDArray[np.uint32],  # [n], empty for the highest order
    below_next: NDArray[np.uint32],  # the result of this function for the order below; empty for order 1
    first_state: int,  # the first state of the order above
    from_: int,
    to: int,
) -> NDArray[np.uint32]:
    """The state after each n-gram: its own state as a context, or its longest suffix's."""
