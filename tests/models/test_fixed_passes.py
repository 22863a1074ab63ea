"""Passes of fixed shape, computed without capturing: the texts are the model's, nothing is read on the host, and one
trace serves all texts.
"""

import contextlib
import inspect
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from support.blocks import chain, tree_block
from support.fixed_steps import GRAIN, TREES, fixed, random_step, reads_on_the_host
from support.paths import ROOT
from support.tiny_families import small_model
from support.tiny_transformers import CAUSAL, V, build, shared
from torch.fx.experimental.proxy_tensor import make_fx

from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.pace import AutoWidth
from rescore.decode.loop.explanation import Explanation
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models import fixed_passes
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.fixed_passes import FixedPasses, Graph, why_eager
from rescore.decode.models.target import Block
from rescore.decode.verify.draft import Draft, ScoredDraft
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Drawing, Shaping
from rescore.lattice.tree import EMPTY, TokenTree

EAGER = ["gpt-neo"]  # masks are cut from tables
FIXED = [name for name in CAUSAL if name not in EAGER]
STEPPED = (
    "llama qwen2 qwen3 mistral gemma2 gemma3_text phi3 granite olmo2 smollm3 cohere2 glm4 gpt2 gpt_neox opt".split()
)
PROMPTS = [np.array([5, 3, 8, 1, 30, 2]), np.array([7, 7, 1]), np.array([11]), np.array([2, 9, 4, 4])]
pytestmark = pytest.mark.usefixtures("no_gradients")


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
        self.steps = 0
        return self

    def propose(self, step):
        self.steps += 1
        return [Draft(tree=self._tree(text, most)) for text, most in zip(step.texts, step.room)]

    def _tree(self, text, most):
        request = text.number
        at = text.size - len(self.prompts[request])
        right = self.truth[request][at : at + min(most, (self.steps + request) % 5)]
        wrong = [(token + 1) % V for token in right]
        if not right or self.steps % 4 == 3:
            return EMPTY
        drafts = [right] if self.chains else [wrong, right, right[:1] + wrong[1:]]
        return TokenTree.from_drafts(np.array(drafts, np.int32))


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
    assert texts(target, blended_drafter(target, nodes=nodes)) == truth
    ends = [text.index(text[7]) for text in truth]
    stops = Stopping(tokens=frozenset(text[7] for text in truth[:2]))
    expected = [text[: next((i + 1 for i, token in enumerate(text) if token in stops.tokens), 20)] for text in truth]
    assert len({len(text) for text in expected}) > 1 and ends
    assert texts(target, blended_drafter(target, nodes=nodes), stopping=stops) == expected
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
    texts(target, Guesses(truth))
    (storage,) = target.fixed._idle
    for store in storage.stores.values():
        store.fill_(torch.nan)
    assert texts(target, Guesses(truth)) == truth and target.fixed._idle == [storage]


def test_what_is_not_finite_in_a_draft_is_not_read_later():
    target = fixed(build("llama"))
    cache, prompts = target.open(PROMPTS[:1], 1, 40)
    target.read(Block.of_texts(prompts, [0], target.device), cache)
    clean = target.fixed.read(chain([[4, 9, 9]], [6]), cache).chosen[0, 0]
    target.model.get_input_embeddings().weight[20] = torch.nan
    assert target.fixed.read(chain([[4, 20, 9]], [6]), cache).chosen.min() == -1
    assert target.fixed.read(chain([[4]], [6]), cache).chosen[0, 0] == clean


def test_a_pass_tells_what_logits_tell():
    target = fixed(shared("gemma2"))
    cache, prompts = target.open(PROMPTS[:2], 1, 40)
    target.read(Block.of_texts(prompts, [0, 0], target.device), cache)
    found = target.fixed.read(tree_block(TREES[0], 9, [6, 3]), cache, 5)
    p = torch.softmax(found.logits, dim=-1)
    assert np.array_equal(found.chosen, p.argmax(dim=-1).numpy())
    assert np.array_equal(found.top[0], p.topk(5).indices.numpy())
    np.testing.assert_allclose(found.top[1], p.topk(5).values.numpy(), rtol=1e-5)
    assert found.usual and found.hidden.shape == (2, 8, 32)


@pytest.mark.parametrize("family", STEPPED)
def test_a_step_reads_no_value_on_the_host(family):
    assert reads_on_the_host(fixed(small_model(family))) is None


SAMPLED = [Sampling(temperature=0.7), Sampling(top_k=5, top_p=0.9), Sampling(top_p=0.8, min_p=0.05)]


@pytest.mark.parametrize("sampling", SAMPLED, ids=["all", "top-k", "top-p"])
def test_a_step_that_draws_reads_no_value_on_the_host(sampling):
    assert reads_on_the_host(fixed(shared("llama")), Drawing.of(sampling)) is None


