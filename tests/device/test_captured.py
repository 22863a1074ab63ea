"""Passes captured as CUDA graphs are the passes that are computed, and the texts those of the model."""

import copy
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

from support.blocks import chain, tree_block
from support.tiny_transformers import CAUSAL, V, build

from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.fixed_passes import FixedPasses
from rescore.decode.models.target import Block
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree

PROMPTS = [np.array([5, 3, 8, 1, 30, 2]), np.array([7, 7, 1]), np.array([11])]
TREE = TokenTree.from_drafts(np.array([[3, 4, 5], [3, 6, -1], [7, 4, 8]]))
EAGER = {"gpt-neo"}  # masks from tables
EXPERTS = {"deepseek-v3", "glm4-moe", "mellum"}  # some versions of transformers route on the host


@pytest.fixture(autouse=True)
def exact():
    torch.backends.cuda.matmul.allow_tf32 = False
    with torch.no_grad():
        yield


def target_of(name: str, dtype=torch.float32) -> CausalLMTarget:
    target = CausalLMTarget(build(name).to("cuda", dtype))
    assert (target.fixed is None) == (name in EAGER), target.eager
    return target


def texts(target, drafter, count: int = 24, **options) -> list[list[int]]:
    return [one.tokens.tolist() for one in generate(target, PROMPTS, drafter, Options(max_tokens=count, **options))]


def of_generate(target, count: int = 24) -> list[list[int]]:
    found = []
    for prompt in PROMPTS:
        ids = torch.from_numpy(prompt)[None].cuda()
        out = target.model.generate(ids, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)
        found.append(out[0, len(prompt) :].tolist())
    return found


@pytest.mark.parametrize("name", [name for name in CAUSAL if name not in EAGER])
def test_texts_are_those_of_generate(name):
    target = target_of(name)
    expected = of_generate(target)
    for nodes in (None, 3, 16):
        for _ in range(3):  # eager, captured, replayed
            assert texts(target, blended_drafter(target, None, nodes=nodes)) == expected
    assert texts(target, None) == expected
    assert target.fixed.eager is None or name in EXPERTS, target.fixed.eager


@pytest.mark.parametrize("kept", [{}, {"top_k": 5, "top_p": 0.9}, {"top_p": 0.8, "min_p": 0.05}], ids=str)
def test_tokens_that_a_graph_draws_are_those_drawn_on_the_cpu(kept):
    target, shaping = target_of("llama"), Shaping(sampling=Sampling(temperature=0.7, seed=4, **kept))
    expected = texts(CausalLMTarget(copy.deepcopy(target.model).cpu()), None, shaping=shaping)
    for nodes in (3, 16):
        for _ in range(3):  # eager, captured, replayed
            assert texts(target, blended_drafter(target, None, nodes=nodes), shaping=shaping) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3", "cohere", "gpt-neox", "phi3"])
def test_a_replay_is_the_computed_pass_to_the_bit(name, dtype):
    target = target_of(name, dtype)
    computed = CausalLMTarget(target.model)
    computed._fix(FixedPasses(computed, capture=False))
    draw = torch.Generator().manual_seed(3)
    readers = []
    for one in (target, computed):
        cache, prompts = one.open(PROMPTS[:2], 1, 40)
        one.read(Block.of_texts(prompts, [0, 0], one.device), cache)
        readers.append((one.fixed, cache))
    for step in range(8):
        starts = [6 + 2 * step, 3 + step]
        block = tree_block(TREE, int(torch.randint(V, (1,), generator=draw)), starts)
        found = [passes.read(block, cache, 5) for passes, cache in readers]
        for part in ("hidden", "logits"):
            assert torch.equal(*(getattr(one, part) for one in found)), (step, part)
        assert np.array_equal(*(one.chosen for one in found)), step
        for parts in zip(*(one.top for one in found)):
            assert np.array_equal(*parts), step
        for _, cache in readers:
            cache.keep(starts, [[0, 4], [0, 2]] if step % 2 else [[0, 5], [0]])
    assert found[0].usual


def test_a_second_call_replays_what_the_first_has_captured():
    target = target_of("llama")
    for _ in range(3):
        texts(target, blended_drafter(target, None, nodes=8))
    (storage,) = target.fixed._idle
    before = dict(storage.graphs.captured)
    assert any(before.values())
    texts(target, blended_drafter(target, None, nodes=8))
    assert target.fixed._idle == [storage] and {**before, **storage.graphs.captured} == storage.graphs.captured


def test_weights_elsewhere_are_read_where_they_are():
    target = target_of("llama")
    for _ in range(3):
        texts(target, None)
    other = {name: weight.clone() for name, weight in target.model.state_dict().items()}
    other["lm_head.weight"] = other["lm_head.weight"].flip(0)
    target.model.load_state_dict(other, assign=True)
    assert texts(target, None) == of_generate(target)


def test_calls_at_once():
    target = target_of("llama")
    expected, found = of_generate(target), {}

    def call(number: int) -> None:
        found[number] = [texts(target, blended_drafter(target, None, nodes=8)) for _ in range(4)]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == dict.fromkeys(range(3), [expected] * 4)


def test_a_pass_that_cannot_be_captured_costs_a_warning_and_no_text():
    class Reading(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            assert float(x.sum()) == float(x.sum())  # waits for the device
            return self.inner(x)

    model = build("llama").cuda()
    model.model.layers[0].mlp = Reading(model.model.layers[0].mlp)
    target = CausalLMTarget(model)
    with pytest.warns(UserWarning, match="read eagerly"):
        found = [texts(target, None) for _ in range(3)]
    assert found == [of_generate(target)] * 3 and "capturing failed" in target.fixed.eager
    other = target_of("llama")  # the device goes on
    assert [texts(other, None) for _ in range(3)] == [of_generate(other)] * 3


def test_what_is_not_finite_in_a_draft_is_not_read_later():
    target = target_of("llama")
    embedding = target.model.get_input_embeddings().weight
    cache, prompts = target.open(PROMPTS[:1], 1, 40)
    target.read(Block.of_texts(prompts, [0], target.device), cache)
    clean = [target.fixed.read(chain([[4, 9, 9]], [6]), cache).logits[0, 0].clone() for _ in range(3)]
    embedding[20] = torch.nan
    for _ in range(3):
        assert (target.fixed.read(chain([[4, 20, 9]], [6]), cache).chosen == -1).all()
    assert int(target.fixed.read(chain([[4]], [6]), cache).chosen[0, 0]) == int(clean[0].argmax())
