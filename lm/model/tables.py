"""A backoff model as tables: the output of estimation and pruning, from which files are written."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from mmap import MADV_DONTNEED
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rescore import _core
from rescore.lattice.atomic import os_errors_of
from rescore.lattice.short_repr import short_repr
from rescore.lm.model.grams import NO_CONTEXT, NOTHING, Grams, check_vocabulary, pack, spell


class BadRow(ValueError):
    """An n-gram that fits no model: its order, its row in the caller's numbering, and the reason."""

    def __init__(self, order: int, row: int, tokens: list[int], why: str) -> None:
        super().__init__(f"{order}-gram {tokens} {why}")
        self.order, self.row, self.why = order, row, why


Rows = list[NDArray[np.uint32]]
Values = list[NDArray[np.float64]]


def close_suffixes(
    rows: Sequence[NDArray[np.uint32]], cost: Sequence[NDArray[np.float64]], backoff: Sequence[NDArray[np.float64]]
) -> tuple[Rows, Values, Values]:
    """Adds h'w for every hw that lacks it, with cost NaN and backoff cost 0."""
    closed, costs, backoffs = list(rows), [np.array(c, np.float64) for c in cost], [np.array(b) for b in backoff]
    for n in range(len(closed), 2, -1):
        shorter = closed[n - 2]
        rank = ranks(np.concatenate([shorter, closed[n - 1][:, 1:]]))
        wanted, first = np.unique(rank[len(shorter) :], return_index=True)
        lacking = closed[n - 1][first[~np.isin(wanted, rank[: len(shorter)])], 1:]
        closed[n - 2] = np.concatenate([shorter, lacking])
        costs[n - 2] = np.concatenate([costs[n - 2], np.full(len(lacking), np.nan)])
        backoffs[n - 2] = np.concatenate([backoffs[n - 2], np.zeros(len(lacking))])
    return closed, costs, backoffs


def with_backoff(rows: Sequence[NDArray[np.uint32]], backoff: Sequence[NDArray[np.float64]]) -> list[NDArray[np.bool_]]:
    """Which n-grams of orders 1..N-1 are contexts because they, or longer ones that end in them, have backoff costs."""
    marked = [own != 0 for own in backoff]
    for n in range(len(marked), 1, -1):
        shorter = rows[n - 2]
        rank = ranks(np.concatenate([shorter, rows[n - 1][marked[n - 1], 1:]]))
        marked[n - 2] = marked[n - 2] | np.isin(rank[: len(shorter)], rank[len(shorter) :])
    return marked


def index_rows(
    levels: Sequence[Grams], rows: NDArray[np.uint32], also: NDArray[np.bool_]
) -> tuple[Grams, NDArray[np.int64], NDArray[np.int64]]:
    """Indexes n-grams of the next order after `levels`.

    Returns them in context order, the row of each, and for each context its index among the n-grams of the last level.

    also  bool [n], n-grams of the last level that are contexts even if no row needs them (and so are their suffixes)
    """
    below, order = levels[-1], len(levels) + 1
    context = _find_grams(levels, rows[:, :-1])
    _refuse(context < 0, rows, "has no context: without its last token it is not an n-gram of the model")
    grams = np.flatnonzero((np.bincount(context, minlength=len(below)) > 0) | also)
    spelled = spell(levels, order - 1)[grams]
    grams = grams[np.lexsort(tuple(spelled[:, place] for place in range(order - 1)))]  # lexsort: last key first
    spelled = spell(levels, order - 1)[grams]
    number = np.full(len(below), -1, np.int64)
    number[grams] = np.arange(len(grams))
    parent = _find_contexts(levels, spelled[:, 1:])
    assert not (parent < 0).any(), "close_suffixes and with_backoff come first"
    keys = pack(number[context], rows[:, -1])
    by_key = np.argsort(keys, kind="stable")
    twice = np.zeros(len(keys), bool)
    twice[by_key[1:]] = keys[by_key[1:]] == keys[by_key[:-1]]
    _refuse(twice, rows, "occurs twice")
    begin = np.zeros(len(grams) + 1, np.uint64)
    np.cumsum(np.bincount(number[context], minlength=len(grams)), out=begin[1:])
    level = Grams(
        context_token=spelled[:, 0].copy(), context_parent=parent.astype(np.uint32), begin=begin, token=rows[by_key, -1]
    )
    return level, by_key, grams


