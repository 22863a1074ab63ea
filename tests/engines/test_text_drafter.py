"""Tokens in, trees and chains out: against q counted from scratch, under reordering, threads and dropped texts."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from support.drafts import Trusting, tree_of
from support.refusals import refuses
from support.threads import at_once

from rescore import Rescorer, TextDrafter, TextMemory
from rescore.decode.draft import pace as pace_module
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.pace import CHAIN_NODES
from rescore.decode.engines import text_drafter
from rescore.decode.engines.text_drafter import DraftRow
from rescore.decode.engines.text_store import AHEAD, IDLE
from rescore.lattice.sausage import blank
from rescore.lattice.structure import Acceptor
from rescore.lattice.tree import EMPTY
from rescore.lm.build.in_memory import build
from rescore.lm.model.ngram import NGram

V = 30
COST = 0.05


def text_of(seed, n=300):
    """A repetitive text: three times in four a token is followed by its previous successor."""
    draw, ids = np.random.default_rng(seed), [1]
    usual = np.random.default_rng(5).permutation(V)
    for kind in draw.random(n - 1):
        ids.append(int(draw.integers(0, V)) if kind < 0.25 else int(usual[ids[-1]]))
    return np.array(ids, np.int32)


@pytest.fixture(scope="module")
def lm():
    return build([text_of(0, 4000)], order=3, vocab_size=V, end_of_text=0)


def anew(lm, text, n, memory=None, prompt=None, state=None, depth=None):
    """The tree with all of the text counted at once; of the first `prompt` tokens (None: all) all but the last are a
    prompt."""
    rescorer = Rescorer(lm, calibration=HEADLESS, memory=memory)
    begin = (len(text) if prompt is None else prompt) - 1
    known = rescorer.text(text[:begin])
    known.append(text[begin:])
    known.state = state
    return rescorer.trees(blank(1), [known], n, depth=depth)[0]


def same(tree, other):
    return np.array_equal(tree.tokens, other.tokens) and np.array_equal(tree.parents, other.parents)


def tree_after(drafter, text, key=None, n=9, **facts):
    (tree,) = drafter.trees([DraftRow.of_tokens(text, key, **facts)], n)
    return tree


@pytest.mark.parametrize("keyed", [False, True])
def test_trees_are_those_of_the_whole_text_whatever_the_order_of_rows(lm, keyed):
    drafter, draw = TextDrafter(lm), np.random.default_rng(1)
    texts, ends, firsts = [text_of(seed) for seed in range(6)], [20] * 6, {}
    for _ in range(40):
        rows = draw.permutation(6)[: draw.integers(1, 7)]  # the others wait, or are preempted
        given = [DraftRow.of_tokens(texts[row][: ends[row]], row if keyed else None) for row in rows]
        trees = drafter.trees(given, 9)
        for row, tree in zip(rows, trees):
            assert same(tree, anew(lm, texts[row][: ends[row]], 9, prompt=firsts.setdefault(row, ends[row])))
            ends[row] += int(draw.integers(0, 6))
    assert drafter.texts == 6 and drafter.tokens <= sum(ends)


def test_requests_of_one_prompt_share_their_counts(lm):
    """Two that run together, one that comes later, and a fourth of another prompt; then one after all have ended."""
    prompt, drafter, rescorer = text_of(3, 20), TextDrafter(lm), Rescorer(lm, calibration=HEADLESS)
    wanted = {key: rescorer.text(text_of(4, 20) if key == "d" else prompt) for key in "abcd"}
    for key in "bc":
        wanted[key].counts = wanted["a"].counts.sibling()
    texts = {key: text_of(seed, 60) for key, seed in zip("abcd", (5, 6, 7, 8))}
    for end in (1, 4, 30, 33):
        for key in "abd" if end < 30 else "abcd":
            wanted[key].append(texts[key][wanted[key].size - 20 : end])
            (tree,) = rescorer.trees(blank(1), [wanted[key]], 9)
            assert same(tree_after(drafter, wanted[key].tokens, key, prompt=20), tree)
    for key in "abcd":
        drafter.end(key)
    whole = np.append(prompt, texts["a"][:1])
    assert same(tree_after(drafter, whole, "e", prompt=20), anew(lm, whole, 9))


@pytest.mark.parametrize("more", [0, AHEAD - 1, AHEAD, AHEAD + 500])
def test_a_text_is_known_by_its_tokens_however_many_were_added(lm, more):
    drafter, text = TextDrafter(lm), text_of(0, 700 + more)
    for end in (700, 700 + more):
        tree_after(drafter, text[:end])
    assert drafter.texts == 1 and drafter.tokens == 700 + more
    text[3] += 1  # far before the tokens that it is looked up by
    tree_after(drafter, text)
    assert drafter.texts == 2


def test_equal_texts_are_known_once_each(lm):
    drafter, text = TextDrafter(lm), text_of(0, 30)
    for rows, end in ((2, 20), (3, 30)):
        drafter.trees([DraftRow.of_tokens(text[:end])] * rows, 9)
    assert drafter.texts == 3 and drafter.tokens == 3 * 30
    tree_after(drafter, text, "a")  # known by its id alone
    assert drafter.texts == 4


def test_texts_that_are_too_many_or_not_used_are_dropped(lm):
    memory = TextMemory(vocab_size=V, end_of_text=0)
    drafter, texts = TextDrafter(lm, texts=3, memory=memory), {key: text_of(i, 40) for i, key in enumerate("abcd")}
    for key, end in zip("abcad", (20, 20, 20, 40, 20)):
        tree_after(drafter, texts[key][:end], key)
    assert drafter.texts == 3 and len(memory.texts()) == 1
    assert memory.texts()[0].tolist() == texts["b"][19 - memory.context : 20].tolist()
    for calls, kept in ((IDLE - 10, 3), (20, 1)):
        for _ in range(calls):
            tree_after(drafter, texts["d"], "d")
        assert drafter.texts == kept


def test_of_a_request_only_new_tokens_are_read_and_one_that_went_back_begins_anew(lm):
    drafter, text, asked = TextDrafter(lm), text_of(1), []

    def since(start):
        asked.append(start)
        return text[start:end]

    for end in (20, 21, 50, 40):
        (tree,) = drafter.trees([DraftRow(size=end, since=since, key=7)], 9)
    assert asked == [0, 20, 21, 0] and drafter.tokens == 40 and same(tree, anew(lm, text[:40], 9))


def test_each_request_has_its_own_room(lm):
    drafter, text = TextDrafter(lm, cost=0.0), text_of(3)
    rows = [DraftRow.of_tokens(text[:end]) for end in (100, 110, 120)]
    lengths = [len(chain) for chain in drafter.chains(rows, [0, 2, 6])]
    assert lengths[0] == 0 and lengths[1] <= 2 and lengths[2] <= 6 and max(lengths) > 0
    assert [len(chain) for chain in drafter.chains(rows, 0)] == [0, 0, 0]
    assert drafter.chains([], 4) == []


def test_predictions_after_rejected_drafts_count(lm):
    text, draw = text_of(4), np.random.default_rng(2)
    ids = np.stack([draw.permutation(V)[:8] for _ in text]).astype(np.int32)
    p = np.sort(draw.dirichlet(np.ones(8), len(text)).astype(np.float32))[:, ::-1].copy()
    drafter, wanted = TextDrafter(lm), Rescorer(lm, calibration=HEADLESS)
    known = wanted.text(text[:9])
    known.append(text[9:10])
    known.read()
    tree_after(drafter, text[:10])
    for at, end in pairwise((10, 11, 14, 20, 21)):
        rejected = [
            (np.array([3, 4], np.int32), (ids[end], p[end])),
            (text[end - 1 : end].copy(), (ids[end + 1], p[end + 1])),
        ]
        for draft, predicted in rejected:
            known.counts.foresee(draft, *predicted)
        known.append(text[at:end])
        row = DraftRow(size=end, since=lambda start, end=end: text[start:end], rejected=rejected)
        tree = drafter.trees([row], 12)[0]
        assert same(tree, wanted.trees(blank(1), [known], 12)[0])
        assert not np.array_equal(tree.logq, anew(lm, text[:end], 12, prompt=10).logq)


LADDER = Acceptor([(0, 1, 1), (0, 2, 1), (1, 3, 2), (1, 4, 2), (2, 5, 0), (2, 6, 0)], final=[0])


def test_drafts_stay_inside_a_structure(lm):
    """Trees are those of q under the state after the text; a text that has left its structure is drafted for freely."""
    drafter = TextDrafter(lm, end_of_text=0)
    prompts, inside = [text_of(seed, 20) for seed in range(3)], np.tile([1, 3, 5, 2, 4, 6], 8)
    for end in range(0, 48, 5):
        answers = [inside[:end], inside[:end], np.append(9, inside[:end])]  # no state allows 9
        texts = [np.append(prompt, answer).astype(np.int32) for prompt, answer in zip(prompts, answers)]
        given = zip("abc", texts, (LADDER, None, LADDER))
        rows = [DraftRow.of_tokens(text, key, structure=bound, prompt=20) for key, text, bound in given]
        state = LADDER.start(V, {0}).after(answers[0].tolist())
        for tree, text, first, bound in zip(drafter.trees(rows, 12), texts, (20, 20, 21), (state, None, None)):
            assert tree.size and same(tree, anew(lm, text, 12, prompt=first, state=bound))


def test_forced_tokens_are_drafted_also_while_others_rest(lm, monkeypatch):
    monkeypatch.setattr(pace_module.Pace, "rests", lambda pace: True)
    drafter, text = TextDrafter(lm, end_of_text=0), text_of(0, 20).astype(np.int32)
    chain = Acceptor([(state, 1 + state, state + 1) for state in range(6)], final=[6])
    (free,) = drafter.chains([DraftRow.of_tokens(text, "free")], 6)
    (forced,) = drafter.chains([DraftRow.of_tokens(text, "bound", structure=chain, prompt=20)], 6)
    assert not free.size and forced.tolist() == [1, 2, 3, 4, 5, 6]


def test_texts_that_end_go_to_the_memory(lm):
    memory = TextMemory(vocab_size=V, end_of_text=0)
    drafter, text = TextDrafter(lm, memory=memory, end_of_text=29), text_of(5)
    text = text[text != 29]
    drafter.chains([DraftRow.of_tokens(text[:40], "a"), DraftRow.of_tokens(text[100:130])], 4)
    drafter.chains([DraftRow.of_tokens(text[:60], "a"), DraftRow.of_tokens(text[100:150])], 4)
    drafter.end("a")
    drafter.end("never seen")
    ended = np.append(text[100:160], 29)
    drafter.chains([DraftRow.of_tokens(ended)], 4)
    kept = [text[39 - memory.context : 60].tolist(), ended[29 - memory.context :].tolist()]
    assert [one.tolist() for one in memory.texts()] == kept and drafter.texts == 0
    new = text_of(6)[:30]
    assert same(tree_after(drafter, new), anew(lm, new, 9, memory=memory))


def test_rows_have_memories_of_their_own(lm):
    """What one tenant says drafts for that tenant alone; the drafter's memory is for those who have none."""
    mine, theirs, common = (TextMemory(vocab_size=V, end_of_text=0) for _ in range(3))
    drafter, texts = TextDrafter(lm, memory=common), [text_of(seed, 40) for seed in (3, 4, 5)]
    for end in (20, 40):
        owned = zip(texts, (mine, theirs, None))
        drafter.trees([DraftRow.of_tokens(text[:end], id(one), memory=one) for text, one in owned], 9)
    drafter.clear()
    for memory, text in zip((mine, theirs, common), texts):
        assert [one.tolist() for one in memory.texts()] == [text[19 - memory.context :].tolist()]
    new = text_of(6)[:30]
    for own, memory in ((mine, mine), (theirs, theirs), (None, common)):
        assert same(tree_after(drafter, new, memory=own), anew(lm, new, 9, memory=memory))
        drafter.clear()


