"""Blended drafts in extreme settings: the text, or the error, is the same as without drafts."""

import numpy as np
import pytest
from support.refusals import refused

torch = pytest.importorskip("torch")

from support.tiny_blockwise import CONFIG, V, text, trained, untrained

from rescore import BlendedDrafter, NGram, Options, Sampling, generate
from rescore.decode.draft.calibration import HEADLESS, CalibratedTrees
from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTarget
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.sausage import blank
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
    drafted = generate(target, prompts, BlendedDrafter(target, lm, nodes=nodes), options)
    assert ids(drafted) == ids(plain) and [one.finish for one in drafted] == [one.finish for one in plain]
    return drafted


def test_one_token_repeated():
    """It is all that ever follows: chains of it, however long the text is."""
    rescorer = CalibratedTrees(NGram.uniform(1000), HEADLESS)
    for length in (1000, 100_000):
        running = rescorer.text()
        running.extend(np.full(length, 7, np.int32))
        trees = rescorer.trees(blank(1), np.full((1, 1), 7, np.int32), 15, texts=[running], depth=15)
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
    drafted = both(
        small(vocab, 64), [np.zeros(3, np.int64), np.full(9, vocab - 1)], Options(max_tokens=20), nodes=nodes
    )
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
    drafter = BlendedDrafter(target, nodes=nodes)
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
