"""Pace: the size of trees by worked examples, times of passes, and acceptance learned by what q says."""

import gc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.drafts import Trusting, tree_of
from support.refusals import refused, refuses

from rescore import _core
from rescore.decode.draft import pace
from rescore.decode.draft.pace import EDGES, PRIOR, AcceptanceRates, AutoWidth, Pace, PassTimes, Readings, WidthSession
from rescore.decode.models.draft_step import LastPass
from rescore.lattice.tree import TokenTree, Trees


class Target:
    """What is known of a target: where it is."""

    def __init__(self, device="cpu"):
        self.device = SimpleNamespace(type=device)


# Node 2 is a child of node 0, node 4 of node 1.
TREE = TokenTree.from_parents(range(7), (-1, -1, 0, 0, 1, 2, 2))
LOGQ = np.log(np.array([[0.6, 0.3, 0.2, 0.1, 0.05, 0.04, 0.03]], np.float32))


def trees_of(logq=LOGQ, parents=TREE.parents, depths=TREE.depths):
    """A batch of trees of the same form; logq [B, n]."""
    batch, n = logq.shape
    columns = [np.tile(one[:n], (batch, 1)).astype(np.int32) for one in (np.arange(n), parents, depths)]
    count = np.full(batch, n, np.int32)
    return Trees(tokens=columns[0], parents=columns[1], depths=columns[2], logq=logq.astype(np.float32), count=count)


def siblings(n, q):
    return trees_of(np.full((1, n), np.log(q)), np.full(n, -1), np.ones(n))


def size(session, trees, drafting=0.0, room=16):
    return session.size(trees, [room] * len(trees), drafting)


def trusting(times, requests=1, **options):
    return WidthSession(Pace(times, Trusting()), requests, **options)


def rejected(n):
    """What a pass over the first n nodes said that accepted none."""
    return [LastPass(tree=replace(TREE, logq=LOGQ[0]).head(n), accepted=())]


def noted(found, *pairs):
    for tokens, seconds in pairs:
        for _ in range(pace.SURE):
            found.note(tokens, seconds)
    return found


def times(*pairs):
    return noted(PassTimes(), *pairs)


# Passes over 1, 2, 4 and 8 tokens take 10, 10, 12 and 20 ms: 2 ms more for each token above 4, 1 ms between 2 and 4.
TIMES = times((1, 0.010), (2, 0.010), (4, 0.012), (8, 0.020))
# A second token doubles the time, and the others are free.
STEP = times((1, 0.010), (2, 0.020), (9, 0.020))
BY_TOKEN = times((1, 0.010), (101, 0.110))  # 9 ms and 1 ms a token


def test_a_worked_example():
    """Trees of 0, 1, 3 and 7 nodes bring 1, 1.6, 2.1 and 2.32 tokens in 10, 10, 12 and 20 ms: 100, 160, 175, 116 a
    second.
    """
    tokens = 1 + np.append(0.0, np.cumsum(np.exp(LOGQ[0])))[[0, 1, 3, 7]]
    seconds = TIMES.costs(1).at([1, 2, 4, 8])
    np.testing.assert_allclose(tokens / seconds, [100, 160, 175, 116], rtol=1e-3)
    for margin, best in ((1.0, 2), (1.7, 2), (1.8, 0)):
        assert Pace(TIMES).best(tokens, seconds, 1, [0.0] * 4, margin) == best
    assert size(trusting(TIMES), trees_of()) == 3


def chain(*p):
    return trees_of(np.log(np.array([p])), np.arange(-1, len(p) - 1), np.arange(1, len(p) + 1))


