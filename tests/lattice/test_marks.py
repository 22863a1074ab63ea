"""Structures behind a mark in free text, against all texts of a small vocabulary."""

import itertools
import random
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import refuses

from rescore.lattice.marks import After
from rescore.lattice.spelling import Spelling
from rescore.lattice.structure import Acceptor, begin

SPELT = [b"a", b"b", b"ab", b" ", b"x", b"y", b"bx", b"b y", b"aab x", b"xy", b"ba", b"", b"</s>"]
END = len(SPELT) - 1
V = 40
SPACE = " "
ARCS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, END - 1), st.integers(0, 3)), min_size=1, max_size=8)


def spelt(tokens):
    return b"".join(SPELT[token] for token in tokens).decode()


class Oracle:
    """Reads a text of tokens as a whole. What a token brings along behind the mark may be any tokens of its text."""

    def __init__(self, arcs, final, mark, exact, required):
        self.arcs, self.final, self.mark, self.exact, self.required = arcs, final, mark, exact, required
        self.useful = {*final}
        for _ in range(4):
            self.useful |= {state for state, _, to in arcs if to in self.useful}

    def states(self, tokens):
        """Of the acceptor, after tokens; "free" in front of the mark, "space" behind it."""
        for count in range(1, len(tokens) + 1):
            before, text = spelt(tokens[: count - 1]), spelt(tokens[:count])
            at = text.find(self.mark, max(0, len(before) - len(self.mark) + 1))
            if at >= 0:
                rest = text[at + len(self.mark) :]
                return self.behind(rest if self.exact else rest.lstrip(SPACE), tokens[count:])
        return "free"

    def behind(self, rest, tokens):
        states, tokens = {0}, list(tokens)
        while not rest and not self.exact and tokens and SPELT[tokens[0]].startswith(b" "):
            rest = SPELT[tokens.pop(0)].decode().lstrip(SPACE)
        if not rest and not tokens:
            return {0} if self.exact else "space"
        states = self.spelled(states, rest)
        for token in tokens:
            states = {to for state, of, to in self.arcs if state in states and of == token} & self.useful
        return states

    def spelled(self, states, rest):
        if not rest:
            return states
        found = set()
        for state, token, to in self.arcs:
            if state in states and to in self.useful and SPELT[token] and token != END:
                piece = SPELT[token].decode()
                if rest.startswith(piece):
                    found |= self.spelled({to}, rest[len(piece) :])
        return found

    def allows(self, tokens):
        return bool(self.states(tokens))

    def accepts(self, tokens):
        states = self.states(tokens)
        if states == "free":
            return not self.required
        return 0 in self.final if states == "space" else bool(states & self.final)


@settings(max_examples=60, deadline=None)
@given(ARCS, st.sampled_from(["ab", "aab", "b", "aba"]), st.booleans(), st.booleans(), st.integers(0, 2**32))
def test_against_all_texts(arcs, mark, exact, required, seed):
    """Every token after random texts, of which many hold the mark."""
    arcs = [*{(state, token): (state, token, to) for state, token, to in arcs}.values()]
    oracle = Oracle(arcs, {3}, mark, exact, required)
    if 0 not in oracle.useful:
        return
    structure = After(Acceptor(arcs, final=[3]), mark, Spelling(SPELT, special={END}), exact=exact, required=required)
    rng, start = random.Random(seed), structure.start(V, {END})
    for _ in range(20):
        state, text = start, []
        for _ in range(8):
            allowed = {*np.flatnonzero(state.mask()).tolist()}
            every = {token for token in range(V) if token < END and oracle.allows([*text, token])}
            every |= {token for token in range(END + 1, V) if oracle.states(text) == "free"}
            assert allowed == every | ({END} if oracle.accepts(text) else set()), text
            assert state.accepting == oracle.accepts(text)
            assert state.free == (len(allowed) == V)
            if not allowed - {END}:
                break
            known = [token for token in allowed if token < END]
            text.append(rng.choice(known or [*allowed - {END}]))
            state = state.step(text[-1])
            if text[-1] > END:
                break


@pytest.mark.parametrize("before", range(4))
def test_every_way_in_which_a_mark_lies_in_tokens(before):
    """The mark and `x` behind it, cut into tokens in all ways, behind other text; then x x is the whole structure."""
    text, whole = "ab" * before + "<<>>xx", []
    cuts = range(1, len(text))
    ways = [way for count in range(len(text)) for way in itertools.combinations(cuts, count)]
    pieces = sorted({text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)})
    spelling = Spelling([piece.encode() for piece in pieces])
    x, xx = pieces.index("x"), pieces.index("xx")
    structure = After(Acceptor([(0, x, 1), (1, x, 2), (0, xx, 2)], final=[2]), "<<>>", spelling, required=True)
    for way in ways:
        ends = [0, *way, len(text)]
        tokens = [pieces.index(text[i:j]) for i, j in itertools.pairwise(ends)]
        state = structure.start(len(pieces) + 1, {len(pieces)})
        for token in tokens:
            assert not state.accepting
            state = state.step(token)
        whole.append(state.accepting and np.flatnonzero(state.mask()).tolist() == [len(pieces)])
    assert all(whole) and len(whole) == 2 ** (len(text) - 1)


def test_marks_of_ids_and_in_prompts():
    spelling = Spelling(SPELT)
    inner = Acceptor([(0, 4, 1), (1, 5, 2)], final=[2])  # x y
    by_ids = After(inner, [2, 1], exact=True)
    state = begin(by_ids, V, {END}, [])
    assert state.free and state.step(0).free and state.step(2).free
    inside = state.after([2, 2, 1])
    assert np.flatnonzero(inside.mask()).tolist() == [4] and not inside.accepting
    assert np.flatnonzero(begin(by_ids, V, {END}, [0, 2, 1]).mask()).tolist() == [4]
    assert np.flatnonzero(begin(by_ids, V, {END}, [2, 1, 4]).mask()).tolist() == [5]
    assert begin(by_ids, V, {END}, [2, 1, 5]).free
    skipping = begin(After(inner, [2, 1], spelling), V, {END}, [0, 2, 1])
    assert np.flatnonzero(skipping.mask()).tolist() == [3, 4] and skipping.step(3).after([4, 5]).accepting
    text = After(inner, "ab", spelling)
    for prompt, allowed in (
        ([2], [3, 4]),
        ([2, 3], [3, 4]),
        ([2, 4], [5]),
        ([0, 6], [5]),
        ([2, 4, 4], None),
    ):
        state = begin(text, V, {END}, prompt)
        assert state.free if allowed is None else np.flatnonzero(state.mask()).tolist() == allowed, prompt
    half = begin(text, V, {END}, [0])  # of the mark, which b completes
    assert np.flatnonzero(half.step(1).mask()).tolist() == [3, 4] and half.step(6).step(5).accepting
    refuses(ValueError, lambda: After(inner, "", spelling), "mark")
    refuses(ValueError, lambda: After(inner, "ab"), "spelling")
    for mark in ([V], [-1], [0, V]):
        refuses(ValueError, partial(begin, After(inner, mark, exact=True), V, {END}, ()), "mark", V, mark)
