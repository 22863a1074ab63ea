"""Samples many sequences at once from a backoff n-gram model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rescore.lm.model.ngram import NGram

# Costs are float32, so the mass left for a failure arc has an error of about 1e-7; less than this counts as none.
NOTHING = 1e-6


class Sampler:
    """Samples arcs of a model in constant expected time.

    A draw takes the first arc whose cumulative probability exceeds a uniform number u, by indexed search (Chen and
    Asau, 1974; Devroye, Non-Uniform Random Variate Generation, III.2.4): a state with n arcs stores where the search
    starts for each of n equal parts of [0, 1), and needs fewer than two steps on average. If u exceeds all arcs, the
    failure arc is taken.

    begin    int64 [S + 1], as in the model
    total    float64 [S], probability of all arcs of a state; above 1 if the failure arc has no mass
    within   float64 [A], cumulative probability of an arc within its state
    guide    uint32 [A], for arc i of a state of n arcs: the arc at which the search for u in [i / n, (i + 1) / n)
             begins
    """

    def __init__(self, model: NGram):
        arrays = model.arrays
        self.token, self.next, self.backoff = arrays.arc_token, arrays.arc_next, arrays.backoff_state
        self.begin = arrays.arc_begin.astype(np.int64)
        size = np.diff(self.begin)
        first = np.repeat(self.begin[:-1], size)  # for each arc, the first arc of its state
        running = np.zeros(len(self.token) + 1)
        np.cumsum(np.exp(-arrays.arc_cost.astype(np.float64)), out=running[1:])
        self.total = running[self.begin[1:]] - running[self.begin[:-1]]
        self.within = running[1:] - running[first]
        full = self.total > 1 - NOTHING
        full[0] = True
        self.total[full] = 2
        self.within[self.begin[1:][full] - 1] = 2
        self.guide = self._guide(first, np.repeat(size, size))

    def _guide(self, first: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.uint32]:
        part = (self.within * size).astype(np.int64)
        inside = part < size
        ends = np.zeros(len(first) + 1, np.int64)  # arcs that end in earlier parts
        np.cumsum(np.bincount((first + part)[inside], minlength=len(first)), out=ends[1:])
        return (first + ends[:-1] - ends[first]).astype(np.uint32)

    def sequences(
        self, start: int, shape: tuple[int, int], draw: np.random.Generator, shorten: float = 0.0
    ) -> NDArray[np.uint16] | NDArray[np.uint32]:
        """Rows of tokens, each from state `start`, in the dtype of the model's tokens.

        shorten  probability of replacing the context by the next shorter one before a token is drawn; 0 samples from
                 the model

        Rows advance independently: in a round each row draws once, and either writes a token or backs off to a shorter
        context.
        """
        out = np.empty(shape, self.token.dtype)
        cells = out.reshape(-1)
        cell = np.arange(shape[0]) * shape[1]  # next cell to write, for each row that is not full
        stop = cell + shape[1]
        context = np.full(shape[0], start, np.uint32)
        level = context.copy()  # the context, or the shorter one reached by failure arcs
        while len(cell):
            found, arc = self._arcs(level, draw.random(len(level)))
            token = self.token[arc]
            stays = self._admit(context, level, found, token)
            found, arc = found[stays], arc[stays]
            cells[cell[found]] = token[stays]
            cell[found] += 1
            after = self.next[arc]
            if shorten:
                after = np.where(draw.random(len(after)) < shorten, self.backoff[after], after)
            context[found] = level[found] = after
            going = cell < stop
            if not going.all():
                cell, stop, context, level = cell[going], stop[going], context[going], level[going]
        return out

    def _arcs(self, level: NDArray[np.uint32], u: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows whose u takes an arc, and that arc; `level` of the other rows follows the failure arc."""
        hit = u < self.total[level]
        missed = np.flatnonzero(~hit)
        level[missed] = self.backoff[level[missed]]
        found = np.flatnonzero(hit)
        state, u = level[found], u[found]
        begin = self.begin[state]
        size = self.begin[state + 1] - begin
        arc = self.guide[begin + (u * size).astype(np.int64)].astype(np.int64)
        low = np.flatnonzero(self.within[arc] <= u)
        while len(low):
            arc[low] += 1
            low = low[self.within[arc[low]] <= u[low]]
        return found, arc

    def _admit(
        self,
        context: NDArray[np.uint32],
        level: NDArray[np.uint32],
        found: NDArray[np.int64],
        token: NDArray[np.generic],
    ) -> NDArray[np.bool_]:
        """Which of the tokens, drawn at `level` in the rows `found`, are accepted.

        A failure arc is only for tokens without an arc. A token drawn after a failure arc that has an arc in a longer
        context is rejected, and the row draws again below the shortest such context. Accepted tokens follow
        p(. | shorter context) conditioned on having no arc, as in the model.
        """
        stays = np.ones(len(found), bool)
        row = np.flatnonzero(context[found] != level[found])
        longer = context[found[row]]
        lowest = level[found[row]]
        while len(row):
            has = self._has_arc(longer, token[row])
            longer = self.backoff[longer]
            stays[row[has]] = False
            level[found[row[has]]] = longer[has]
            more = longer != lowest
            row, longer, lowest = row[more], longer[more], lowest[more]
        return stays

    def _has_arc(self, state: NDArray[np.uint32], token: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Whether each state has an arc for its token, by simultaneous binary searches."""
        low, end = self.begin[state], self.begin[state + 1] - 1
        row = np.flatnonzero(low < end)
        first, last, wanted = low[row], end[row], token[row]
        while len(row):
            middle = (first + last) >> 1
            below = self.token[middle] < wanted
            first = np.where(below, middle + 1, first)
            last = np.where(below, last, middle)
            low[row] = first
            open_ = first < last
            row, first, last, wanted = row[open_], first[open_], last[open_], wanted[open_]
        return (low <= end) & (self.token[np.minimum(low, len(self.token) - 1)] == token)