def test_rows_have_ngram_models_of_their_own(lm, tmp_path):
    """Also of more context than the drafter's, and where the drafter has none."""
    other = build([text_of(7, 2000)], order=5, vocab_size=V, end_of_text=0)
    other.save(tmp_path / "other.ngram")
    texts = [text_of(seed)[:30] for seed in (3, 4)]
    for own, without in ((lm, lm), (None, NGram.uniform(V))):
        rows = [DraftRow.of_tokens(text, lm=one) for text, one in zip(texts, (tmp_path / "other.ngram", None))]
        trees = TextDrafter(own, vocab_size=V).trees(rows, 9)
        assert all(same(tree, anew(one, text, 9)) for tree, text, one in zip(trees, texts, (other, without)))
    larger = build([text_of(7, 2000)], order=2, vocab_size=V + 1, end_of_text=0)
    refuses(ValueError, lambda: tree_after(TextDrafter(lm, vocab_size=V), texts[0], lm=larger), str(V), str(V + 1))


@pytest.mark.parametrize("most", [40, 1000])
def test_copies_run_on(most):
    drafter, text = TextDrafter(vocab_size=200, cost=0.01), np.random.default_rng(0).permutation(200)
    twice = np.concatenate([text, text[:20]])
    (chain,) = drafter.chains([DraftRow.of_tokens(twice)], most)
    tree = tree_after(drafter, twice, n=CHAIN_NODES)
    assert 32 < len(chain) == min(most, tree.depths.max()) and np.array_equal(chain, text[20 : 20 + len(chain)])