@pytest.mark.parametrize(
    "costs, trees, wanted, more",
    [
        # 100 ms for the draft, beside which the passes' own time hardly counts: 2.32 / 120 is more than 2.1 / 112.
        (TIMES, trees_of(), 7, {"drafting": 0.1}),
        # Without depth 2, trees of 1 and 3 nodes bring 1.6 and 1.9 tokens in 10 and 12 ms: 160, 158 a second.
        (TIMES, trees_of(), 1, {"room": 1}),
        (TIMES, trees_of(), 0, {"room": 0}),
        # Trees of 3 nodes of 0.1 bring 1.3 tokens in 13.1 ms: 99 a second, with a hundredth more for each node 102.
        (times((1, 0.010), (2, 0.0111), (4, 0.0131)), siblings(3, 0.1), 0, {}),
        (times((1, 0.010), (2, 0.0111), (4, 0.0131)), siblings(3, 0.1), 3, {"later": 0.01}),
        # That holds for 64 nodes: 63 and 127 of next to nothing bring 1.64 and 1.65 tokens in 11.5 and 12.5 ms.
        (times((1, 0.010), (64, 0.0115), (128, 0.0125)), siblings(127, 1e-4), 63, {"later": 0.01}),
        # Chains of 0, 1 and 2 tokens bring 1, 1.6 and 1.9 tokens in 10, 11 and 12 ms: 100, 145, 158 a second.
        (BY_TOKEN, chain(0.6, 0.3), 2, {}),
        # With recurrent state 0.4 and 0.7 + 0.3 tokens are expected to be read again later: 100, 140, 146.
        (BY_TOKEN, chain(0.6, 0.3), 2, {"tail": 0}),
        # With a tail of 20 tokens 30, 11 + 20 + 0.4 * 21 and 12 + 20 + 0.7 * 21 + 0.3 ms: 33.3, 40.6, 40.4.
        (BY_TOKEN, chain(0.6, 0.3), 1, {"tail": 20}),
        # 1.3 tokens in 11 + 0.7 ms are more than 1 in 10; in 11 + 20 + 0.7 * 21 less than 1 in 30.
        (BY_TOKEN, chain(0.3), 1, {"tail": 0}),
        (BY_TOKEN, chain(0.3), 0, {"tail": 20}),
        # 2.1 tokens in 20 ms are more than 1 in 10, unless with probability 0.5 the next pass takes 20 ms and not 10.
        (STEP, chain(0.6, 0.5), 2, {}),
        (STEP, chain(0.6, 0.5), 0, {"tail": 0}),
    ],
)
def test_sizes_by_hand(costs, trees, wanted, more):
    session = trusting(costs, later=more.get("later", 0.0))
    session.begin(1, tail=more.get("tail"))
    assert size(session, trees, more.get("drafting", 0.0), more.get("room", 16)) == wanted


def test_a_call_follows_times_that_change():
    """Trees of 3 nodes take as long as those of 7: 1.6 tokens in 10 ms are more than 2.1 in 20."""
    known = times((1, 0.010), (2, 0.010), (4, 0.012), (8, 0.020))
    session = trusting(known)
    assert size(session, trees_of()) == 3
    for _ in range(pace.REMEMBERED):
        known.note(4, 0.050)
    assert size(session, trees_of()) == 1


def test_a_batch_pays_for_all_rows():
    """Two rows: trees of 0, 1 and 3 nodes are passes over 2, 4 and 8 tokens: 2, 3.2 and 4.2 tokens in 10, 12, 20 ms."""
    session = trusting(TIMES, 2)
    assert size(session, trees_of(np.repeat(LOGQ[:, :3], 2, axis=0))) == 1
    session.begin(1)  # one is left, in a pass that is its own again
    assert size(session, trees_of(LOGQ[:, :3])) == 3


def test_what_is_not_accepted_makes_trees_smaller():
    session = WidthSession(Pace(TIMES), 1)
    sizes, last = [], []
    for _ in range(300):
        session.begin(1, last)
        sizes.append(size(session, trees_of()))
        last = rejected(sizes[-1])
    assert sizes[0] == 3 and sizes[-1] == 1 and sorted(sizes, reverse=True) == sizes  # two rows cost as much as one
    for _ in range(5000):
        session.begin(1, rejected(0))
    assert size(session, trees_of()) == 3  # doubt fades


def test_searches_in_vain_take_a_bounded_share_of_the_time():
    """A search of 0.5 ms in vain is repeated once plain passes of 10 ms have taken a hundred times as long."""
    hopeless = siblings(7, 1e-4)
    for drafting, rest in ((5e-4, 5), (5e-5, 0), (0.03, pace.LONGEST_REST)):
        session = trusting(times((1, 0.010), (2, 0.012)))
        assert size(session, hopeless, drafting) == 0
        rested = 0
        while session.pace.rests():
            rested += 1
        assert rested == rest and (rest == pace.LONGEST_REST or drafting < pace.VAIN * 0.010 * (rest + 1))


def test_the_fastest_of_the_last_passes_counts():
    found = times((4, 0.03))
    for seconds in (0.5, 0.01, 0.3, 0.2, 0.3, 0.2, 0.4):
        found.note(1, seconds)
    assert found.costs(1).at([1, 4]).tolist() == [0.03, 0.03]  # 0.2 and more of passes that can have been no slower


