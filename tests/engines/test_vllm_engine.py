"""The proposer inside vLLM: texts equal plain decoding under any scheduling, and finished requests leave no state.
Runs where vLLM is installed (`make check-engines`).
"""

import os

import numpy as np
import pytest
import torch
import transformers
from support import small_vllm
from support.refusals import refuses

vllm = pytest.importorskip("vllm")

from rescore.decode.conformance.reference import g_statistic, pooled, upper_tail
from rescore.decode.engines.vllm import Proposer
from rescore.decode.engines.vllm.proposer import expanded, patch_expand_batch
from rescore.lm.build.in_memory import build

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # so that its proposers can be looked at


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_vllm.save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return small_vllm.save_lm(tmp_path_factory.mktemp("lm") / "lm.ngram")


@pytest.fixture
def watched(monkeypatch):
    """The proposers that vLLM makes."""
    made, proposers = Proposer.__init__, []

    def watch(self, vllm_config):
        made(self, vllm_config)
        proposers.append(self)

    monkeypatch.setattr(Proposer, "__init__", watch)
    return proposers


def engine(folder, lm=None, **options):
    own = dict(skip_tokenizer_init=True, dtype="float32", enforce_eager=True, disable_log_stats=False)
    sizes = dict(max_model_len=small_vllm.LONGEST, max_num_seqs=16)
    return vllm.LLM(str(folder), **own, **sizes, **(small_vllm.drafting(lm) if lm else {}), **options)


def prompts(n, seed=0, shared=0):
    return [{"prompt_token_ids": one} for one in small_vllm.prompts(n, seed, shared)]


def texts(llm, requests, **sampling):
    options = vllm.SamplingParams(**{"temperature": 0, "max_tokens": 48, "detokenize": False, **sampling})
    return [list(one.outputs[0].token_ids) for one in llm.generate(requests, options, use_tqdm=False)]


def counted(llm):
    return {one.name: one.value for one in llm.get_metrics() if hasattr(one, "value") and "spec_decode" in one.name}


def test_greedy_texts_are_the_plain_ones(folder, lm, watched):
    """16 at once, prefixes shared and cached, and more requests than rows."""
    requests = [*prompts(12), *prompts(12, seed=1, shared=40), *prompts(4)]
    wanted = texts(engine(folder, enable_prefix_caching=True), requests)
    llm = engine(folder, lm, enable_prefix_caching=True)
    assert texts(llm, requests) == wanted
    assert texts(llm, requests[:3]) == wanted[:3]
    found = counted(llm)
    assert 100 < found["vllm:spec_decode_num_accepted_tokens"] <= found["vllm:spec_decode_num_draft_tokens"]
    (proposer,) = watched
    assert proposer.drafter.drafter.texts <= 32


def test_preempted_requests_lose_nothing(folder, lm):
    """The cache has room for some requests only; others are preempted and restart."""
    requests = prompts(10, seed=2)
    wanted = texts(engine(folder), requests, max_tokens=120, ignore_eos=True)
    llm = engine(folder, lm, num_gpu_blocks_override=10, enable_prefix_caching=False)
    assert texts(llm, requests, max_tokens=120, ignore_eos=True) == wanted
    assert next(one.value for one in llm.get_metrics() if one.name == "vllm:num_preemptions") > 0


def test_a_cancelled_request_leaves_the_others_alone(folder, lm, watched):
    requests = prompts(6, seed=3)
    options = vllm.SamplingParams(temperature=0, max_tokens=48, detokenize=False, ignore_eos=True)
    wanted = texts(engine(folder), requests, ignore_eos=True)
    core = engine(folder, lm).llm_engine
    for number, request in enumerate(requests):
        core.add_request(str(number), request, options)
    found, steps = {}, 0
    while core.has_unfinished_requests():
        ended = [one for one in core.step() if one.finished]
        found.update((one.request_id.split("-")[0], list(one.outputs[0].token_ids)) for one in ended)
        steps += 1
        if steps == 5:
            core.abort_request(["2"])
    found.pop("2", None)
    assert found == {str(number): text for number, text in enumerate(wanted) if number != 2}
    assert watched[0].drafter.drafter.texts <= 6


def test_texts_that_end_are_not_kept(folder, lm, watched):
    """After 30 requests that end with end-of-text, no text is kept."""
    llm = engine(folder, lm)
    found = texts(llm, prompts(30, seed=4), temperature=1.0, seed=1, max_tokens=180)
    ended = sum(text[-1] == small_vllm.END for text in found)
    assert ended > 10 and watched[0].drafter.drafter.texts <= 30 - ended


@torch.no_grad()
def law(folder, prompt):
    """The probabilities of all pairs of tokens [V, V] at temperature 0.05, by transformers."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    first = (model(torch.tensor([prompt])).logits[0, -1].double() / 0.05).softmax(0)
    rows = torch.tensor([[*prompt, token] for token in range(small_vllm.V)])
    return (first[:, None] * (model(rows).logits[:, -1].double() / 0.05).softmax(1)).numpy()


def test_values_of_drafted_positions(monkeypatch):
    """Against the definition in vLLM's documentation; a correct function is not replaced."""
    x, ends = torch.tensor([7, 0, 5]), torch.tensor([2, 5, 6])
    assert expanded(x, ends, 6).tolist() == [7, 7, 0, 0, 0, 5]
    assert expanded(x, ends, 6, replace_from=0, replace_to=9).tolist() == [7, 7, 9, 9, 9, 5]
    assert expanded(x, torch.tensor([0, 0, 2]), 2).tolist() == [5, 5]
    from vllm.v1.sample import rejection_sampler

    right = lambda *arguments: expanded(*arguments)  # noqa: E731 -- another object that does the same
    monkeypatch.setattr(rejection_sampler, "expand_batch_to_tokens", right)
    assert not patch_expand_batch() and rejection_sampler.expand_batch_to_tokens is right
    monkeypatch.setattr(rejection_sampler, "expand_batch_to_tokens", lambda x, ends, n: x.new_zeros(n))
    assert patch_expand_batch() and rejection_sampler.expand_batch_to_tokens is expanded


def test_drawn_texts_have_the_law_of_the_model(folder, lm):
    (request,) = prompts(1, seed=5)
    llm = engine(folder, lm)
    found = texts(llm, [request] * 3000, temperature=0.05, max_tokens=2, ignore_eos=True)
    expected = 3000 * law(folder, request["prompt_token_ids"])
    observed = np.zeros_like(expected)
    np.add.at(observed, tuple(np.array(found).T), 1)
    assert counted(llm)["vllm:spec_decode_num_draft_tokens"] > 100
    cells = pooled(observed.ravel(), expected.ravel())
    assert len(cells[0]) > 20 and upper_tail(*g_statistic(*cells)) > 1e-4


def test_a_model_of_more_ids_stops_the_engine(folder, tmp_path):
    build([np.arange(150)], order=2, vocab_size=150, end_of_text=0).save(tmp_path / "more.ngram")
    refuses(Exception, lambda: engine(folder, tmp_path / "more.ngram"), "128", "150")