def chain_of(*conditional):
    return tree_of(range(-1, len(conditional) - 1), conditional)


def measured(*pairs):
    """A pace that has measured passes of such widths and seconds."""
    pace = pace_module.Pace(rates=Trusting())
    for tokens, seconds in pairs:
        for _ in range(pace_module.SURE):
            pace.times.note(tokens, seconds)
    return pace


def test_a_worked_example_of_lengths(monkeypatch):
    """Passes over 1, 2, 3 tokens take 10, 12, 14 ms, and 5 more for each further token."""
    now, pace = 0.0, measured()
    monkeypatch.setattr(pace_module, "time", SimpleNamespace(perf_counter=lambda: now))
    assert pace.least(1, 8) == pytest.approx(pace_module.PRIOR)
    for tokens, seconds in ((1, 0.010), (2, 0.012), (3, 0.014), (8, 0.039)):
        for _ in range(2):
            pace.end(tokens)
            now += seconds
            pace.begin(one_pass=True)
    assert pace.times.known() == [1, 2, 3, 8]
    assert pace.least(1, 2) == pytest.approx(0.2, rel=0.02)
    # 1.98, 2.94, 3.88 tokens in 12, 14, 19 ms: 165, 210, 204 a second.
    sure = chain_of(0.98, 0.98, 0.98)
    assert pace.lengths([sure], 0.0) == [2]
    assert pace.lengths([chain_of(0.15)], 0.0) == [0]  # 1.15 in 12 ms are fewer than 1 in 10
    assert pace.lengths([sure], 0.010) == [3]  # with 10 ms spent on drafting: 2.94 in 24 ms, 3.88 in 29
    # Two rows: 2, 2.98, 3.94 tokens in 12, 14, 19 ms: 167, 213, 207 a second.
    assert pace.lengths([chain_of(0.96), chain_of(0.98)], 0.0) == [0, 1]


