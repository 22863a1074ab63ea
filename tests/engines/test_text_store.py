"""Texts matched by id and by content, and the limits of the store."""

import numpy as np
import pytest

from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.engines.text_store import AHEAD, IDLE, Prompts, TextStore


def store_of(most=100, tokens=10_000):
    ended = []
    store = TextStore(ended.append, most=most, tokens=tokens)
    return store, ended


def tokens(*ids):
    return np.array(ids, np.int32)


PROMPTS = Prompts(HEADLESS.counts)


def read(text, new):
    if text.size:
        text.extend(new)
    else:
        text.begin(new, len(new) - 1, PROMPTS)


def grown(store, text, new):
    read(text, np.array(new, np.int32))
    store.put([text])
    return text


def kept(store, text):
    return grown(store, store.take_by_content(text), text)


@pytest.mark.parametrize("more", [0, AHEAD - 1, AHEAD, AHEAD + 500])
def test_a_text_is_found_however_much_was_added(more):
    store, _ = store_of()
    text = np.random.default_rng(0).integers(0, 50, 700 + more).astype(np.int32)
    known = kept(store, text[:700])
    assert store.take_by_content(text) is known


def test_a_text_that_changed_before_its_end_is_a_new_one():
    store, _ = store_of()
    text = np.arange(100, dtype=np.int32)
    kept(store, text)
    text[3] = 7  # far before the tokens that it is looked up by
    assert store.take_by_content(text).size == 0


def test_equal_texts_are_taken_once_each():
    store, _ = store_of()
    pair = [store.take_by_content(tokens(1, 2)) for _ in range(2)]
    for text in pair:
        read(text, tokens(1, 2))
    store.put(pair)
    found = [store.take_by_content(tokens(1, 2, 3)) for _ in range(3)]
    assert {id(one) for one in found[:2]} == {id(one) for one in pair} and found[2].size == 0


def test_a_text_is_found_by_its_id():
    store, ended = store_of()
    text = grown(store, store.take("a"), [1, 2])
    assert store.take_by_content(tokens(1, 2)).size == 0  # texts with an id are matched by id only
    assert store.take("a") is text and store.take("a").size == 0
    store.put([text])
    store.end("a")
    store.end("a")
    assert ended == [text] and len(store) == 0 and store.tokens == 0


def test_the_least_recently_used_texts_are_dropped():
    store, ended = store_of(most=3)
    for key in "abc":
        grown(store, store.take(key), [1])
    grown(store, store.take("a"), [2])
    grown(store, store.take("d"), [1])
    assert [text.key for text in ended] == ["b"] and len(store) == 3


def test_unused_texts_are_dropped():
    store, ended = store_of()
    grown(store, store.take("old"), [1])
    for _ in range(IDLE + 1):
        assert not ended
        grown(store, store.take("new"), [1])
    assert [text.key for text in ended] == ["old"]
