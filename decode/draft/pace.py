"""Pace: how wide a pass should be, from measured times of passes and the acceptance of earlier drafts.

A wide pass is expensive on a processor that one token keeps busy, and nearly free on an idle GPU. If no draft beats a
plain pass, drafting rests until searches have taken at most 1% of the time.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core

if TYPE_CHECKING:
    from rescore.decode.models.draft_step import LastPass
    from rescore.decode.models.target import FixedShapes, Target
    from rescore.lattice.tree import TokenTree, Trees

REMEMBERED = 5  # latest passes kept per width; the fastest counts, since other load on the machine only adds time
SURE = 2  # passes of a width from which it counts as measured: the first ones of a process are slow
# Shares of a plain pass that each further token of a row is taken to cost while nothing else is known: on a processor,
# and on an accelerator, where launching a pass takes longer than the arithmetic of hundreds of tokens.
PRIOR, ACCELERATOR_PRIOR = 0.05, 0.002
STEP = 8  # tokens of a row that a first pass may read
FAR = 4096  # tokens, more than a pass ever reads
AGEING = 256  # passes in which half of what is known of an unused width is forgotten
RENEWED = 16  # passes after which sizes are chosen by what is known then, though no time has changed
SAME = 0.01  # share of a width's time by which it has not changed
TRYING = 0.01  # share of the time that passes may take longer than was expected, before nothing is forgotten any more
# Edges of the bins of conditional q, a token's probability given the draft's tokens before it: finer towards 1, where
# most of the accepted tokens are.
EDGES = np.array([0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99])
CREDIT = 8.0  # tokens that each bin starts with, accepted as all have been
DECAY = 0.5 ** (1 / 512)  # weight of what was learned, per step: the next text may differ
VAIN = 0.01  # share of the time for searches that find nothing worth a pass
MARGIN = 1.02  # a batch's chains must promise this many times the tokens per second of plain decoding
CHAIN_NODES = 64  # of the trees from which chains are selected
LEAST_GAIN = 0.01  # a chain's token with a smaller acceptance probability is never verified
LONGEST_REST = 16  # steps
SIZES = (0, 1, 3, 7, 11, 15, 23, 31, 47, 63, 95, 127)  # few sizes of trees, so that shapes of passes recur
FIRST_STEP_NODES = 31  # nodes that a first step considers
MAX_NODES = SIZES[-1]
OTHERWISE = 16  # nodes whose search takes as long as the rest of drafting
UNTRIED = 8  # steps in which trees are not searched that were larger than what paid
TRIED = 4  # steps, one after another, in which another number of readings of a small model is tried
PROMISED = (1.5, 2.5, 5.0)  # tokens of a step that tell texts apart in which a small model is worth more or less
RECENT = 0.5 ** (1 / 128)  # weight of what a number of readings brought, per step with it
LATER = 0.01  # tokens that the target's prediction after a rejected node brings in later passes, where it is counted
LATER_NODES = 64  # beyond which they bring next to nothing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassCosts:
    """Seconds of a pass by its width, the tokens that it reads in all rows together.

    tokens   int64 [m], ascending
    seconds  float64 [m], non-decreasing, since a narrow pass can be padded
    """

    tokens: NDArray[np.int64]
    seconds: NDArray[np.float64]
    _of: dict[int, float] = field(default_factory=dict, init=False, repr=False)  # what `of` has returned

    def __post_init__(self) -> None:
        if self.tokens.ndim != 1 or self.tokens.shape != self.seconds.shape or not self.tokens.size:
            raise ValueError(
                f"expected tokens and seconds of equal length, at least 1, got {self.tokens.shape} and "
                f"{self.seconds.shape}"
            )
        if self.tokens[0] < 1 or (np.diff(self.tokens) <= 0).any():
            raise ValueError(f"tokens: expected ascending numbers from 1, got {self.tokens.tolist()}")
        if not (np.isfinite(self.seconds) & (self.seconds > 0)).all():
            raise ValueError(f"seconds: expected finite numbers above 0, got {self.seconds.tolist()}")

    @classmethod
    def of_times(cls, tokens: Sequence[int], seconds: Sequence[float]) -> PassCosts:
        """Makes costs from measured times. A time above that of a wider pass is noise and is lowered to it."""
        times = np.minimum.accumulate(np.asarray(seconds, np.float64)[::-1])[::-1]
        return cls(tokens=np.asarray(tokens, np.int64), seconds=times)

    def at(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Returns the seconds of passes of the given widths: interpolated between measured widths, and extrapolated
        beyond them with the last slope or the overall slope, whichever is steeper (equal times may be noise).

        A narrower pass than any measured takes a proportional share of the narrowest, the least it can take, so drafts
        do not look cheap against plain passes that were never measured.
        """
        tokens = np.asarray(tokens)
        inside: NDArray[np.float64] = np.interp(tokens, self.tokens, self.seconds) * np.minimum(
            tokens / self.tokens[0], 1
        )
        if len(self.tokens) < 2:
            return inside
        slopes = (self.seconds[-1] - self.seconds[[0, -2]]) / (self.tokens[-1] - self.tokens[[0, -2]])
        beyond: NDArray[np.float64] = slopes.max() * np.maximum(tokens - self.tokens[-1], 0)
        return inside + beyond

    def of(self, tokens: int) -> float:
        """The same of one width; asked for again, it takes no arithmetic."""
        seconds = self._of.get(tokens)
        if seconds is None:
            seconds = self._of[tokens] = float(self.at(tokens))
        return seconds