def test_fewer_requests_than_ever_do_not_fill_the_passes_that_are_known():
    """When 16 requests become one, a plain pass comes first: until then its lower cost is unknown."""
    pace, chain = measured((16, 0.080), (20, 0.084)), chain_of(0.9, 0.9, 0.9)
    assert pace.least(1, 8) == pytest.approx(1) and pace.lengths([chain], 0.0) == [0]
    assert pace.least(16, 8) < 0.9 and pace.lengths([chain] * 16, 0.0) == [3] * 16
    pace = measured((1, 0.020), (16, 0.080), (20, 0.084))
    assert pace.least(1, 8) < 0.9 and pace.lengths([chain], 0.0) == [3]


def test_calls_rest_where_drafted_tokens_are_dear():
    """A drafted token costs 0.7 of a token. A search of 0.8 ms in vain is repeated after 8 passes of 10 ms."""
    pace = measured((1, 0.010), (2, 0.017), (9, 0.066))
    assert pace.least(1, 7) == pytest.approx(0.7, abs=0.02)
    assert pace.lengths([chain_of(0.3)], 8e-4) == [0]
    assert [pace.rests() for _ in range(9)] == [True] * 8 + [False]
    assert pace.lengths([EMPTY], 1.0) == [0]
    assert [pace.rests() for _ in range(17)] == [True] * pace_module.LONGEST_REST + [False]
    assert pace.lengths([chain_of(0.99)], 8e-4) == [1] and not pace.rests()