@pytest.mark.parametrize("nucleus", [3, 1024])
@pytest.mark.parametrize("sampling", SAMPLED, ids=["all", "top-k", "top-p"])
def test_tokens_drawn_by_a_pass_are_those_drawn_one_by_one(sampling, nucleus, monkeypatch):
    """For trees and rows that leave; where the pass cannot tell, and where one row has a processor."""
    plain, target = CausalLMTarget(shared("llama")), fixed(shared("llama"))
    requests = [Request(prompt=one, max_tokens=20 - 3 * row) for row, one in enumerate(PROMPTS)]
    requests[1] = replace(requests[1], processors=(lambda ids, scores: scores.clone().index_fill_(1, ids[0, :2], -9),))
    shaping = Shaping(sampling=sampling)
    expected = texts(plain, prompts=requests, shaping=shaping)
    monkeypatch.setattr("rescore.decode.verify.shaping.NUCLEUS", nucleus)
    asked, probabilities = [], ScoredDraft.probabilities
    monkeypatch.setattr(ScoredDraft, "probabilities", lambda *args: (asked.append(args[0]), probabilities(*args))[1])
    truth = [[*text, *[0] * 20] for text in expected]
    for drafter in (None, Guesses(truth), blended_drafter(target, nodes=9)):
        assert texts(target, drafter, requests, shaping=shaping) == expected
    # The prompts' pass has no fixed shape.
    by_host = [one for one in asked if not one.shaping.processors and len(one.history) not in map(len, PROMPTS)]
    assert bool(by_host) == (nucleus == 3 and sampling.top_p < 1 and not sampling.top_k)


@pytest.mark.slow
def test_all_listed_families_but_two_can_be_captured_in_bfloat16():
    page = (ROOT / "docs" / "reference" / "models.md").read_text()
    _, _, listed = page.partition("## Equal, attention alone\n")
    families = " ".join(listed.partition("\n##")[0].split()).split(", ")
    eager = {}
    for family in families:
        try:
            found = reads_on_the_host(fixed(small_model(family).to(torch.bfloat16)))
        except ValueError as error:
            found = str(error)
        if found:
            eager[family] = found
    assert len(families) > 60 and sorted(eager) == ["gpt_neo", "jetmoe"], eager


def test_a_value_that_is_read_on_the_host_is_found():
    model = build("llama")
    inner = model.model.layers[1].mlp
    model.model.layers[1].mlp = Reading(inner)
    assert "DataDependent" in reads_on_the_host(fixed(model))


class Reading(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) if float(x.sum()) < torch.inf else x


@pytest.mark.parametrize("family", STEPPED)
def test_a_step_traced_once_is_the_step_for_all_texts_to_the_bit(family):
    target, traced = fixed(small_model(family)), None
    drawing = Drawing.of(SAMPLED[STEPPED.index(family) % 3]) if STEPPED.index(family) % 2 else None
    for seed in range(3):
        first, second = (random_step(target, seed, drawing) for _ in range(2))

        def step(inputs, *stores, like=first):
            return target.fixed.compute(like.shape, like.storage_of(stores), inputs)

        if traced is None:
            traced = make_fx(partial(step))(first.inputs.clone(), *(store.clone() for store in first.stores))
        expected, got = step(first.inputs, *first.stores), traced(second.inputs, *second.stores)
        assert all(torch.equal(*pair) for pair in zip(expected, got))
        assert all(torch.equal(*pair) for pair in zip(first.stores, second.stores))


class Rerun:
    """In place of a CUDA graph: computes the pass again, from the same buffers into the same buffers."""

    def __init__(self, run):
        self.replay = run


@pytest.fixture
def captured(monkeypatch):
    """The shapes of the passes that are captured, on the CPU."""
    shapes = []

    def capture(graph, run, graphs):
        shapes.append(graph)
        graph._graph = Rerun(run)

    monkeypatch.setattr(Graph, "_capture", capture)
    return shapes


class Traced(Graph):
    """Repeats the operations of its pass, as a CUDA graph does: what Python decided when it was captured stays."""

    def __init__(self, graphs, shape, compute):
        storage = inspect.getclosurevars(compute).nonlocals["storage"]
        before = {place: store.clone() for place, store in storage.stores.items()}

        def step(inputs, *stores):
            storage.stores.update(zip(before, stores))
            storage._see()
            return compute(inputs)

        stores = list(storage.stores.values())
        traced = make_fx(step)(torch.zeros(shape.size, dtype=torch.int64), *stores)
        storage.stores.update(zip(before, stores))
        storage._see()
        for store, kept in zip(stores, before.values()):
            store.copy_(kept)
        super().__init__(graphs, shape, lambda inputs: traced(inputs, *stores))

    def _capture(self, run, graphs):
        self._graph = Rerun(run)


def capturing(model) -> CausalLMTarget:
    target = CausalLMTarget(model)
    target._fix(FixedPasses(target, grain=GRAIN))
    return target


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_a_shape_is_captured_when_it_occurs_again_and_later_calls_replay_it(name, captured):
    target = capturing(shared(name))
    truth, counts = of_generate(target.model), []
    for _ in range(5):
        assert texts(target, Guesses(truth)) == truth == texts(target)
        counts.append(len(captured))
    assert 0 < counts[0] < counts[1] == counts[-1], "of the first call some shapes, of the second all others"
    usual = [one.statistics for one in generate(target, PROMPTS, Guesses(truth), Options(max_tokens=20))]
    assert all(row.plain_us for row in usual)


