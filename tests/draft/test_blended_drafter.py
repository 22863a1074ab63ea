"""Blended drafts in extreme settings and with predictions: the text, or the error, is the same as without drafts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from support import tiny_transformers
from support.edits import Edits
from support.tiny_blockwise import CONFIG, V, text, trained, untrained

from rescore import Drafting, NGram, Options, Rescorer, Sampling, TextDrafter, _core, blended_drafter, generate
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.pace import Pace, WidthSession
from rescore.decode.draft.prediction import ARCS, SHARE, count_copied, edit_model
from rescore.decode.draft.tree_drafter import TreeSession
from rescore.decode.engines.text_drafter import DraftRow
from rescore.decode.loop.request import Request
from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTarget
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.sausage import blank
from rescore.lattice.tree import Trees
from rescore.lm.build.in_memory import build

NODES = [9, None]
PROMPTS = [text(4 + 3 * i, seed=50 + i).astype(np.int64) for i in range(5)]


def small(vocab_size: int, context: int) -> BlockwiseTarget:
    shape = dict(heads=1, layers=1, width=32, attention_heads=2, hidden=32, head_hidden=32)
    return BlockwiseTarget(untrained(config=BlockwiseConfig(vocab_size=vocab_size, context=context, **shape)))


def ids(texts):
    return [one.tokens.tolist() for one in texts]


def both(target, prompts, options, *, nodes=9, lm=None):
    """Drafted, after plain ones have been found to be the same."""
    plain = generate(target, prompts, None, options)
    drafted = generate(target, prompts, blended_drafter(target, lm, nodes=nodes), options)
    assert ids(drafted) == ids(plain) and [one.finish for one in drafted] == [one.finish for one in plain]
    return drafted


def test_one_token_repeated():
    """It is all that ever follows: chains of it, however long the text is."""
    rescorer = Rescorer(NGram.uniform(1000), calibration=HEADLESS)
    for length in (1000, 100_000):
        running = rescorer.text()
        running.append(np.full(length, 7, np.int32))
        trees = rescorer.trees(blank(1), [running], 15, depth=15)
        assert trees.tokens[0].tolist() == [7] * 15 and trees.depths[0].tolist() == list(range(1, 16))
        share = -np.diff(trees.logq[0], prepend=0)
        assert (share > -1e-6).all() and share.max() < 10 / length


@pytest.mark.parametrize("given", [False, True], ids=["text", "lm"])
@pytest.mark.parametrize("nodes", NODES)
def test_a_large_vocabulary(given, nodes):
    draw, vocab = np.random.default_rng(1), 262_144
    prompt = draw.integers(0, vocab, 20)
    prompt[:3] = vocab - 1, 0, vocab - 1  # the ends of the range
    lm = build([np.tile(prompt, 3).astype(np.int32)], order=3, vocab_size=vocab, end_of_text=0) if given else None
    both(small(vocab, 64), [prompt], Options(max_tokens=6), nodes=nodes, lm=lm)


@pytest.mark.parametrize(("vocab", "nodes"), [(1, 1), (1, 16), (1, None), (2, 16), (2, 1024), (2, None)])
def test_vocabularies_of_one_and_two_tokens(vocab, nodes):
    prompts = [np.zeros(3, np.int64), np.full(9, vocab - 1)]
    drafted = both(small(vocab, 64), prompts, Options(max_tokens=20), nodes=nodes)
    if vocab == 1 and nodes == 16:  # all that can be drafted is drafted and right
        assert all(one.statistics.accepted == [16, 2] for one in drafted)


@pytest.mark.parametrize("nodes", NODES)
def test_texts_of_one_token_and_texts_that_fill_the_context(nodes):
    target = BlockwiseTarget(trained())
    for one in both(target, PROMPTS, Options(max_tokens=1), nodes=nodes):
        assert len(one.tokens) == 1 and one.statistics.drafted == []
    room = CONFIG.context - len(PROMPTS[-1])
    (whole,) = both(target, PROMPTS[-1:], Options(max_tokens=room), nodes=nodes)
    assert len(whole.tokens) == room
    drafter = blended_drafter(target, nodes=nodes)
    for prompts, options, message in (
        (PROMPTS[-1:], Options(max_tokens=room + 1), ["96"]),
        ([np.ones(97, np.int64)], Options(max_tokens=1), ["96"]),
        ([], Options(), ["prompts"]),
        ([np.array([V])], Options(), ["prompt 0", "24"]),
    ):
        with refused(ValueError, *message):
            generate(target, prompts, drafter, options)


class Ruled(BlockwiseTarget):
    """Never writes some tokens."""

    def __init__(self, tokens):
        super().__init__(trained())
        self.tokens = tokens

    def logits(self, hidden):
        logits = super().logits(hidden).clone()
        logits[..., self.tokens] = -np.inf
        return logits


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
@pytest.mark.parametrize("nodes", NODES)
def test_tokens_that_a_target_rules_out(nodes, sampled):
    """Logits of -inf are no predictions: neither counted nor drawn."""
    shaping = Shaping(sampling=Sampling(temperature=0.9, seed=3)) if sampled else Shaping()
    for one in both(Ruled(slice(3, 20)), PROMPTS, Options(max_tokens=20, shaping=shaping), nodes=nodes):
        assert not set(range(3, 20)) & set(one.tokens.tolist())
    for one in both(Ruled(slice(1, V)), PROMPTS, Options(max_tokens=20, shaping=shaping), nodes=nodes):
        assert set(one.tokens.tolist()) == {0}


@pytest.mark.parametrize("found, sizes", [(3, [3, 0]), (0, [0])])
def test_a_draft_left_out_says_whether_there_was_one(monkeypatch, found, sizes):
    """The first step drafts or finds nothing, the second one has a plain pass; all others rest."""
    left, tokens = iter(sizes), np.arange(found, dtype=np.int32)[None]
    columns = {"tokens": tokens, "parents": np.full_like(tokens, -1), "depths": np.ones_like(tokens)}
    trees = Trees(**columns, logq=np.zeros(tokens.shape, np.float32), count=np.array([found], np.int32))
    monkeypatch.setattr(WidthSession, "size", lambda *_: next(left))
    monkeypatch.setattr(Pace, "rests", lambda _: not left.__length_hint__())
    monkeypatch.setattr(TreeSession, "trees", lambda *_: trees)
    target = BlockwiseTarget(trained())
    (one,) = generate(target, [text(9, seed=1)], blended_drafter(target), Options(max_tokens=12))
    steps = len(one.statistics.drafted)
    assert steps > 2 and one.statistics.drafted == [*sizes, *[0] * (steps - len(sizes))]
    assert one.statistics.rested == (steps - 1 if found else 0)
    assert len(one.statistics.plain_us) == steps - bool(found)


# Texts with a prediction.


TOKENS, BEGINNINGS = 40, [np.array(ids) for ids in ([5, 6, 7, 8], [9, 8, 7])]
LLAMA = tiny_transformers.shared("llama")
SAMPLED = dict(sampling=Sampling(temperature=1.5, seed=3))  # such texts repeat less


@pytest.fixture(scope="module")
def texts():
    return [one.tokens for one in generate(CausalLMTarget(LLAMA), BEGINNINGS, None, Options(max_tokens=TOKENS))]


def edited(text):
    """Without a token, with one more, with another one."""
    return np.concatenate((text[:9], text[10:20], [3], text[20:30], [4], text[31:])).astype(np.int32)


def decoded(predictions, nodes=8, **shaping):
    requests = [Request(prompt=ids, prediction=one) for ids, one in zip(BEGINNINGS, predictions)]
    target, options = CausalLMTarget(LLAMA), Options(max_tokens=TOKENS, shaping=Shaping(**shaping))
    return generate(target, requests, blended_drafter(target, nodes=nodes), options)


@pytest.mark.parametrize("nodes", [1, 8, None])
def test_texts_are_what_they_were(texts, nodes):
    for predictions in (texts, list(map(edited, texts)), texts[::-1], [None, texts[1]], [[], [1] * 50]):
        assert ids(decoded(predictions, nodes)) == [one.tolist() for one in texts]


def common_subsequence(a, b):
    lengths = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            longest = max(lengths[i, j + 1], lengths[i + 1, j])
            lengths[i + 1, j + 1] = lengths[i, j] + 1 if one == other else longest
    return int(lengths[-1, -1])


@given(st.lists(st.integers(0, 4), max_size=30), st.lists(st.integers(0, 4), max_size=30))
def test_the_longest_common_subsequence(prediction, text):
    copied = count_copied(np.array(prediction, np.int32), np.array(text, np.int32))
    assert copied == common_subsequence(prediction, text)


def test_a_right_prediction_saves_passes_and_copied_tokens_are_counted():
    without = decoded([None, None], **SAMPLED)
    various = [one.tokens for one in without]
    right, near = (decoded(of, **SAMPLED) for of in (various, map(edited, various)))
    for all_right, most_right, none, own in zip(right, near, without, various):
        assert all_right.tokens.tolist() == most_right.tokens.tolist() == own.tolist()
        # The first token is the prompt's pass, then come 8 drafted ones and the target's.
        assert all_right.statistics.passes <= 2 + TOKENS // 9
        assert all_right.statistics.passes < most_right.statistics.passes < none.statistics.passes
        common = common_subsequence(edited(own).tolist(), own.tolist())
        assert all_right.statistics.predicted == (TOKENS, 0) and none.statistics.predicted is None
        assert most_right.statistics.predicted == (common, len(edited(own)) - common) and common >= TOKENS - 2


def test_in_hugging_faces_generate(texts):
    def tokenizer(text, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": [int(word) for word in text.split()]}

    ids = torch.tensor(BEGINNINGS[0])[None]
    words = " ".join(map(str, texts[0].tolist()))
    few = decoded(texts)[0].statistics.passes
    for value in (texts[0], texts[0].tolist(), [texts[0]], words, [words]):
        drafting = Drafting(prediction=value, tokenizer=tokenizer, nodes=8)
        got = LLAMA.generate(ids, max_new_tokens=TOKENS, do_sample=False, eos_token_id=None, custom_generate=drafting)
        assert got[0, 4:].tolist() == texts[0].tolist()
        assert drafting.statistics[0].passes == few and drafting.statistics[0].predicted == (TOKENS, 0)
    for value, message in (([words, words], ["1", "2"]), (words, ["tokenizer"])):
        with refused(ValueError, "prediction", *message):
            LLAMA.generate(ids, max_new_tokens=3, do_sample=False, custom_generate=Drafting(prediction=value))


def test_in_a_text_drafter():
    """A row's prediction is read along with its text, also after an edit."""
    drafter, text = TextDrafter(vocab_size=100), np.random.default_rng(0).permutation(40)
    for end in (0, 1, 5, 12):
        history = np.concatenate((BEGINNINGS[0], text[:end]))
        row = DraftRow.of_tokens(history, "a", prompt=len(BEGINNINGS[0]), prediction=np.delete(text, 3))
        (tree,) = drafter.trees([row], 12)
        assert tree.accepted(text[end:]) >= (3 - end if end < 3 else 8)