@pytest.mark.parametrize(
    "slope, least", [(0.02, 1.9), (0.3, 1.1), (0.7, 0.97), (1.0, 0.97)], ids=["flat", "mid", "steep", "linear"]
)
def test_no_curve_of_costs_makes_decoding_slower(lm, monkeypatch, slope, least):
    """Uses a simulated clock, so that the result is deterministic."""
    now, drafter, tokens = 0.0, TextDrafter(lm), 0
    for module in (pace_module, text_drafter):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now))
    for text in map(text_of, range(10, 16)):  # one at a time
        at = 20
        while at < len(text):
            (chain,) = drafter.chains([DraftRow.of_tokens(text[:at])], min(8, len(text) - at))
            now += 1 + slope * len(chain)
            at += int(np.cumprod(chain == text[at : at + len(chain)]).sum()) + 1
        tokens += at - 20
    assert tokens / now > least
    assert pace_module.MARGIN > 1


def test_threads_draft_the_best_chains_of_their_trees(lm):
    drafter, wrong, lengths = TextDrafter(lm, texts=8, cost=COST), [], set()

    def work(seed):
        text = text_of(seed)
        for end in range(20, 120, 2):
            (chain,) = drafter.chains([DraftRow.of_tokens(text[:end], seed if seed % 2 else None)], 8)
            lengths.add(len(chain))
            best = anew(lm, text[:end], CHAIN_NODES, prompt=20, depth=8).best_chain(COST)
            if not np.array_equal(chain, best.tokens):
                wrong.append((seed, end))

    at_once(work, range(8))
    assert not wrong and drafter.texts <= 8 and max(lengths) > 2 and min(lengths) < max(lengths)


def test_what_is_refused(lm):
    alien = TextMemory(vocab_size=31, end_of_text=0)
    refuses(ValueError, lambda: TextDrafter(lm, vocab_size=29), "29", "30")
    refuses(ValueError, lambda: TextDrafter(lm, cost=2), "cost", "0..1", "2")
    refuses(ValueError, lambda: TextDrafter(lm, texts=0), "texts", "1", "0")
    refuses(ValueError, lambda: TextDrafter(lm, vocab_size=30, memory=alien), "memory", "30", "31")
    refuses(TypeError, lambda: DraftRow.of_tokens([0.5, 1]), "tokens", "float64")
    drafter, good = TextDrafter(lm, vocab_size=30), DraftRow.of_tokens([1])
    refuses(ValueError, lambda: drafter.trees([DraftRow.of_tokens([1], memory=alien)], 9), "30", "31")
    refuses(ValueError, lambda: drafter.chains([good, DraftRow.of_tokens([1, 30])], 4), "request 1", "0..29", "1..30")
    short = DraftRow(size=5, since=lambda start: np.zeros(3, np.int32))
    refuses(TypeError, lambda: drafter.trees([short], 4), "request 0", "int32", "[5]", "[3]")
    refuses(ValueError, lambda: drafter.chains([good, good], [1]), "2", "1")
    refuses(ValueError, lambda: TextDrafter().trees([DraftRow.of_tokens([1], structure=LADDER)], 4), "vocab_size")
    assert drafter.texts  # those that were read before the errors
