"""llama.cpp's static n-gram cache: read as its loader does, and drafted from as it drafts."""

import struct

import numpy as np
import pytest
from support.refusals import refuses

from rescore.lm.build.in_memory import build
from rescore.lm.model.formats import save
from rescore.lm.model.lookup_cache import SCALE
from rescore.lm.model.ngram import NGram


def read(path):
    """{context: {token: count}}, by the format that `common_ngram_cache_load` reads."""
    data, at, found = path.read_bytes(), 0, {}
    while at < len(data):
        *context, n = struct.unpack_from("<5i", data, at)
        assert n > 0
        pairs = struct.unpack_from(f"<{2 * n}i", data, at + 20)
        at += 20 + 8 * n
        assert tuple(context) not in found and min(pairs[1::2]) > 0 and len(set(pairs[::2])) == n
        found[tuple(context)] = dict(zip(pairs[::2], pairs[1::2]))
    return found


def test_counts_are_the_probabilities_of_the_model(tmp_path):
    draw, ids = np.random.default_rng(0), [1]
    for kind in draw.random(4000):
        ids.append(int(draw.integers(0, 90)) if kind < 0.3 else (7 * ids[-1] + 1) % 90)
    model = build([ids], order=4, vocab_size=90, end_of_text=0)
    save(model, tmp_path / "lm.lookup.bin")
    found, listed = read(tmp_path / "lm.lookup.bin"), set(map(tuple, model.to_tables().spell(3).tolist()))
    assert len(found) == len({gram[:2] for gram in listed})
    for (first, second, *padding), counts in found.items():
        assert padding == [-1, -1]
        p = np.exp(-model.distribution(model.start([first, second])).astype(np.float64))
        others = [count for token, count in counts.items() if (first, second, token) not in listed]
        assert len(others) <= 2 and max(others, default=0) <= SCALE / 2
        for token, count in counts.items():
            if (first, second, token) in listed:
                assert count == pytest.approx(SCALE * p[token], abs=0.51)
        assert sum(counts.values()) == pytest.approx(SCALE, abs=len(counts))


def test_a_model_without_trigrams(tmp_path):
    refuses(ValueError, lambda: save(NGram.uniform(5), tmp_path / "lm.lookup.bin"), "3", "1")
    assert not list(tmp_path.iterdir())