def test_passes_that_prepare_later_ones_are_not_usual(captured):
    target = capturing(shared("llama"))
    cache, prompts = target.open(PROMPTS[:2], 1, 40)
    target.read(Block.of_texts(prompts, [0, 0], target.device), cache)
    found = [target.fixed.read(tree_block(TREES[0], 9, [6, 3]), cache, 5) for _ in range(4)]
    assert [one.usual for one in found] == [False, False, True, True] and len(captured) == 1
    for one in found[1:]:
        assert np.array_equal(one.chosen, found[0].chosen) and np.array_equal(one.top[1], found[0].top[1])
    assert torch.equal(found[3].hidden, found[0].hidden)


def test_graphs_that_were_not_used_for_long_are_dropped(captured, monkeypatch):
    monkeypatch.setattr(fixed_passes, "GRAPHS", 2)
    target = capturing(shared("llama"))
    cache, prompts = target.open(PROMPTS[:1], 1, 40)
    target.read(Block.of_texts(prompts, [0], target.device), cache)
    for width in (1, 1, 2, 2, 1, 5, 5, 1, 2):
        target.fixed.read(chain([[4] * width], [6]), cache)
    known = cache.storage.graphs.captured
    assert [(shape.width, graph is None) for shape, graph in known.items()] == [(1, False), (2, True)]


def test_graphs_go_with_the_weights_and_the_tensors_that_they_read(captured):
    model = build("llama")
    target = capturing(model)
    truth = of_generate(model)
    for _ in range(2):
        assert texts(target, Guesses(truth)) == truth
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    weights["lm_head.weight"] = weights["lm_head.weight"].flip(0)
    model.load_state_dict(weights, assign=True)
    (before,) = target.fixed._idle
    assert texts(target) == of_generate(model) != truth and before not in target.fixed._idle
    cache, _ = target.open(PROMPTS[:1], 1, 40)
    cache.storage.graphs = "captured"
    cache.reserve(4096)
    assert cache.storage.graphs is None and cache.slots >= 4096
    model.load_state_dict({name: weight.clone() for name, weight in weights.items()}, assign=True)
    assert texts(target) == of_generate(model)
    storage = cache.storage
    del cache  # opened before the change, ended after it
    assert storage not in target.fixed._idle


@contextlib.contextmanager
def of_another(model):
    model.set_adapter("other")
    yield
    model.set_adapter("default")


@contextlib.contextmanager
def merged(model):
    model.merge_adapter()
    yield
    model.unmerge_adapter()


@contextlib.contextmanager
def rescaled(model):
    with pytest.importorskip("peft.helpers").rescale_adapter_scale(model, 6.0):
        yield


CHANGES = contextlib.nullcontext, lambda model: model.disable_adapter(), of_another, merged, rescaled


def test_graphs_go_with_what_modules_decided_when_they_were_captured(monkeypatch):
    peft = pytest.importorskip("peft")
    monkeypatch.setattr(fixed_passes, "Graph", Traced)
    torch.manual_seed(1)
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "down_proj"])
    model = peft.get_peft_model(build("llama"), config)
    model.add_adapter("other", config)
    for name, weights in model.eval().named_parameters():
        if "lora" in name:
            torch.nn.init.normal_(weights, std=0.3)
    target = capturing(model)
    for change in CHANGES:
        with change(model):
            truth = of_generate(model, PROMPTS[:1])
            assert [texts(target, Guesses(truth), PROMPTS[:1]) for _ in range(2)] == [truth] * 2
    assert target.eager is None is target.fixed.eager


def test_a_pass_that_cannot_be_captured_costs_a_warning_and_no_text(monkeypatch):
    def fails(graph, run, graphs):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(Graph, "_capture", fails)
    target = capturing(shared("llama"))
    truth = of_generate(target.model)
    with pytest.warns(UserWarning, match="operation not permitted") as seen:
        for _ in range(3):
            assert texts(target, Guesses(truth)) == truth
    assert len(seen) == 1 and target.fixed.eager.endswith("is capturing")


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
        session.begin(rows)
        session.end(nodes)
        session.begin(rows)
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


def test_how_drafts_are_read_on_a_gpu_is_said(monkeypatch):
    replayed, failed, alone = (CausalLMTarget(shared(name)) for name in ("llama", "llama", "gpt-neo"))
    assert replayed.reading is None, "on a CPU nothing is to be said"
    for target in (replayed, failed, alone):
        target._fix(FixedPasses(target, grain=GRAIN, capture=False))
    failed.fixed.eager = "capturing failed: RuntimeError: not permitted"
    monkeypatch.setattr(CausalLMTarget, "device", property(lambda target: torch.device("cuda")))
    readings = replayed.reading, failed.reading, alone.reading, None
    told = [Explanation(verdict="faster", why=("a pass takes",)).on(one) for one in readings]
    assert [len(one.why) for one in told] == [2, 2, 2, 1]
    assert "CUDA graphs" in told[0].why[1] and "not permitted" in str(told[1]) and "tables" in str(told[2])
