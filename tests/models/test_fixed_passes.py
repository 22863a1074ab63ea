"""Passes of fixed shape, computed without capturing: the texts are the model's, nothing is read on the host, and one
trace serves all texts.
"""

import contextlib
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from support.blocks import chain, tree_block
from support.tiny_transformers import CAUSAL, V, build, shared
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from rescore.decode.draft.blended_drafter import BlendedDrafter
from rescore.decode.draft.drafter import EMPTY
from rescore.decode.draft.pace import AutoWidth
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Stopping
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.fixed_passes import FixedPasses, PassShape, why_eager
from rescore.decode.models.slot_cache import SlotCache, SlotStorage
from rescore.decode.models.target import Block
from rescore.decode.verify.draft import Draft
from rescore.lattice.tree import TokenTree

EAGER = ["gpt-neo"]  # masks are cut from tables
FIXED = [name for name in CAUSAL if name not in EAGER]
EXPERTS = ["deepseek-v3", "glm4-moe", "mellum"]  # routed on the host in float32
GRAIN = 64
PROMPTS = [np.array([5, 3, 8, 1, 30, 2]), np.array([7, 7, 1]), np.array([11]), np.array([2, 9, 4, 4])]
TREES = [
    TokenTree.from_drafts(np.array([[3, 4, 5], [3, 6, -1], [7, 4, 8]])),
    TokenTree.from_drafts(np.array([[3, 9, -1], [6, 6, 6]])),
    TokenTree.from_drafts(np.array([[1, 2, 3]])),
    EMPTY,
]

pytestmark = pytest.mark.usefixtures("no_gradients")


def fixed(model, **options) -> CausalLMTarget:
    target = CausalLMTarget(model)
    target._fix(FixedPasses(target, grain=GRAIN, capture=False, **options))
    assert target.eager is None, target.eager
    return target


def texts(target, drafter=None, prompts=PROMPTS, **options) -> list[list[int]]:
    return [one.tokens.tolist() for one in generate(target, prompts, drafter, Options(max_tokens=20, **options))]


def of_generate(model, prompts=PROMPTS, count: int = 20) -> list[list[int]]:
    found = []
    for prompt in prompts:
        ids = torch.from_numpy(prompt)[None]
        out = model.generate(ids, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)
        found.append(out[0, len(prompt) :].tolist())
    return found


class Guesses:
    """Drafts trees of some of a text's true tokens and of wrong ones, of changing sizes and depths."""

    drawn = 0

    def __init__(self, truth, prompts=PROMPTS, chains: bool = False):
        self.truth, self.prompts, self.chains = truth, prompts, chains

    def open(self, prompts, shaping):
        self.rows, self.steps = list(range(len(prompts))), 0
        return self

    def propose(self, step):
        self.steps += 1
        return [Draft(tree=self._tree(row, step, most)) for row, most in enumerate(step.room)]

    def _tree(self, row, step, most):
        request = self.rows[row]
        at = len(step.histories[row]) - len(self.prompts[request])
        right = self.truth[request][at : at + min(most, (self.steps + request) % 5)]
        wrong = [(token + 1) % V for token in right]
        if not right or self.steps % 4 == 3:
            return EMPTY
        drafts = [right] if self.chains else [wrong, right, right[:1] + wrong[1:]]
        return TokenTree.from_drafts(np.array(drafts, np.int32))

    def select(self, rows):
        self.rows = [self.rows[row] for row in rows]


@pytest.mark.parametrize("chains", [False, True], ids=["trees", "chains"])
@pytest.mark.parametrize("name", FIXED)
def test_texts_are_those_of_generate(name, chains):
    target = fixed(shared(name))
    truth = of_generate(target.model)
    assert texts(target, Guesses(truth, chains=chains)) == truth
    assert texts(target) == truth


@pytest.mark.parametrize("nodes", [1, 5, 40, None])
def test_padded_widths_and_rows_that_leave(nodes):
    target = fixed(shared("qwen3"))
    truth = of_generate(target.model)
    assert texts(target, BlendedDrafter(target, nodes=nodes)) == truth
    ends = [text.index(text[7]) for text in truth]
    stops = Stopping(tokens=frozenset(text[7] for text in truth[:2]))
    expected = [text[: next((i + 1 for i, token in enumerate(text) if token in stops.tokens), 20)] for text in truth]
    assert len({len(text) for text in expected}) > 1 and ends
    assert texts(target, BlendedDrafter(target, nodes=nodes), stopping=stops) == expected
    assert texts(target, Guesses(truth), stopping=stops) == expected


