"""Ids word by word are those of the whole text, and whether text is cut is told by tokenizer and threads."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import refuses

from rescore.lm.build import word_ids
from rescore.lm.build.word_ids import WordIds, is_word_wise
from rescore.lm.model.tokenizer import TextTokenizer


def pre_tokenizer(digits):
    pre = tokenizers.pre_tokenizers
    byte_level = pre.ByteLevel(add_prefix_space=False)
    return byte_level if digits is None else pre.Sequence([pre.Digits(individual_digits=digits), byte_level])


TEXT = [
    "The cat's mat isn't the dogs' mat; they'll say it's 12,345.67 euros -- don't they?\n\nNew  para\tgraph.",
    "def f(x):\n    return x ** 2  # a comment\n\n\nfor i in range(10): print(i)",
    "caf\u00e9 na\u00efve \u201cquoted words\u201d \u4f60\u597d \u4e16\u754c \u0645\u0631\u062d\u0628\u0627 e\u0301",
]
PIECES = ["a", "the", "'s", "n't", "12", "3", ".", "--", " ", " ", "  ", "\n", "\t", "\x1c", "\x85", "\xa0", "\u3000"]
PIECES += ["\u180e", "\u200b", "\u0120", "\u00e9", "\u0301", "\u201c", "\u4f60", "\U0001f600", "<|endoftext|>", "\x00"]


@pytest.fixture(scope="module", params=[None, True, False], ids=["bytes", "digits", "numbers"])
def package(request):
    """A BPE with merges, trained on the text above."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = pre_tokenizer(request.param)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(TEXT * 3, trainer)
    trained.encode_special_tokens = True
    return trained


def encode(package, texts):
    encoded = package.encode_batch_fast(list(texts), add_special_tokens=False)
    return [np.array(one.ids, np.uint32) for one in encoded]


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == np.uint32 and a.tolist() == b.tolist()


@settings(max_examples=100)
@given(drawn=st.data())
def test_ids_are_those_of_the_package(package, drawn):
    """Whatever comes in several batches, and when no more words are kept."""
    text = st.one_of(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.sampled_from(TEXT), st.text())
    batches = drawn.draw(st.lists(st.lists(text, max_size=4), max_size=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_ids, "WORDS", drawn.draw(st.sampled_from([0, 3, 1000])))
        patch.setattr(word_ids, "LONGEST", drawn.draw(st.sampled_from([2, 64])))
        words = WordIds(partial(encode, package), package.get_vocab())
        for batch in batches:
            valid = [text.encode("utf-8", "replace").decode() for text in batch]
            assert_same(words.encode(valid), encode(package, valid))


def test_threads_share_the_words(package):
    words = WordIds(partial(encode, package), package.get_vocab())
    batches = [[text[at:] for text in TEXT] for at in range(30)] * 4
    with ThreadPoolExecutor(4) as pool:
        for found, batch in zip(pool.map(words.encode, batches), batches):
            assert_same(found, encode(package, batch))


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
DIGITS, SPLIT = {"type": "Digits", "individual_digits": True}, {"type": "Split", "pattern": {"Regex": "."}}
BPE = {"type": "BPE", "vocab": {"\u0120": 0}, "dropout": None}
END = {"content": "<|endoftext|>", "special": True}


def sequence(*steps):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


@pytest.mark.parametrize(
    "changes, may",
    [
        ({}, True),
        (sequence(DIGITS, BYTES), True),
        (sequence(SPLIT, BYTES), False),
        (sequence(BYTES, DIGITS), False),
        ({"pre_tokenizer": None}, False),
        ({"pre_tokenizer": {"type": "Whitespace"}}, False),
        ({"pre_tokenizer": BYTES | {"add_prefix_space": True}}, False),
        ({"pre_tokenizer": BYTES | {"use_regex": False}}, False),
        ({"normalizer": {"type": "NFC"}}, False),
        ({"model": {"type": "Unigram", "vocab": []}}, False),
        ({"model": BPE | {"vocab": {"a": 0}}}, False),
        ({"model": BPE | {"dropout": 0.1}}, False),
        ({"model": BPE | {"end_of_word_suffix": "</w>"}}, False),
        ({"added_tokens": [{"content": "two words", "special": False}]}, False),
    ],
)
def test_tokenizers_that_text_may_be_cut_for(changes, may):
    plain = {"model": BPE, "normalizer": None, "pre_tokenizer": BYTES, "added_tokens": [END]}
    assert is_word_wise(plain | changes) == may


@pytest.mark.parametrize(
    "processors, environment, few",
    [
        (2, {}, True),
        (64, {}, False),
        (64, {"RAYON_NUM_THREADS": "2"}, True),
        (2, {"RAYON_NUM_THREADS": "64"}, False),
        (64, {"TOKENIZERS_PARALLELISM": "False"}, True),
    ],
)
def test_texts_are_cut_where_that_pays(package, processors, environment, few, monkeypatch):
    """By the tokenizer and the threads of the package; the ids are the same."""
    for name in ("RAYON_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(word_ids.os, "cpu_count", lambda: processors)
    opened = TextTokenizer.from_bytes(package.to_str().encode())
    chosen = word_ids.encoder_of(opened)
    assert (chosen != opened.encode) == few
    assert_same(chosen(TEXT), encode(package, TEXT))
    refuses(ValueError, lambda: chosen(["a \ud800 b"]), "tokenizer")
    again = word_ids.encoder_of(opened)  # with the words that are known
    assert again.keywords == chosen.keywords if few else again == opened.encode