class PassTimes:
    """Seconds of a target's passes by width, the tokens that they read in all rows together.

    What is not known is taken to be cheap, so that it is tried where it would pay: a token costs what `prior` says
    until a width was measured, and what is known of an unused width goes back there as it ages. So a time that other
    load on the machine made long is measured again. Trying takes a small share of the time. Widths grow step by step:
    up to twice the widest that is known, a token costs half as much as so far, and beyond as much as a plain pass. If
    there are few widths, they need not: beyond the widest that is known, a token costs what `prior` says.
    """

    def __init__(self, prior: float = PRIOR, few: bool = False) -> None:
        self._prior, self._few, self._passes = prior, few, 0
        self._seconds: dict[int, tuple[float, ...]] = {}
        self._last: dict[int, int] = {}  # the number of each width's last pass
        self._costs: PassCosts | None = None  # the latest ones
        self._spent = self._tried = 0.0  # seconds of all passes, and of those beyond what was expected
        self.version = 0  # of what `costs` says, 0 where nothing is known; ageing alone changes it now and then

    def note(self, tokens: int, seconds: float) -> None:
        """Records a pass."""
        before = self._seconds.get(tokens, ())
        expected = self._costs.of(tokens) if self._costs and self._last else seconds
        self._spent, self._tried = self._spent + seconds, self._tried + max(seconds - expected, 0.0)
        self._seconds[tokens] = latest = (*before, seconds)[-REMEMBERED:]
        self._passes += 1
        self._last[tokens] = self._passes  # after them, since other threads read the seconds of the widths in it
        if len(before) < SURE or abs(min(latest) / min(before) - 1) > SAME or not self._passes % RENEWED:
            self.version += 1

    def known(self) -> list[int]:
        """Returns the widths that were measured, ascending."""
        return sorted([*self._last])  # of a copy: another thread may note a pass meanwhile

    def fastest(self, tokens: int) -> float | None:
        """Seconds of the fastest of the latest passes of a width; None if there was none."""
        return min(self._seconds[tokens]) if tokens in self._last else None

    def costs(self, rows: int) -> PassCosts:
        """Returns the costs of passes over `rows` rows, in seconds, or in plain passes if none was measured."""
        known = self.known()
        widths = [one for one in known if one == known[0] or len(self._seconds[one]) >= SURE] or [rows]
        fastest = np.array([self.fastest(one) or 1.0 for one in widths])
        # A time above that of a wider pass is noise.
        seconds = np.minimum.accumulate(fastest[::-1])[::-1]
        if self._tried <= TRYING * self._spent:
            prior = fastest[0] * (1 + self._prior * (np.array(widths) - widths[0]) / rows)
            aged = prior + np.array([self._trust(one) for one in widths]) * (seconds - prior)
            seconds = np.maximum.accumulate(np.where(seconds > prior, aged, seconds))
        slope = max(self._prior * seconds[0] / rows, (seconds[-1] - seconds[0]) / max(widths[-1] - widths[0], 1) / 2)
        if self._few:
            slope = self._prior * seconds[0] / rows
        next_width = max(2 * widths[-1], STEP * rows, FAR * self._few)
        next_seconds = seconds[-1] + slope * (next_width - widths[-1])
        widths += [next_width, next_width + FAR]
        seconds = np.append(seconds, [next_seconds, next_seconds + FAR * fastest[0] / rows])
        self._costs = costs = PassCosts(tokens=np.array(widths), seconds=seconds)
        return costs

    def _trust(self, tokens: int) -> float:
        return float(0.5 ** ((self._passes - self._last.get(tokens, self._passes)) / AGEING))