def test_what_is_not_known_is_taken_to_be_cheap():
    """Nothing measured: in plain passes, of three rows. A width counts from its second pass on."""
    assert PassTimes().costs(3).at([3, 6, 24, 27]) == pytest.approx([1, 1 + PRIOR, 1 + 7 * PRIOR, 2 + 7 * PRIOR])
    found = times((1, 0.01))
    prior = 0.01 * (1 + 7 * PRIOR)
    assert found.costs(1).at([1, 8]) == pytest.approx([0.01, prior])
    found.note(8, 0.05)
    assert found.costs(1).at(8) == pytest.approx(prior)
    found.note(8, 0.05)
    half = (0.05 - 0.01) / 7 / 2
    assert found.costs(1).at([8, 16, 18]) == pytest.approx([0.05, 0.05 + 8 * half, 0.05 + 8 * half + 2 * 0.01])


@pytest.mark.parametrize("device, widest", [("cpu", 7), ("cuda", 63)])
def test_an_accelerator_is_expected_to_have_arithmetic_to_spare(device, widest):
    """Every pass takes as long, though the first is slow: on a processor wider ones are taken to be too dear to try."""
    times, sizes = AutoWidth(Target(device)).open(1).pace.times, np.array(pace.SIZES)
    gained, last = 1 + np.append(0, np.cumsum(0.5 / np.arange(1, pace.MAX_NODES + 1)))[sizes], 0
    for seconds in (0.06, *[0.02] * 40):
        last = sizes[int(np.argmax(gained / times.costs(1).at(1 + sizes)))]
        times.note(1 + int(last), seconds)
    assert last == widest


def test_what_seemed_dear_is_tried_again():
    """A pass that something else made slow does not stand for its width as long as it is avoided."""
    found = times((1, 0.01), (4, 0.012), (16, 9.0))
    assert found.costs(1).at(16) == 9
    for _ in range(pace.AGEING):
        found.note(4, 0.012)
    prior = 0.01 * (1 + 15 * PRIOR)
    assert found.costs(1).at([1, 4, 16]) == pytest.approx([0.01, 0.012, (9 + prior) / 2])
    for _ in range(20 * pace.AGEING):
        found.note(4, 0.012)
    assert found.costs(1).at(16) == pytest.approx(prior, rel=1e-3)
    found.note(16, 0.03)
    assert found.costs(1).at(16) == pytest.approx(0.03)


def test_a_width_that_is_being_noted_is_not_looked_at():
    """Whatever another thread sees between two writes is whole."""
    found, seen = times((1, 0.01), (4, 0.02)), []

    class Watched(dict):
        def __setitem__(self, key, value):
            seen.append(found.costs(1))
            super().__setitem__(key, value)
            seen.append(found.costs(1))

    found._seconds, found._last = Watched(found._seconds), Watched(found._last)
    noted(found, (16, 0.05))
    assert [costs.tokens.tolist()[:-2] for costs in seen[-4:]] == [[1, 4], [1, 4, 16], [1, 4, 16], [1, 4, 16]]


