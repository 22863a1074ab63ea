"""The dump of most tests of replays, and models of it."""

import numpy as np
import pytest
from support import dumps

from rescore.lattice.dump import Dump
from rescore.lm.build.in_memory import build
from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Dump:
    """Of several shards; its heads often list the true token."""
    path = tmp_path_factory.mktemp("likely") / "dump"
    dumps.write(path, made=dumps.likely_sequences(12), shard_bytes=4000)
    return Dump.open(path)


@pytest.fixture(scope="module")
def models(dump) -> tuple[NGram, NGram]:
    """Of all its texts, and of the first ones alone."""
    texts = [block.tokens.astype(np.int32) for block in dump.blocks()]
    whole, first = (build(own, order=3, vocab_size=dumps.V, end_of_text=0) for own in (texts, texts[:1]))
    return whole, first


@pytest.fixture(scope="module")
def model(models) -> NGram:
    return models[0]
