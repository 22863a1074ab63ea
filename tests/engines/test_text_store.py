"""Texts matched by id and by content, and the limits of the store."""

import numpy as np
import pytest
from support.threads import at_once

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
    read(text, tokens(*new))
    store.put([text])
    return text


@pytest.mark.parametrize("more", [0, 1, AHEAD - 1, AHEAD, AHEAD + 500])
def test_a_text_is_found_however_much_was_added(more):
    store, _ = store_of()
    text = np.random.default_rng(0).integers(0, 50, 700 + more).astype(np.int32)
    known = store.take_by_content(text[:700])
    read(known, text[:700])
    store.put([known])
    assert store.take_by_content(text) is known


def test_a_text_that_changed_before_its_end_is_a_new_one():
    store, _ = store_of()
    text = np.arange(100, dtype=np.int32)
    known = store.take_by_content(text)
    read(known, text)
    store.put([known])
    changed = text.copy()
    changed[3] = 7  # far before the tokens that it is looked up by
    assert store.take_by_content(changed).size == 0


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


def test_threads_never_share_a_text():
    store, _ = store_of(most=5)
    failed = []

    def work(seed):
        draw = np.random.default_rng(seed)
        for _ in range(300):
            row = draw.integers(0, 2, int(draw.integers(1, 6))).astype(np.int32)
            text = store.take_by_content(row)
            if not text.begins(row):
                failed.append(row)
            before = text.size
            read(text, row[before:])
            if text.size != len(row) or text.counts.size != text.size:
                failed.append(row)
            store.put([text])

    at_once(work, range(4))
    assert not failed and len(store) <= 5