def _find_grams(levels: Sequence[Grams], rows: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The index of each row among the n-grams of the last level, -1 if it is not there."""
    return levels[-1].find(_find_contexts(levels, rows[:, :-1]), rows[:, -1])


def _find_contexts(levels: Sequence[Grams], rows: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The index of each row [m, length] among the contexts of order length + 1, -1 if it is not there."""
    found = np.zeros(len(rows), np.int64)
    for length in range(1, rows.shape[1] + 1):
        found = levels[length].find_context(found, rows[:, -length])
    return found


def ranks(rows: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """The lexicographic rank of each row, equal for equal rows: uint64 [n]."""
    rank = rows[:, 0].astype(np.uint64)
    for place in range(1, rows.shape[1]):
        _, inverse = np.unique(pack(rank, rows[:, place]), return_inverse=True)
        rank = inverse.reshape(-1).astype(np.uint64)
    return rank


def _refuse(wrong: NDArray[np.bool_], rows: NDArray[np.uint32], why: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise BadRow(rows.shape[1], row, rows[row].tolist(), why)


BLOCK = 1 << 20  # entries
RELEASE_SECONDS = 0.02  # each thread reads about 50 MB in this time
Parts = Iterable[Sequence[NDArray[Any]]]
Result = TypeVar("Result")


class Columns:
    """A store of named arrays, in memory."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def write(self, names: Mapping[str, DTypeLike], parts: Parts) -> list[NDArray[Any]]:
        """Concatenates parts, each with one array per name, into columns that are only read."""
        every = list(parts)
        return [
            np.concatenate([np.zeros(0, dtype), *(part[i] for part in every)], dtype=dtype)
            for i, dtype in enumerate(names.values())
        ]

    def fill(self, name: str, dtype: DTypeLike, length: int, body: Callable[[NDArray[Any]], None]) -> NDArray[Any]:
        """A column filled by `body`, which must write every entry, in any order."""
        array = np.empty(length, dtype)
        body(array)
        return array

    def release(self) -> None:
        """Frees pages of memory; call it between parts of long work."""


class Folder(Columns):
    """Columns as files NAME of raw little-endian numbers in a folder."""

    def __init__(
        self,
        path: Path,
        threads: int = 1,
        *,
        finished: dict[str, int] | None = None,
        maps: list[np.memmap[Any, Any]] | None = None,
        growing: Callable[[int], None] = lambda bytes: None,
        whole: Callable[[], None] = lambda: None,
    ) -> None:
        """
        finished  sizes in bytes of complete columns, which are opened and not rewritten; updated here
        maps      maps of this and other folders, which are released together
        growing   called before each part is written, with its bytes; may raise if there is no room
        whole     called after each completed column
        """
        super().__init__(threads)
        self.path, self._growing, self._whole = path, growing, whole
        self._finished = {} if finished is None else finished
        self._maps = [] if maps is None else maps
        path.mkdir(parents=True, exist_ok=True)

    def write(self, names: Mapping[str, DTypeLike], parts: Parts) -> list[NDArray[Any]]:
        if not self._are_finished(*names):
            with closing_generator(parts), os_errors_of(self.path), ExitStack() as stack:
                files = [stack.enter_context(open(self.path / name, "wb")) for name in names]
                for part in parts:
                    arrays = [
                        np.ascontiguousarray(array, dtype) for array, dtype in zip(part, names.values(), strict=True)
                    ]
                    self._growing(sum(array.nbytes for array in arrays))
                    for file, array in zip(files, arrays):
                        file.write(array.data)
            self._finish(*names)
        return [self.open(name, dtype) for name, dtype in names.items()]

    def fill(self, name: str, dtype: DTypeLike, length: int, body: Callable[[NDArray[Any]], None]) -> NDArray[Any]:
        if not self._are_finished(name):
            self._growing(length * np.dtype(dtype).itemsize)
            with os_errors_of(self.path), open(self.path / name, "wb") as file:
                if length:  # on a full disk, writing to the map of a sparse file kills the process
                    os.posix_fallocate(file.fileno(), 0, length * np.dtype(dtype).itemsize)
            body(self.open(name, dtype, "r+"))
            self._finish(name)
        return self.open(name, dtype)

    def _are_finished(self, *names: str) -> bool:
        return all(
            (self.path / name).exists() and self._finished.get(name) == (self.path / name).stat().st_size
            for name in names
        )

    def _finish(self, *names: str) -> None:
        self._finished.update({name: (self.path / name).stat().st_size for name in names})
        self._whole()

    def open(self, name: str, dtype: DTypeLike, mode: Any = "r") -> NDArray[Any]:
        """Opens a column written earlier."""
        if (self.path / name).stat().st_size == 0:
            return np.zeros(0, dtype)
        mapped = np.memmap(self.path / name, dtype, mode)
        self._maps.append(mapped)
        return mapped.view(np.ndarray)

    def release(self) -> None:
        for mapped in self._maps:
            mapped._mmap.madvise(MADV_DONTNEED)  # type: ignore[attr-defined]


@contextmanager
def closing_generator(parts: Iterable[Any]) -> Iterator[None]:
    """Closes the generator `parts` on leaving the block, so that no thread keeps writing to a folder after an error."""
    try:
        yield
    finally:
        if isinstance(parts, Generator):
            parts.close()


def blocks(columns: Columns, array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yields the array in parts and releases pages after each, so that the result need not fit in memory."""
    for at in range(0, len(array), BLOCK):
        yield array[at : at + BLOCK]
        columns.release()


def _releasing(future: Future[Result], columns: Columns) -> Result:
    """The result of a future. Releases pages while waiting: a single item may read much."""
    while not wait([future], RELEASE_SECONDS).done:
        columns.release()
    columns.release()
    return future.result()


def in_order(columns: Columns, work: Callable[..., Result], items: Iterable[Sequence[Any]]) -> Iterator[Result]:
    """Yields work(*item) for every item, in order, computed a few items ahead on the threads of `columns`. An error of
    `items` comes after the results of the items before it.
    """
    with ThreadPoolExecutor(columns.threads) as pool:
        ahead: deque[Future[Result]] = deque()
        try:
            for future in _begun(pool, work, items):
                ahead.append(future)
                if len(ahead) > columns.threads:
                    yield _releasing(ahead.popleft(), columns)
            while ahead:
                yield _releasing(ahead.popleft(), columns)
        finally:
            for future in ahead:
                future.cancel()


def _begun(
    pool: ThreadPoolExecutor, work: Callable[..., Result], items: Iterable[Sequence[Any]]
) -> Iterator[Future[Result]]:
    try:
        for item in items:
            yield pool.submit(work, *item)
    except Exception as error:
        failed: Future[Result] = Future()
        failed.set_exception(error)
        yield failed


def over_contexts(
    columns: Columns, names: Mapping[str, DTypeLike], work: Callable[..., Any], level: Grams, *given: Any
) -> list[NDArray[Any]]:
    """Columns of what `work`, a function of the core, returns for ranges of a level's contexts: one array or several.

    It is called with the level, `given` and the range.
    """

    def part(a: int, b: int) -> Sequence[NDArray[Any]]:
        found = work(native, *given, a, b)
        return found if isinstance(found, tuple) else (found,)

    native = level.native
    return columns.write(names, in_order(columns, part, level.ranges()))


# The cost of an impossible event, such as <s>; ARPA files write log10 -99 for it.
NEVER = 99.0 * float(np.log(10.0))
MAX_COST = 1e6 * float(np.log(10.0))  # of an event or of backing off: sums along a text stay finite in float32
ROUNDING = 1e-5  # the cost of an event may be this much below 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histories:
    """The counts of a model's contexts.

    count   N - 1 arrays uint64 [C] for the contexts of orders 2..N
    tokens  number of tokens in all
    """

    count: tuple[NDArray[np.uint64], ...]
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables:
    """A backoff model of order N over ids 0..V-1, in float64.

    levels   n-grams of orders 1..N (`grams.py`); order 1 holds every id
    cost     N arrays float64 [n], -ln p(w | h)
    backoff  N - 1 arrays float64 [C] for the contexts of orders 2..N, -ln bow
    bos      id of a begin-of-sentence word, a context that is never an event, or None
    eos      id of an end-of-sentence word, or None
    histories  counts of contexts, if the chain rule does not give their probabilities (Kneser-Ney); or None
    """

    levels: tuple[Grams, ...]
    cost: tuple[NDArray[np.float64], ...]
    backoff: tuple[NDArray[np.float64], ...]
    bos: int | None = None
    eos: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    histories: Histories | None = None

    __repr__ = short_repr

    @property
    def order(self) -> int:
        return len(self.levels)

    @property
    def vocab_size(self) -> int:
        return len(self.levels[0])

    @property
    def ngrams(self) -> tuple[int, ...]:
        """Number of n-grams of each order."""
        return tuple(len(level) for level in self.levels)

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[NDArray[Any]],
        cost: Sequence[NDArray[np.float64]],
        backoff: Sequence[NDArray[np.float64]],
        *,
        vocab_size: int,
        unseen_cost: float | None = None,
        bos: int | None = None,
        eos: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Tables:
        """Builds a model from n-grams given as rows of tokens, in any order.

        rows     tokens of each order n, integers [rows, n], ids below V
        cost     float64 [rows] for each order; backoff likewise, for orders 1..N-1
        unseen_cost  cost of ids without a unigram; None makes a missing unigram an error

        A missing suffix h'w of an n-gram hw is added with its backed-off probability, which changes no score (KenLM
        does the same). An n-gram whose context h is missing, or that occurs twice, is an error.
        """
        check_vocabulary(vocab_size, len(rows))
        rows = [_ids(own, order, vocab_size) for order, own in enumerate(rows, 1)]
        closed, costs, backoffs = close_suffixes(rows, cost, backoff)
        marked = with_backoff(closed, backoffs)
        levels = [Grams.unigrams(vocab_size)]
        done_cost = [_unigram_costs(closed[0][:, 0], costs[0], vocab_size, unseen_cost)]
        paid, also = np.zeros(vocab_size), np.zeros(vocab_size, bool)  # of the n-grams of the last level, as contexts
        if backoffs:
            paid[closed[0][:, 0]], also[closed[0][:, 0]] = backoffs[0], marked[0]
        context_cost: list[NDArray[np.float64]] = []
        for n in range(2, len(rows) + 1):
            level, order, as_gram = index_rows(levels, closed[n - 1], also)
            context_cost.append(paid[as_gram])
            own = costs[n - 1][order]
            blank = np.isnan(own)
            if blank.any():
                suffix = _core.suffixes(level.native, levels[-1].native, 0, level.contexts)
                own[blank] = (context_cost[-1][level.context()] + done_cost[-1][suffix])[blank]
            levels.append(level)
            done_cost.append(own)
            if n < len(rows):
                paid, also = backoffs[n - 1][order], marked[n - 1][order]
        return cls(
            levels=tuple(levels),
            cost=tuple(done_cost),
            backoff=tuple(context_cost),
            bos=bos,
            eos=eos,
            metadata=dict(metadata or {}),
        )

    @classmethod
    def from_ngrams(
        cls,
        ngrams: Mapping[tuple[int, ...], tuple[float, float]],
        *,
        vocab_size: int,
        unseen_cost: float | None = None,
    ) -> Tables:
        """Builds a small model from {tokens: (probability, backoff weight)}; the weight is 1 if it is not a context."""
        order = max(map(len, ngrams), default=0)
        rows, cost, backoff = [], [], []
        for n in range(1, order + 1):
            own = [(tokens, p, b) for tokens, (p, b) in ngrams.items() if len(tokens) == n]
            rows.append(np.array([tokens for tokens, _, _ in own] or NOTHING).reshape(len(own), n))
            cost.append(-np.log(np.array([p for _, p, _ in own], np.float64)))
            backoff.append(-np.log(np.array([b for _, _, b in own], np.float64)))
        return cls.from_rows(rows, cost, backoff[:-1], vocab_size=vocab_size, unseen_cost=unseen_cost)

    def spell(self, order: int) -> NDArray[np.uint32]:
        """The tokens of the n-grams of one order, uint32 [n, order], in context order."""
        return spell(self.levels, order)

    def sums(self) -> list[NDArray[np.float64]]:
        """The sums of the probabilities of all ids: after the empty context [1], then after those of each order [C]."""
        total = [np.array([np.exp(-self.cost[0]).sum()])]
        for level, below, below_cost, cost, backoff in zip(
            self.levels[1:], self.levels, self.cost, self.cost[1:], self.backoff
        ):
            args = (level.native, below.native, below_cost, cost, backoff, total[-1])
            total.append(_core.sums(*args, 0, level.contexts))
        return total

    def gram_backoffs(self) -> list[NDArray[np.float64]]:
        """The backoff costs of the n-grams of orders 1..N-1, float64 [n] each; NaN for those that are not contexts."""
        found = []
        for as_context, backoff in zip(links(self.levels), self.backoff):
            is_one = as_context != NO_CONTEXT
            cost = np.full(len(as_context), np.nan)
            cost[is_one] = backoff[as_context[is_one]]
            found.append(cost)
        return found


def links(levels: Sequence[Grams], columns: Columns | None = None) -> list[NDArray[np.uint32]]:
    """The index of each n-gram of orders 1..N-1 among the next order's contexts, or NO_CONTEXT: uint32 [n] each."""
    columns = columns or Columns()
    found: list[NDArray[np.uint32]] = []
    first = NOTHING
    for n, (level, above) in enumerate(zip(levels, levels[1:]), 1):
        below = levels[max(n - 2, 0)]
        first = _core.first_by_last_token(above.native, first, len(levels[0]))
        below_link = found[-1] if found else NOTHING
        cursor = first[:-1].copy()

        def parts(level=level, given=(below.native, below_link, above.native, first, cursor)):
            native = level.native
            for a, b in level.ranges():
                yield (_core.link(native, *given, a, b),)
                columns.release()

        found += columns.write({f"{n}.link": np.uint32}, parts())
    return found


def _ids(rows: NDArray[Any], order: int, vocab_size: int) -> NDArray[np.uint32]:
    if rows.dtype.kind not in "iu":
        raise TypeError(f"rows of order {order}: expected integers, got {rows.dtype}")
    for value in (int(rows.min()), int(rows.max())) if rows.size else ():
        if not 0 <= value < vocab_size:
            raise ValueError(f"rows of order {order}: expected ids in 0..{vocab_size - 1}, got {value}")
    return rows.astype(np.uint32, copy=False)


def _unigram_costs(
    tokens: NDArray[np.uint32], cost: NDArray[np.float64], vocab_size: int, unseen_cost: float | None
) -> NDArray[np.float64]:
    again = np.bincount(tokens, minlength=vocab_size) > 1
    if again.any():
        token = int(again.argmax())
        raise BadRow(1, int(np.flatnonzero(tokens == token)[1]), [token], "occurs twice")
    unigram = np.full(vocab_size, np.nan)
    unigram[tokens] = cost
    missing = np.isnan(unigram)
    if missing.any():
        if unseen_cost is None:
            raise ValueError(
                f"unigrams: expected all {vocab_size} ids, got none for id {int(missing.argmax())}; "
                "give unseen_cost for such ids"
            )
        unigram[missing] = unseen_cost
    return unigram
