"""Drafting with a memory of earlier texts: what is added, and what it gains."""

import threading

import numpy as np
import pytest
from support.refusals import refused

torch = pytest.importorskip("torch")

from support.tiny_blockwise import V, text, trained

from rescore.decode.draft.blended_drafter import BlendedDrafter
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.loop.generate import Options, generate, stream
from rescore.decode.loop.request import Request
from rescore.decode.models.blockwise import BlockwiseTarget
from rescore.lm.model.ngram import NGram

PROMPTS = [text(n, seed=n) for n in (9, 4, 12)]
OPTIONS = Options(max_tokens=20)


def passes(made):
    return sum(one.statistics.passes for one in made)


@pytest.mark.parametrize("nodes", [8, None])
def test_texts_that_end_are_remembered(nodes):
    target, memory = BlockwiseTarget(trained()), TextMemory(vocab_size=V, end_of_text=0)
    plain = generate(target, PROMPTS, None, OPTIONS)
    drafter = BlendedDrafter(target, memory=memory, nodes=nodes)
    first = generate(target, PROMPTS, drafter, OPTIONS)
    assert [one.tokens.tolist() for one in first] == [one.tokens.tolist() for one in plain]
    wanted = [[*prompt[max(0, len(prompt) - memory.context) :], *one.tokens] for prompt, one in zip(PROMPTS, first)]
    assert sorted(one.tolist() for one in memory.texts()) == sorted(wanted)


def test_what_was_said_before_takes_fewer_passes():
    target, memory = BlockwiseTarget(trained()), TextMemory(vocab_size=V, end_of_text=0)
    drafter = BlendedDrafter(target, memory=memory, nodes=8)
    first, again = (generate(target, PROMPTS, drafter, OPTIONS) for _ in range(2))
    assert [one.tokens.tolist() for one in again] == [one.tokens.tolist() for one in first]
    assert passes(again) < passes(first)
    memory.frozen = True
    size = memory.size
    assert passes(generate(target, PROMPTS, drafter, OPTIONS)) < passes(first) and memory.size == size


def test_a_text_that_nobody_waits_for_is_not_remembered():
    target, memory = BlockwiseTarget(trained()), TextMemory(vocab_size=V, end_of_text=0)
    chunks = stream(target, PROMPTS[:1], BlendedDrafter(target, memory=memory, nodes=8), OPTIONS)
    next(chunks)
    chunks.close()
    assert memory.size == 0


def test_threads_share_a_memory():
    target, memory = BlockwiseTarget(trained()), TextMemory(vocab_size=V, end_of_text=0, most=200)
    plain, made = generate(target, PROMPTS, None, OPTIONS), {}

    def work(thread):
        drafter = BlendedDrafter(target, memory=memory, nodes=8)
        made[thread] = [generate(target, PROMPTS, drafter, OPTIONS) for _ in range(4)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = [one.tokens.tolist() for one in plain]
    assert len(made) == 3
    assert all([one.tokens.tolist() for one in call] == wanted for calls in made.values() for call in calls)


def test_a_memory_of_more_ids_is_refused():
    target = BlockwiseTarget(trained())
    with refused(ValueError, "memory", V, V + 1):
        BlendedDrafter(target, NGram.uniform(V), memory=TextMemory(vocab_size=V + 1, end_of_text=0))


def test_a_memory_of_fewer_ids_remembers_what_lies_between_those_it_lacks():
    memory = TextMemory(vocab_size=10, end_of_text=0)
    memory.remember(np.array([3, 10, 4, 5, 11, 12, 6], np.int32), 0)
    assert [text.tolist() for text in memory.texts()] == [[3], [4, 5], [6]]


def test_each_request_has_its_own_memory():
    target = BlockwiseTarget(trained())
    plain = generate(target, PROMPTS, None, OPTIONS)
    own, shared = (TextMemory(vocab_size=V, end_of_text=0) for _ in range(2))
    drafter = BlendedDrafter(target, memory=shared, nodes=8)
    requests = [PROMPTS[0], Request(prompt=PROMPTS[1], memory=own), PROMPTS[2]]
    made = generate(target, requests, drafter, OPTIONS)
    assert [one.tokens.tolist() for one in made] == [one.tokens.tolist() for one in plain]
    ends = [[*prompt[max(0, len(prompt) - own.context) :], *one.tokens.tolist()] for prompt, one in zip(PROMPTS, plain)]
    assert [one.tolist() for one in own.texts()] == [ends[1]]
    assert sorted(one.tolist() for one in shared.texts()) == sorted([ends[0], ends[2]])
    (again,) = generate(target, requests[1:2], drafter, OPTIONS)
    assert again.tokens.tolist() == plain[1].tokens.tolist()
    assert again.statistics.passes < made[1].statistics.passes