def test_the_first_passes_of_a_process(monkeypatch):
    """The first pass takes a second, as in a cold process; it is not held against trees."""
    clock = iter(np.cumsum([0, 1, *[0, 0.01] * 10]))
    session, sizes, trees = trusting(PassTimes()), [], siblings(7, 0.37)
    monkeypatch.setattr(pace, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    for _ in range(5):
        session.begin(1)
        sizes.append(size(session, trees))
        session.end(sizes[-1])
    assert sizes == [7, 0, 7, 7, 7]


CHEAP, DEAR = ((1, 1.2, 1.4, 1.6), (1.5, 2.5, 3.2, 3.4)), ((1, 2, 3, 4), (2, 2.5, 2.7, 2.8))


@pytest.mark.parametrize("models", [(DEAR, CHEAP), (CHEAP, DEAR)])
def test_a_small_model_is_read_as_often_as_pays(monkeypatch, models):
    """A dear and a cheap one, of which a first reading takes ten times as long, in chats and copies by turns; then each
    becomes the other. Once learned, against as many readings in every step of such texts: none, and the best number.
    """
    now, draw, known, rates = [0.0], np.random.default_rng(4), Readings(3), []
    monkeypatch.setattr(pace, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    for seconds, chats in models:
        copies = [chats[0] + 5, *[chats[0] + 5.2] * 3]  # in a copy the text knows most of what the model does
        made, took = np.zeros((2, 2, 2))
        for call in range(160):
            learned, tokens = call // 80, (chats, copies)[call % 2]
            session, brought, read, began = known.open(), 1.0, False, now[0]
            for _ in range(200):
                session.begin(brought)
                varied = draw.uniform(0.5, 1.5)
                number = session.choose(1 + (tokens[0] - 1) * varied)
                now[0] += seconds[number] + 9 * seconds[1] * (number > 0 and not read)
                brought, read = 1 + (tokens[number] - 1) * varied, read or number > 0
                made[learned, call % 2] += brought
            took[learned, call % 2] += now[0] - began
        each = np.array([chats, copies]) / (np.array(seconds) + [0, *[9 / 200 * seconds[1]] * 3])
        rates.append((made / took)[1] / [each[:, 0], each.max(axis=1)])
    without, best = np.transpose(rates, (1, 0, 2))
    assert without.min() > 0.98 and best.min() > 0.95, rates


def test_a_new_length_of_prompts_begins_with_the_costs_of_the_nearest():
    """Of cheap passes trees are drafted at once, of dear ones none; then its own times count."""
    trees = siblings(7, 0.12)
    for seconds, wanted in ((1.01, 7), (8.0, 0)):
        auto = AutoWidth(Target())
        noted(auto.open(1, 1).pace.times, (1, 1.0), (8, 9.0 - seconds))
        noted(auto.open(1, 30).pace.times, (1, 1.0), (8, seconds))
        long = auto.open(1, 3000)
        assert not long.pace.times.known() and size(long, trees) == wanted
        noted(long.pace.times, (1, 1.0), (8, 9.0 - seconds))
        assert size(long, trees) == 7 - wanted


def test_trees_grow_from_step_to_step():
    session = WidthSession(Pace(TIMES), 1, most=100)
    assert session.sizes == [*(n for n in pace.SIZES if n < 100), 100]
    target = Target()
    target.most_paths = 200  # of a pass, as in llama.cpp
    assert [int(AutoWidth(target, most=150).open(rows).sizes[-1]) for rows in (1, 4, 300)] == [150, 50, 1]
    wanted = []
    for _ in range(5):
        wanted.append(session.wanted)
        session.end(wanted[-1])
    assert wanted == [63, 100, 100, 100, 100]


class Shapes:
    """Passes of few shapes, and a target that has them."""

    sizes = (0, 1, 4, 8, 16, 32, 64, 128)

    def rows(self, rows):
        return 1 << (rows - 1).bit_length()

    def nodes(self, nodes):
        return next(size for size in self.sizes if size >= nodes)

    @classmethod
    def target(cls):
        target = Target("cuda")
        target.fixed = cls()
        return target


def test_few_shapes_are_tried_as_if_they_were_cheap():
    """Beyond the widest known pass a token costs what `prior` says, however dear the known ones are."""
    found = noted(PassTimes(0.002, few=True), (1, 0.01), (2, 0.02))
    assert found.costs(1).at([2, 5, 129]) == pytest.approx([0.02, 0.02 + 3 * 2e-5, 0.02 + 127 * 2e-5])
    noted(found, (129, 0.03))
    assert found.costs(1).at([2, 65, 129]) == pytest.approx([0.02, 0.02 + 0.01 * 63 / 127, 0.03])


def test_passes_of_few_shapes_are_noted_by_their_rows_and_padded_width():
    auto = AutoWidth(Shapes.target())
    session = auto.open(3, 1000)
    assert session.sizes == [0, 1, 4, 8, 16, 32, 64, 127]
    for rows, nodes in ((3, 9), (2, 3), (1, 0)):
        session.begin(rows)
        session.end(nodes)
        session.begin(rows)
    known = [auto.open(rows).pace.times.known() for rows in (1, 2, 3, 4)]
    assert known == [[1], [2 * 5], [4 * 17], [4 * 17]], "whatever the length of the prompts"
    session.end(8)
    session.begin(1, [LastPass(tree=TREE, accepted=(), usual=False)])
    assert auto.open(1).pace.times.known() == [1], "a pass that was captured is not noted"


def test_trees_that_did_not_pay_are_not_searched_for_a_while_where_shapes_are_few():
    """Passes over 128 nodes cost twice those over 64: one search of eight is of 127 nodes."""
    auto = AutoWidth(Shapes.target())
    session = auto.open(1)
    noted(session.pace.times, (1, 1.0), (33, 1.01), (65, 1.02), (129, 5.0))
    session.pace.times.note = lambda tokens, seconds: None
    session.pace.rates, searched, chain = Trusting(), [], 0.97
    for _ in range(40):
        n = session.wanted
        searched.append(n)
        trees = trees_of(np.log(chain) * np.arange(1, n + 1)[None], np.arange(n) - 1, np.arange(n) + 1)
        session.begin(1)
        assert session.size(trees, [1000]) == min(n, 64)
        session.end(min(n, 64))
    assert searched == [32, 64, *[127, *[64] * 7] * 5][:40]


def test_what_was_learned_is_remembered_for_each_target():
    """Times for each length of prompts too, until they are forgotten or the target is gone."""
    one, other = targets = [Target() for _ in range(2)]

    def learned(target, length=1, requests=1):
        pace = AutoWidth(target).open(requests, length).pace
        return pace.times, pace.rates

    before = learned(one)
    assert before == learned(one, requests=3) and not set(before) & set(learned(other))
    near, far = (learned(one, length)[0] for length in (900, 1100))
    assert learned(one, 600)[0] is near is not far
    pace.forget(one)
    assert not set(before) & set(learned(one))
    pace.forget(Target())  # nothing to forget
    known = len(pace._times)
    del targets, one, other
    gc.collect()
    assert len(pace._times) == known - 2
    refuses(ValueError, lambda: AutoWidth(Target(), most=0), "most", "1..1024")


# Acceptance learned by what q says.


def corrected(rates, tree):
    return rates.corrected(tree.logq, tree.parents)


BRANCHES = tree_of([-1, 0, -1, 1], [0.55, 0.87, 0.25, 0.9999])


def test_what_was_learned_fades():
    rates = AcceptanceRates()
    before = corrected(rates, BRANCHES)
    for _ in range(100):
        rates.note([BRANCHES], [[]])
    half = round(np.log(0.5) / np.log(pace.DECAY))
    for _ in range(half):
        rates.fade()
    overall = pace.CREDIT / (pace.CREDIT + 50 * (0.55 + 0.25))
    assert corrected(rates, BRANCHES)[0] == pytest.approx(0.55 * pace.CREDIT * overall / (pace.CREDIT + 50 * 0.55))
    for _ in range(20 * half):
        rates.fade()
    assert corrected(rates, BRANCHES) == pytest.approx(before, rel=1e-3)


def conditional_q(tree):
    logq = np.append(tree.logq, 0.0)  # the root token's last, where its children's -1 finds it
    return np.exp(logq[:-1] - logq[tree.parents])


def random_tree(rng, n):
    parents = [int(rng.integers(-1, node)) if node else -1 for node in range(n)]
    return tree_of(parents, rng.choice([0.005, 0.15, 0.5, 0.93, 0.9997], size=n))


def test_equal_to_a_count_node_by_node():
    rng = np.random.default_rng(3)
    rates, counted = AcceptanceRates(), np.zeros((len(EDGES) + 1, 2))
    for _ in range(30):
        trees, paths = [random_tree(rng, int(rng.integers(0, 40))) for _ in range(3)], []
        for tree in trees:
            path, node = [], -1
            while (children := np.flatnonzero(tree.parents == node)).size and rng.random() < 0.8:
                node = int(rng.choice(children))
                path.append(node)
            paths.append(path)
        rates.note(trees, paths)
        for tree, path in zip(trees, paths):
            for node, q in enumerate(conditional_q(tree)):
                if tree.parents[node] in (-1, *path):
                    counted[np.searchsorted(EDGES, q, "right")] += node in path, q
        accepted, expected = counted.sum(axis=0) + pace.CREDIT
        for tree in trees:
            wanted: list[float] = []
            for above, q in zip(tree.parents, conditional_q(tree)):
                own, of = counted[np.searchsorted(EDGES, q, "right")]
                p = min(1.0, q * (own + pace.CREDIT * accepted / expected) / (of + pace.CREDIT))
                wanted.append(p * (wanted[above] if above >= 0 else 1.0))
            assert corrected(rates, tree) == pytest.approx(wanted, rel=1e-6)
        most = max(tree.size for tree in trees)  # all at once, with padding
        logq, parents = np.full((3, most), -np.inf, np.float32), np.full((3, most), -1, np.int32)
        for row, tree in enumerate(trees):
            logq[row, : tree.size], parents[row, : tree.size] = tree.logq, tree.parents
        for p, tree in zip(rates.corrected(logq, parents), trees):
            assert p.tolist() == [*corrected(rates, tree).tolist(), *[0.0] * (most - tree.size)]


def test_the_core_checks_its_arrays():
    counts, columns = np.ones((2, len(EDGES) + 1)), (BRANCHES.logq[None], BRANCHES.parents[None])
    refuses(ValueError, lambda: _core.acceptance(columns[0], columns[1] + 3, EDGES, counts, 8.0), "parents")
    few = np.ones((2, 3))
    refuses(ValueError, lambda: _core.acceptance(*columns, EDGES, few, 8.0), len(EDGES) + 1, "3")
    for wrong in ([[4]], [[-1]], [[0], [0]]):
        with refused(ValueError, "accepted"):
            _core.count_accepted(counts, EDGES, [BRANCHES.logq], [BRANCHES.parents], wrong)
    assert (counts == 1).all()