class AcceptanceRates:
    """How many tokens were accepted, of those that q let expect, by conditional q; updated as drafts are verified."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, len(EDGES) + 1))  # tokens accepted and expected
        self._steps = 0  # since the counts were last faded

    def corrected(self, logq: NDArray[np.float32], parents: NDArray[np.int32]) -> NDArray[np.float64]:
        """Probabilities that the nodes of trees are accepted; 0 for padding, whose logq is -inf.

        Columns [n] of a `TokenTree`, or [B, n] of several trees; parents precede their children.
        """
        p = _core.acceptance(np.atleast_2d(logq), np.atleast_2d(parents), EDGES, self._faded(), CREDIT)
        return p.reshape(logq.shape)

    def note(self, trees: Sequence[TokenTree], accepted: Sequence[Sequence[int]]) -> None:
        """Counts verified trees, of which the nodes `accepted` were accepted, from the root token down.

        Their siblings were rejected. Descendants of rejected nodes were not tested and are not counted.
        """
        _core.count_accepted(
            self._faded(), EDGES, [tree.logq for tree in trees], [tree.parents for tree in trees], accepted
        )

    def fade(self) -> None:
        """Begins a step: earlier counts weigh a little less."""
        self._steps += 1

    def _faded(self) -> NDArray[np.float64]:
        """The counts as of this step."""
        if self._steps:
            self._counts *= DECAY**self._steps
            self._steps = 0
        return self._counts


class Pace:
    """Chooses the widths of passes with the most tokens per second: of trees, or of chains.

    times  where passes are noted; near: what costs come from until then
    rates  how many tokens were accepted, of those that q let expect

    A step that does not rest calls `begin`, `best` and `end`; from `end` to the next `begin` a pass is timed.
    """

    def __init__(
        self, times: PassTimes | None = None, rates: AcceptanceRates | None = None, near: PassTimes | None = None
    ):
        self.times, self.rates = times or PassTimes(), rates or AcceptanceRates()
        self._near = near or self.times
        self._pass: tuple[int, float] | None = None  # tokens of the current pass, and its start time
        self._rest = 0  # steps left

    def rests(self) -> bool:
        """Whether to skip drafting in this step."""
        if not self._rest:
            return False
        self._rest -= 1
        self._pass = None
        return True

    def begin(self, one_pass: bool = True) -> None:
        """Starts a step. one_pass: since `end`, that pass alone ran, and is noted."""
        if self._pass is not None and one_pass:
            tokens, began = self._pass
            self.times.note(tokens, time.perf_counter() - began)
        self._pass = None
        self.rates.fade()

    def move(self, times: PassTimes, near: PassTimes) -> None:
        """Goes on with passes of other times; the current one is not noted."""
        self.times, self._near, self._pass = times, near, None

    def costs(self, rows: int) -> PassCosts:
        """Seconds of passes over `rows` rows by width, as far as they are known."""
        return self._known.costs(rows)

    @property
    def version(self) -> tuple[PassTimes, int]:
        """Changes when costs do."""
        return self._known, self._known.version

    @property
    def _known(self) -> PassTimes:
        return self.times if self.times.version else self._near

    def best(
        self,
        gained: Sequence[float],
        seconds: Sequence[float],
        rows: int,
        drafting: Sequence[float],
        margin: float = 1.0,
        spent: float = 0.0,
    ) -> int:
        """Returns which pass brings the most tokens per second; the first, a plain pass, if no other brings `margin`
        times as many.

        gained    tokens that each pass is expected to bring in all rows
        seconds   what it is expected to take, by `costs`
        drafting  seconds of a step's other work, if it is made for this pass
        spent     further seconds of this step, of what later ones may leave out
        """
        rate = [tokens / (spent + other + taken) for tokens, other, taken in zip(gained, drafting, seconds)]
        best = rate.index(max(rate))
        if best and rate[best] >= margin * rate[0]:
            return best
        # Until a plain pass was measured its cost is the least possible, and drafts look too dear.
        known = self.times.fastest(rows) or self._near.fastest(rows)
        self._rest = min(int(max(drafting) / (VAIN * seconds[0])), LONGEST_REST) if known else 0
        return 0

    def end(self, tokens: int) -> None:
        """Ends a step's drafting: a pass over so many tokens starts."""
        self._pass = tokens, time.perf_counter()

    def least(self, rows: int, most: int) -> float:
        """Returns the q below which no token of a chain of at most `most` tokens pays; at least `LEAST_GAIN`."""
        seconds = self.costs(rows).at(np.arange(rows, rows * (1 + most) + 2))
        return float(np.clip(np.diff(seconds).min() / seconds[0] * rows, LEAST_GAIN, 1.0))

    def lengths(self, chains: Sequence[TokenTree], drafting: float) -> list[int]:
        """Returns how many tokens of each request's chain bring the most tokens per second together: those most likely
        to be accepted, whatever their chain. drafting: seconds that this step has taken so far.
        """
        rows, longest = len(chains), max(one.size for one in chains)
        logq = np.full((rows, longest), -np.inf, np.float32)
        for row, one in zip(logq, chains):
            row[: one.size] = one.logq
        p = self.rates.corrected(logq, np.tile(np.arange(-1, longest - 1, dtype=np.int32), (rows, 1)))
        drafted = np.arange(longest) < np.array([[one.size] for one in chains])
        chain, p = np.nonzero(drafted)[0], p[drafted]
        order = np.argsort(-p, kind="stable")
        gained = rows + np.append(0.0, np.cumsum(p[order]))
        seconds = self.costs(rows).at(rows + np.arange(len(gained)))
        taken = order[: self.best(gained.tolist(), seconds.tolist(), rows, [drafting] * len(gained), MARGIN)]
        lengths: list[int] = np.bincount(chain[taken], minlength=rows).tolist()
        return lengths


