"""Texts with a prediction: what is decoded does not change, passes are saved where the text copies it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused, refuses

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from support import tiny_transformers
from support.edits import Edits

from rescore import BlendedDrafter, Drafting, Options, Sampling, _core, generate
from rescore.decode.draft.prediction import ARCS, SHARE, count_copied, edit_model
from rescore.decode.engines.text_drafter import DraftRow, TextDrafter
from rescore.decode.loop.request import Request
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.verify.shaping import Shaping

TOKENS = 40
PROMPTS = [np.array(ids) for ids in ([5, 6, 7, 8], [9, 8, 7])]


@pytest.fixture(scope="module")
def model():
    return tiny_transformers.shared("llama")


@pytest.fixture(scope="module")
def texts(model):
    return [one.tokens for one in generate(CausalLMTarget(model), PROMPTS, None, Options(max_tokens=TOKENS))]


SAMPLED = dict(sampling=Sampling(temperature=1.5, seed=3))  # such texts repeat less


@pytest.fixture(scope="module")
def various(model):
    return [one.tokens for one in decoded(model, [None, None], **SAMPLED)]


def edited(text):
    """Without a token, with one more, with another one."""
    return np.concatenate((text[:9], text[10:20], [3], text[20:30], [4], text[31:])).astype(np.int32)


def decoded(model, predictions, nodes=8, **shaping):
    requests = [Request(prompt=ids, prediction=one) for ids, one in zip(PROMPTS, predictions)]
    target, options = CausalLMTarget(model), Options(max_tokens=TOKENS, shaping=Shaping(**shaping))
    return generate(target, requests, BlendedDrafter(target, nodes=nodes), options)


@pytest.mark.parametrize("nodes", [1, 8, None])
def test_texts_are_what_they_were(model, texts, nodes):
    for predictions in (texts, [edited(text) for text in texts], texts[::-1], [None, texts[1]], [[], [1] * 50]):
        found = decoded(model, predictions, nodes)
        assert [one.tokens.tolist() for one in found] == [text.tolist() for text in texts]


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


def test_a_right_prediction_saves_passes_and_copied_tokens_are_counted(model, various):
    right, near, without = (decoded(model, of, **SAMPLED) for of in (various, map(edited, various), [None, None]))
    for all_right, most_right, none, text in zip(right, near, without, various):
        assert all_right.tokens.tolist() == most_right.tokens.tolist() == text.tolist()
        # The first token is the prompt's pass, then come 8 drafted ones and the target's.
        assert all_right.statistics.passes <= 2 + TOKENS // 9
        assert all_right.statistics.passes < most_right.statistics.passes < none.statistics.passes
        common = common_subsequence(edited(text).tolist(), text.tolist())
        assert all_right.statistics.predicted == (TOKENS, 0) and none.statistics.predicted is None
        assert most_right.statistics.predicted == (common, len(edited(text)) - common) and common >= TOKENS - 2


def test_in_hugging_faces_generate(model, texts):
    class Tokenizer:
        def __call__(self, text, add_special_tokens):
            assert not add_special_tokens
            return {"input_ids": [int(word) for word in text.split()]}

    ids = torch.tensor(PROMPTS[0])[None]
    words = " ".join(map(str, texts[0].tolist()))
    few = decoded(model, texts)[0].statistics.passes
    for value in (texts[0], texts[0].tolist(), [texts[0]], words, [words]):
        drafting = Drafting(prediction=value, tokenizer=Tokenizer(), nodes=8)
        got = model.generate(ids, max_new_tokens=TOKENS, do_sample=False, eos_token_id=None, custom_generate=drafting)
        assert got[0, 4:].tolist() == texts[0].tolist()
        assert drafting.statistics[0].passes == few and drafting.statistics[0].predicted == (TOKENS, 0)
    for value, message in (([words, words], ["1", "2"]), (words, ["tokenizer"])):
        with refused(ValueError, "prediction", *message):
            model.generate(ids, max_new_tokens=3, do_sample=False, custom_generate=Drafting(prediction=value))


def test_in_a_text_drafter():
    """A row's prediction is read along with its text, also after an edit."""
    drafter, text = TextDrafter(vocab_size=100), np.random.default_rng(0).permutation(40)
    for end in (0, 1, 5, 12):
        history = np.concatenate((PROMPTS[0], text[:end]))
        row = DraftRow.of_tokens(history, "a", prompt=len(PROMPTS[0]), prediction=np.delete(text, 3))
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


def test_ids_beyond_the_vocabulary_are_refused(model):
    for value in ([tiny_transformers.V], [-1]):
        with refused(ValueError):
            decoded(model, [value, None])
    refuses(TypeError, lambda: decoded(model, [[0.5], None]), "request 0")


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(tokens=[-1]), ["tokens[0]", "-1"]),
        (dict(arcs=(0.0, *[0.1] * 5)), ["arcs", "0", "1"]),
        (dict(arcs=(0.5, 0.4, *[0.1] * 4)), ["1"]),
        (dict(share=(float("nan"), 1.0)), ["share"]),
    ],
)
def test_automata_that_are_refused(changes, message):
    given = dict(tokens=[1, 2], arcs=ARCS, share=SHARE) | changes
    refuses(ValueError, lambda: _core.EditModel(np.array(given.pop("tokens"), np.int32), **given), *message)