def test_a_text_longer_than_the_places_kept():
    """q of the best places: what is left out has next to no weight."""
    draw = np.random.default_rng(0)
    expected = draw.integers(0, 8, 200).astype(np.int32)
    text = np.concatenate((expected[:50], [3, 3, 1], expected[60:120])).astype(np.int32)
    model, twin = edit_model(expected), Edits(expected.tolist(), ARCS, SHARE, text.tolist())
    model.extend(text)
    for draft in ([], expected[120:125].tolist(), [1, 2]):
        share, rest = model.mixture(np.array(draft, np.int32), np.arange(8, dtype=np.int32))
        np.testing.assert_allclose(share + rest / 8, twin.distribution(draft, np.full(8, 1 / 8)), atol=2e-3)


def test_ids_beyond_the_vocabulary_are_refused():
    for value, error, *named in ((tiny_transformers.V, ValueError), (-1, ValueError), (0.5, TypeError, "request 0")):
        with refused(error, *named):
            decoded([[value], None])


def test_automata_that_are_refused():
    for tokens, arcs, share, *named in (
        ([-1], ARCS, SHARE, "tokens[0]", "-1"),
        ([1, 2], (0.0, *[0.1] * 5), SHARE, "arcs", "0", "1"),
        ([1, 2], (0.5, 0.4, *[0.1] * 4), SHARE, "1"),
        ([1, 2], ARCS, (np.nan, 1.0), "share"),
    ):
        with refused(ValueError, *named):
            _core.EditModel(np.array(tokens, np.int32), arcs=arcs, share=share)
