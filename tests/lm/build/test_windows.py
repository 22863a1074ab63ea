"""Windows against the definition, and the counts of all orders that follow from them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.counts import spell_keys

from rescore.lm.build.windows import Packing, join

DOCUMENTS = st.lists(st.lists(st.integers(1, 5), max_size=12), min_size=1, max_size=5)


def stream_of(documents, end_of_text=0):
    return [end_of_text] + [token for document in documents for token in (*document, end_of_text)]


def windows(stream, order, end_of_text):
    """The longest n-gram that ends at each position, from the definition."""
    for end in range(2, len(stream) + 1):
        begins = range(max(0, end - order), end)
        yield max((stream[at:end] for at in begins if end_of_text not in stream[at + 1 : end - 1]), key=len)


def spelled(packing, keys):
    offsets, tokens = spell_keys(packing, keys)
    return [tuple(tokens[a:b].tolist()) for a, b in zip(offsets, offsets[1:])]


@settings(max_examples=150)
@given(DOCUMENTS, st.integers(1, 7), st.sampled_from([6, 7, 1 << 9, 1 << 16, (1 << 16) + 1, 1 << 18, 1 << 24]))
def test_windows_are_those_of_the_definition(documents, order, vocab_size):
    top = vocab_size - 1  # the highest id is the end of text: packed words may be negative
    stream = [top if token == 0 else token for token in stream_of(documents)]
    packing = Packing(order=order, vocab_size=vocab_size, end_of_text=top)
    keys = packing.keys(np.array(stream, np.uint32))
    assert keys.shape == (packing.words, len(stream) - 1)
    assert spelled(packing, keys) == [tuple(w) for w in windows(stream, order, top)]


def test_join():
    assert join([], 5, 0).tolist() == [0]
    assert join([[1], [], [0, 2, 0], [0], [3, 0, 0]], 5, 0).tolist() == [0, 1, 0, 2, 0, 3, 0, 0]
    assert join([[1]], 1 << 16, 0).dtype == np.uint16 and join([[1]], (1 << 16) + 1, 0).dtype == np.uint32