_times: WeakKeyDictionary[Target, dict[tuple[int, int], PassTimes]] = WeakKeyDictionary()
_rates: WeakKeyDictionary[Target, AcceptanceRates] = WeakKeyDictionary()


class AutoWidth:
    """Chooses the size of each step's trees, at most `most` nodes, to maximise tokens per second.

    A tree of n nodes is the first n of a larger one, so one search gives all sizes, and the tokens that each is
    expected to yield under q: one root token per request, plus every node's acceptance probability.

    Costs of passes are kept per target for the life of the process, by the length of the prompts: after long texts,
    wide passes cost more relative to plain ones. A new length starts from the costs of the nearest one.

    A target with `most_paths` reads at most so many paths in the trees of a pass. One with `fixed` passes takes trees
    of their sizes; what these cost is kept by the rows of a pass, since the text's length matters little.
    """

    def __init__(self, target: Target, *, most: int = MAX_NODES):
        if not 1 <= most <= 1024:
            raise ValueError(f"most: expected trees of 1..1024 nodes, got {most}")
        self.target, self.most = target, most

    def open(self, requests: int, length: int = 1, *, learns: bool = False) -> WidthSession:
        """Opens a session. length: of the longest prompt; learns: whether predictions after rejected nodes count."""
        rates = _rates.setdefault(self.target, AcceptanceRates())
        most = min(self.most, max(1, getattr(self.target, "most_paths", MAX_NODES * requests) // requests))
        times, near = self._known(length, _rows(self._fixed, requests))
        pace, later = Pace(times, rates, near), LATER if learns else 0.0
        return WidthSession(pace, requests, most, later, self._fixed, lambda rows: self._known(length, rows))

    def plain_s(self, requests: int, length: int = 1) -> float | None:
        """Returns the shortest of the latest times of a plain pass; None if none was measured. Arguments: as `open`."""
        rows = _rows(self._fixed, requests)
        times, near = self._known(length, rows)
        return times.fastest(rows) or near.fastest(rows)

    @property
    def _fixed(self) -> FixedShapes | None:
        return getattr(self.target, "fixed", None)

    def _known(self, length: int, rows: int) -> tuple[PassTimes, PassTimes]:
        """The times of passes of `rows` rows for prompts of this length, and those that a session starts from."""
        known = _times.setdefault(self.target, {})
        key = (0, rows) if self._fixed else (length.bit_length(), 0)
        others = [other for other in [*known] if other[1] == key[1] and known[other].known()]
        near = min(others, key=lambda one: abs(one[0] - key[0]), default=key)
        prior = PRIOR if self.target.device.type == "cpu" else ACCELERATOR_PRIOR
        times = known.setdefault(key, PassTimes(prior, self._fixed is not None))
        return times, known[near]


def _rows(fixed: FixedShapes | None, requests: int) -> int:
    """The rows of a pass over so many requests."""
    return fixed.rows(requests) if fixed else requests


def forget(target: Target) -> None:
    """Drops what the process has learned of a target: the next call drafts as a process's first one."""
    _times.pop(target, None)
    _rates.pop(target, None)


class Readings:
    """How many times a step reads a small model before it drafts, up to `most`: as often as brings the most tokens per
    second, by what steps with each number have brought where the text alone promised about as many tokens. Other
    numbers are tried again as long as that has taken at most `TRYING` of the time.
    """

    def __init__(self, most: int) -> None:
        self._tokens, self._seconds, self._steps, self._seen = np.zeros((4, len(PROMISED) + 1, most + 1))
        self._spent = np.zeros(2)  # seconds of all steps, and those that other numbers than the best one cost
        # Tokens that the text alone promised in this step, and their place in PROMISED.
        self._text, self._place = 1.0, 0
        self._number, self._left = most, 0  # readings of the current steps, and how many more of these there are
        self._tries = False  # whether that number is not known to be the best
        self._skipped = TRIED  # steps since the last reading
        self._began: float | None = None

    def open(self) -> Readings:
        """Of one call: it begins anew, with what is known."""
        session = copy(self)
        session._left, session._skipped, session._began = 0, TRIED, None
        return session

    def begin(self, tokens: float, usual: bool = True) -> None:
        """Starts a step. tokens: of each request, that the last one promised; usual: whether its time counts."""
        now, number = time.perf_counter(), self._number
        if self._began is not None and usual:
            seconds = now - self._began
            if not (self._tries and number and self._skipped >= TRIED):  # else it read much text for few steps
                at = self._place, number
                for kept, new in ((self._tokens, tokens), (self._seconds, seconds), (self._steps, 1.0)):
                    kept *= DECAY
                    kept[at] = kept[at] * RECENT + new
                self._seen[at] += 1
            rates = self._rates()
            if number != rates.argmax() and rates.any():
                self._spent[1] += max(0.0, seconds - tokens / rates.max())
            self._spent[0] += seconds
            self._skipped = 0 if number else self._skipped + 1
        self._began = now

    def choose(self, text: float) -> int:
        """How many times to read in this step. text: tokens of each request that it promises without."""
        self._text, self._place = text, int(np.searchsorted(PROMISED, text))
        if self._left:
            self._left -= 1
            return self._number
        new = [number for number in (self._seen.shape[1] - 1, 0) if self._seen[:, number].sum() < TRIED]
        if new and text > PROMISED[0]:  # the text will do until it promises less
            new = [0]
        elif not new and self._spent[1] + self._cost() <= TRYING * self._spent[0]:
            new = [int(np.argmin(self._steps[self._place]))]
        self._tries = bool(new)
        self._number, self._left = (new[0], TRIED - 1) if new else (int(np.argmax(self._rates())), 0)
        return self._number

    def _cost(self) -> float:
        """Seconds that another number of readings may cost, in so many steps."""
        return TRIED * float(self._seconds.sum() / max(self._steps.sum(), 1e-9))

    def _rates(self) -> NDArray[np.float64]:
        """Tokens per second of such a step, 0 where nothing is known. A number that was hardly tried where the text
        promises as many brings what it does elsewhere, or what the text promises.
        """
        at = self._place
        seconds, steps = self._seconds.sum(axis=0), np.maximum(self._steps.sum(axis=0), 1e-9)
        elsewhere = np.maximum(self._tokens.sum(axis=0) / steps, self._text)
        elsewhere[0] = self._text
        rates = elsewhere / np.where(seconds > 0, seconds / steps, np.inf)
        here = self._tokens[at] / np.where(self._steps[at] > 0, self._seconds[at], np.inf)
        brings: NDArray[np.float64] = np.where(self._seen[at] < TRIED, rates, here)
        return brings


class WidthSession:
    """The sizes of one call's trees.

    A step calls `begin` and, if its pace does not rest, `size`, and then `end`. Acceptance probabilities under q are
    corrected by the acceptance of earlier nodes (`AcceptanceRates`).

    fixed  the passes, if they are of few shapes; known returns the times of those of so many rows, as `Pace` takes them
    """

    def __init__(
        self,
        pace: Pace,
        requests: int,
        most: int = MAX_NODES,
        later: float = 0.0,
        fixed: FixedShapes | None = None,
        known: Callable[[int], tuple[PassTimes, PassTimes]] | None = None,
    ):
        self.pace, self.requests, self._later = pace, requests, later
        self._fixed, self._known = fixed, known
        self.sizes = [*(n for n in (fixed.sizes if fixed else SIZES) if n < most), most]
        self._last, self._searched = FIRST_STEP_NODES, 0
        self.promised = 1.0  # tokens of each request that the last step was expected to bring
        self._untried = 0  # steps until larger trees are searched again, where passes are fixed
        self._tail: int | None = None
        self._costs: tuple[Any, PassCosts] | None = None  # what they are of, and the latest

    @property
    def wanted(self) -> int:
        """Nodes of the trees to pass to `size`: about twice as many as in the last step, or more. Where passes are
        fixed, as many as in the last step for a while after more did not pay: the search is then what trees cost.
        """
        most = self._last if self._fixed and self._untried else 2 * self._last + 1
        return self.sizes[bisect_right(self.sizes, max(most, FIRST_STEP_NODES)) - 1]

    def begin(self, requests: int, last: Sequence[LastPass] = (), tail: int | None = None) -> None:
        """Starts a step of so many requests and ends the timing of the last pass. last, tail: of the step."""
        before, self.requests = _rows(self._fixed, self.requests), requests
        if self._fixed and self._known and (rows := _rows(self._fixed, requests)) != before:
            self.pace.move(*self._known(rows))
        self.pace.begin(one_pass=all(one.usual for one in last))
        self._tail = tail
        if drafted := [one for one in last if one.tree.size]:
            self.pace.rates.note([one.tree for one in drafted], [one.accepted for one in drafted])

    def size(self, trees: Trees, room: Sequence[int], drafting: float = 0.0, spent: float = 0.0) -> int:
        """Returns the number of nodes for this step's trees; 0 if a plain pass yields more.

        trees: the largest ones; room: the most tokens that each request can still use; drafting: seconds that this step
        has taken so far, without those `spent` on what later steps may leave out.
        """
        sizes, promised, seconds = self._expected(trees, room)
        self._searched = sizes[-1]
        gained = [len(trees) * (tokens + self._later * min(n, LATER_NODES)) for n, tokens in zip(sizes, promised)]
        other = [drafting] * len(sizes)
        if self._fixed:
            other = [drafting * (OTHERWISE + n) / (OTHERWISE + self._searched) for n in sizes]
        best = self.pace.best(gained, seconds, _rows(self._fixed, len(trees)), other, spent=spent)
        self.promised = promised[best]
        return sizes[best]

    def promise(self, trees: Trees, room: Sequence[int]) -> float:
        """Tokens of each request that a pass over trees of the best size is expected to bring. Arguments: as `size`."""
        _, promised, seconds = self._expected(trees, room)
        return max(zip(promised, seconds), key=lambda one: one[0] / one[1])[0]

    def _expected(self, trees: Trees, room: Sequence[int]) -> tuple[list[int], list[float], list[float]]:
        """Sizes of trees, the tokens of each request that passes over them are expected to bring, and their seconds."""
        p = self.pace.rates.corrected(trees.logq, trees.parents)
        rows, nodes = p.shape
        if min(room) < nodes:
            p[trees.depths > np.array(room)[:, None]] = 0
        sizes = [*(n for n in self.sizes if n < nodes), nodes]
        key = self.pace.version, rows
        if self._costs is None or self._costs[0] != key:
            self._costs = key, self.pace.costs(_rows(self._fixed, rows))
        costs = self._costs[1]
        seconds = [costs.of(self._tokens(n)) for n in sizes]
        sums = p.sum(axis=0).cumsum().tolist()
        accepted = [sums[n - 1] if n else 0.0 for n in sizes]
        if self._tail is not None:
            # Unless every draft is accepted whole, the next pass reads what is new once more: root tokens and what was
            # accepted. It is charged with what it takes longer than one over a token of each row.
            whole = np.concatenate((np.ones((rows, 1)), p), axis=1)[:, sizes]
            rejected, accepted_whole = 1 - whole.prod(axis=0), whole.sum(axis=0)
            again = (rows - accepted_whole) * (self._tail + 1) + accepted - np.array(sizes) * accepted_whole
            longer = rejected * (costs.at(rows + again / np.maximum(rejected, 1e-9)) - costs.at(rows))
            seconds = (seconds + longer).tolist()
        return sizes, [1 + tokens / rows for tokens in accepted], seconds

    def end(self, nodes: int) -> None:
        """Ends drafting, with trees of at most `nodes` nodes, and starts the timing of their pass."""
        if nodes == self._last < self._searched:
            self._untried = UNTRIED
        self._untried = max(0, self._untried - 1) if nodes >= self._last else 0
        self._last = nodes
        self.pace.end(self._tokens(nodes))

    def _tokens(self, nodes: int) -> int:
        """Tokens that a pass over trees of so many nodes reads in all rows."""
        nodes = self._fixed.nodes(nodes) if self._fixed else nodes + (self._tail or 0)
        return _rows(self._fixed, self.requests) * (1 + nodes)