def test_the_cache_grows_under_drafts():
    model = build("llama", max_position_embeddings=256)
    target = fixed(model)
    prompt = [np.arange(7, 7 + 30) % V]
    truth = of_generate(model, prompt, 120)
    short = replace(Options(max_tokens=120))
    opened = target.fixed.open
    target.fixed.open = lambda rows, slots: opened(rows, 1)  # as if nobody knew how long the text becomes
    (text,) = generate(target, prompt, Guesses(truth, prompt), short)
    assert text.tokens.tolist() == truth[0]


def test_two_calls_at_once_have_storages_of_their_own_which_later_calls_take():
    target = fixed(shared("llama"))
    truth, found = of_generate(target.model), []
    together = threading.Barrier(2)

    class Waits(Guesses):
        def propose(self, step):
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(5)
            return super().propose(step)

    def call() -> None:
        with torch.no_grad():
            found.append(texts(target, Waits(truth)))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [truth, truth]
    kept = list(target.fixed._idle)
    assert len(kept) == 2 and kept[0] is not kept[1]
    texts(target, Guesses(truth))
    assert target.fixed._idle[0] in kept
    target.fixed.release()
    assert target.fixed._idle == []


def test_nothing_of_an_earlier_call_is_read():
    target = fixed(shared("gemma3"))
    truth = of_generate(target.model)
    texts(target)
    (storage,) = target.fixed._idle
    for store in storage.stores.values():
        store.fill_(torch.nan)
    assert texts(target, Guesses(truth)) == truth and target.fixed._idle == [storage]


def test_what_is_not_finite_in_a_draft_is_not_read_later():
    target = fixed(build("llama"))
    cache, prompts = target.open(PROMPTS[:1], 1, 40)
    target.read(Block.of_texts(prompts, [0], target.device), cache)
    clean = target.fixed.read(chain([[4, 9, 9]], [6]), cache).best[0, 0]
    target.model.get_input_embeddings().weight[20] = torch.nan
    assert target.fixed.read(chain([[4, 20, 9]], [6]), cache).best.min() == -1
    assert target.fixed.read(chain([[4]], [6]), cache).best[0, 0] == clean


def test_a_pass_tells_what_logits_tell():
    target = fixed(shared("gemma2"))
    cache, prompts = target.open(PROMPTS[:2], 1, 40)
    target.read(Block.of_texts(prompts, [0, 0], target.device), cache)
    found = target.fixed.read(tree_block(TREES[0], 9, [6, 3]), cache, 5)
    p = torch.softmax(found.logits, dim=-1)
    assert np.array_equal(found.best, p.argmax(dim=-1).numpy())
    assert np.array_equal(found.ids, p.topk(5).indices.numpy())
    np.testing.assert_allclose(found.p, p.topk(5).values.numpy(), rtol=1e-5)
    assert found.usual and found.hidden.shape == (2, 8, 32)


def stepped(target, trees, roots, starts, texts, storage, moves=()):
    """The step's shape, its input after `texts` [R, n] were read into the storage, and what it computes."""
    rows = [tree_block(tree, root, [start]) for tree, root, start in zip(trees, roots, starts)]
    width = max(block.width for block in rows)
    padded = [replace(block, **_padded(block, width)) for block in rows]
    block = Block(
        **{name: torch.cat([getattr(one, name) for one in padded]) for name in ("ids", "start", "depths", "ancestors")},
        end=max(starts) + width,
    )
    shape = PassShape(target.fixed.rows(len(rows)), 1 + target.fixed.nodes(width - 1), GRAIN, 3)
    target.read(chain(texts, [0] * len(texts)), SlotCache(len(texts), GRAIN, storage=storage))
    return shape, torch.from_numpy(shape.pack(block, np.array(moves, np.int64).reshape(3, -1)))


def _padded(block, width):
    missing = width - block.width
    pad = torch.nn.functional.pad
    seen = pad(block.ancestors, (0, missing, 0, missing))
    seen[:, range(width), range(width)] = True
    return dict(ids=pad(block.ids, (0, missing)), depths=pad(block.depths, (0, missing)), ancestors=seen)


@pytest.mark.parametrize("name", [name for name in FIXED if name not in EXPERTS])
def test_a_step_reads_no_value_on_the_host(name):
    target, shape = fixed(shared(name)), PassShape(4, 9, GRAIN, 3)
    storage = SlotStorage(4, GRAIN)
    _, inputs = stepped(target, TREES, [9, 8, 7, 6], [6, 3, 1, 4], torch.randint(V, (4, 6)), storage)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        given = mode.from_tensor(inputs)
        storage.stores = {form: mode.from_tensor(store) for form, store in storage.stores.items()}
        storage.keys, storage.values = [], []
        storage._see()
        hidden, logits, found = target.fixed.compute(shape, storage, given)
    assert (hidden.shape, logits.shape, found.shape) == ((4, 9, 32), (4, 9, V), (4, 9, 7))


@pytest.mark.parametrize("name", [name for name in FIXED if name not in EXPERTS])
def test_a_step_traced_once_is_the_step_for_all_texts_to_the_bit(name):
    target, traced = fixed(shared(name)), None
    for seed in range(3):
        storages = [SlotStorage(4, GRAIN, target.planes) for _ in range(2)]
        shape, inputs = [random_step(target, seed, storage) for storage in storages][0]
        first, second = storages

        def step(given, *stores, shape=shape, like=first):
            storage = SlotStorage(4, GRAIN, target.planes)
            storage._places, storage.stores = like._places, dict(zip(like.stores, stores))
            storage._see()
            return target.fixed.compute(shape, storage, given)

        if traced is None:
            traced = make_fx(partial(step))(inputs.clone(), *(store.clone() for store in first.stores.values()))
        expected, got = step(inputs, *first.stores.values()), traced(inputs, *second.stores.values())
        assert all(torch.equal(*pair) for pair in zip(expected, got))
        assert all(torch.equal(*pair) for pair in zip(first.stores.values(), second.stores.values()))


def random_step(target, seed, storage):
    draw = np.random.default_rng(seed)
    starts = draw.integers(1, 9, 4)
    moves = np.stack((np.arange(4), starts + 2, starts))
    texts = torch.from_numpy(draw.integers(V, size=(4, 12)))
    trees = [TREES[i] for i in draw.permutation(4)]
    return stepped(target, trees, draw.integers(V, size=4).tolist(), starts.tolist(), texts, storage, moves)


def test_moves_are_made_by_the_next_pass_or_before_anything_else():
    target = fixed(shared("llama"))
    read = []
    for settled in (False, True):
        cache, prompts = target.open(PROMPTS[:2], 1, 40)
        target.read(Block.of_texts(prompts, [0, 0], target.device), cache)
        target.fixed.read(tree_block(TREES[0], 9, [6, 3]), cache)
        cache.keep([6, 3], [[0, 4], [0, 2, 3]])
        if settled:
            cache.settle()
        read.append(target.fixed.read(chain([[2], [3]], [8, 6]), cache).logits.clone())
        del cache
    assert torch.equal(*read)


def test_pass_times_are_kept_by_rows_and_padded_width():
    target = fixed(shared("llama"))
    width = AutoWidth(target)
    for rows, nodes in ((1, 3), (3, 9)):
        session = width.open(rows)
        session.begin()
        session.end(nodes)
        session.begin()
        padded = 4 if rows == 3 else 1
        assert session.pace.times.known() == [padded * (1 + {3: 4, 9: 16}[nodes])]
    assert width.open(2).pace.times.known() == [] and width.open(4).pace.times.known() == [68]


def test_what_cannot_be_captured_is_named():
    llama = build("llama")
    assert why_eager(llama.model, llama) is None
    llama.model.layers[0].mlp.register_forward_hook(lambda *given: None)
    assert "hook on LlamaMLP" in why_eager(llama.model, llama)
    compiled = build("llama")
    compiled.model.layers[1].forward = lambda *given: None
    assert "LlamaDecoderLayer" in why_eager(compiled.model, compiled)
    packed = build("llama")
    packed.config.quantization_config = {"quant_method": "bitsandbytes"}
    assert "bitsandbytes" in why_eager(packed.model, packed)
    neo = CausalLMTarget(shared("gpt-neo"))
    neo._fix(FixedPasses(neo, grain=GRAIN, capture=False))
    assert neo.fixed is None and "tables" in neo.eager
