"""The memory of earlier texts: contents, saving, use by several threads."""

import numpy as np
import pytest
from support.refusals import refuses
from support.threads import at_once

torch = pytest.importorskip("torch")

from support import tiny_blockwise
from support.tiny_blockwise import trained

from rescore.decode.draft.blended_drafter import BlendedDrafter
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.loop.generate import Options, generate, stream
from rescore.decode.loop.request import Request
from rescore.decode.models.blockwise import BlockwiseTarget
from rescore.lm.model.ngram import NGram

V, END = 50, 7


def memory_of(*texts, **options):
    memory = TextMemory(vocab_size=V, end_of_text=END, **options)
    for text in texts:
        memory.add(text)
    return memory


def shares(counts, context):
    """What follows a context, as the memory has it."""
    return counts.mixture(np.array(context, np.int32), np.arange(V, dtype=np.int32))


def same_counts(memory, texts):
    wanted = memory_of(*texts)
    draw = np.random.default_rng(0)
    for counts in (memory.counts, wanted.counts):
        counts.begin()
    for _ in range(50):
        context = draw.integers(0, V, 3).astype(np.int32)
        mine, other = shares(memory.counts, context), shares(wanted.counts, context)
        assert mine[1] == other[1] and np.array_equal(mine[0], other[0])


@pytest.mark.parametrize("most", [2, 10, 64, 101])
def test_the_oldest_texts_go_first(most):
    draw, memory, added = np.random.default_rng(most), memory_of(most=most), []
    for _ in range(60):
        added.append(draw.integers(0, V, draw.integers(0, 12)))
        memory.add(added[-1])
        kept = [text.tolist() for text in memory.texts()]
        wanted = [text[-(most // 2) :].tolist() for text in added if len(text)]
        assert kept == wanted[len(wanted) - len(kept) :]
        assert memory.size == sum(map(len, kept)) <= most
        assert len(kept) == len(wanted) or memory.size > most // 2 - 12  # the longest text
        same_counts(memory, kept)


def test_texts_are_counted_each_by_itself():
    memory, empty = memory_of([1, 2], [3, 4]), memory_of()
    texts = (memory.bytes - memory.counts.bytes) - (empty.bytes - empty.counts.bytes)
    assert texts >= 4 * memory.size == 16
    share, _ = shares(memory.counts, [2])
    assert share[3] == pytest.approx(share[1])  # 3 follows no 2: both have their unigram's share alone


@pytest.mark.parametrize("most", [1000, 60])
def test_removed_texts_leave_no_trace(most):
    draw = np.random.default_rng(2)
    texts = [draw.integers(0, 5, 10).astype(np.int32) for _ in range(9)]
    memory = memory_of(*texts[:8], most=most)
    before = memory.texts()
    kept = [text for text in before if text[0] < 2]
    assert memory.remove(lambda text: text[0] >= 2) == len(before) - len(kept) > 0
    memory.add(texts[8])
    assert [text.tolist() for text in memory.texts()] == [text.tolist() for text in [*kept, texts[8]]]
    same_counts(memory, memory.texts())


def test_what_is_saved_is_what_is_opened(tmp_path):
    texts = [[1, 2, 3], [4, END], [5]]
    memory = memory_of(*texts)
    memory.save(tmp_path / "memory.npy")
    assert np.load(tmp_path / "memory.npy").tolist() == [1, 2, 3, END, 4, END, 5, END]
    opened = TextMemory.open(tmp_path / "memory.npy", vocab_size=V, end_of_text=END)
    assert [text.tolist() for text in opened.texts()] == [[1, 2, 3, END], [4, END], [5, END]]
    opened.save(tmp_path / "again.npy")
    assert (tmp_path / "again.npy").read_bytes() == (tmp_path / "memory.npy").read_bytes()
    memory_of().save(tmp_path / "empty.npy")
    assert TextMemory.open(tmp_path / "empty.npy", vocab_size=V, end_of_text=END).size == 0


def test_of_a_longer_file_the_last_texts_are_read(tmp_path):
    np.save(tmp_path / "long.npy", np.tile(np.array([1, 2, 3, END], np.uint16), 1000))
    memory = TextMemory.open(tmp_path / "long.npy", vocab_size=V, end_of_text=END, most=80)
    assert 40 <= memory.size <= 80 and memory.texts()[-1].tolist() == [1, 2, 3, END]


def test_a_frozen_memory_stays_as_it_is(tmp_path):
    memory_of([1, 2]).save(tmp_path / "memory.npy")
    memory = TextMemory.open(tmp_path / "memory.npy", vocab_size=V, end_of_text=END, frozen=True)
    refuses(ValueError, lambda: memory.add([1]), "add")
    assert memory.size == 3


@pytest.mark.parametrize(
    "content, message",
    [
        (np.array([1, V], np.int32), ["0..49", "1..50"]),
        (np.array([-1, 2], np.int32), ["0..49", "-1..2"]),
        (np.array([[1, 2]], np.int32), ["int32", "[1, 2]"]),
        (np.array([1.0]), ["float64"]),
        (np.array([{}], object), ["file"]),
    ],
)
def test_hostile_files_are_refused(tmp_path, content, message):
    np.save(tmp_path / "memory.npy", content, allow_pickle=True)
    refuses(ValueError, lambda: TextMemory.open(tmp_path / "memory.npy", vocab_size=V, end_of_text=END), *message)


@pytest.mark.parametrize("cut", [0, 5, 60, 130])
def test_damaged_files_are_refused(tmp_path, cut):
    memory_of([1, 2, 3]).save(tmp_path / "memory.npy")
    (tmp_path / "memory.npy").write_bytes((tmp_path / "memory.npy").read_bytes()[:cut])
    refuses(ValueError, lambda: TextMemory.open(tmp_path / "memory.npy", vocab_size=V, end_of_text=END), "memory.npy")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"end_of_text": V}, ["end_of_text", "0..49", "50"]),
        ({"end_of_text": -1}, ["end_of_text", "0..49", "-1"]),
        ({"most": 1}, ["most", "1073741824"]),
        ({"shares": ()}, ["shares", "()"]),
        ({"shares": ((0.0, 1.0, float("nan")),)}, ["shares"]),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    refuses(ValueError, lambda: TextMemory(**{"vocab_size": V, "end_of_text": END} | options), *message)


@pytest.mark.parametrize(
    "tokens, error", [([1, V], ValueError), ([-1], ValueError), ([0.5], TypeError), ([[1]], TypeError)]
)
def test_texts_of_other_things_are_refused(tokens, error):
    memory = memory_of([1, 2])
    refuses(error, lambda: memory.add(tokens), "tokens")
    assert memory.size == 2


def test_threads_add_and_save_at_once(tmp_path):
    memory = memory_of(most=100_000)
    texts = [[[worker, round % V, worker] * 5 for round in range(200)] for worker in range(4)]

    def work(worker):
        for text in texts[worker]:
            memory.add(text)
        memory.save(tmp_path / f"{worker}.npy")

    at_once(work, range(4))
    kept = [text.tolist() for text in memory.texts()]
    assert sorted(kept) == sorted(text for own in texts for text in own)
    same_counts(memory, kept)


PROMPTS = [tiny_blockwise.text(n, seed=n) for n in (9, 4, 12)]
OPTIONS = Options(max_tokens=20)


def passes(made):
    return sum(one.statistics.passes for one in made)


@pytest.mark.parametrize("nodes", [8, None])
def test_texts_that_end_are_remembered(nodes):
    target, memory = BlockwiseTarget(trained()), TextMemory(vocab_size=tiny_blockwise.V, end_of_text=0)
    plain = generate(target, PROMPTS, None, OPTIONS)
    drafter = BlendedDrafter(target, memory=memory, nodes=nodes)
    first = generate(target, PROMPTS, drafter, OPTIONS)
    assert [one.tokens.tolist() for one in first] == [one.tokens.tolist() for one in plain]
    wanted = [[*prompt[max(0, len(prompt) - memory.context) :], *one.tokens] for prompt, one in zip(PROMPTS, first)]
    assert sorted(one.tolist() for one in memory.texts()) == sorted(wanted)


def test_what_was_said_before_takes_fewer_passes():
    target, memory = BlockwiseTarget(trained()), TextMemory(vocab_size=tiny_blockwise.V, end_of_text=0)
    drafter = BlendedDrafter(target, memory=memory, nodes=8)
    first, again = (generate(target, PROMPTS, drafter, OPTIONS) for _ in range(2))
    assert [one.tokens.tolist() for one in again] == [one.tokens.tolist() for one in first]
    assert passes(again) < passes(first)
    memory.frozen = True
    size = memory.size
    assert passes(generate(target, PROMPTS, drafter, OPTIONS)) < passes(first) and memory.size == size


def test_a_text_that_nobody_waits_for_is_not_remembered():
    target, memory = BlockwiseTarget(trained()), TextMemory(vocab_size=tiny_blockwise.V, end_of_text=0)
    chunks = stream(target, PROMPTS[:1], BlendedDrafter(target, memory=memory, nodes=8), OPTIONS)
    next(chunks)
    chunks.close()
    assert memory.size == 0


def test_threads_share_a_memory():
    target, memory = BlockwiseTarget(trained()), TextMemory(vocab_size=tiny_blockwise.V, end_of_text=0, most=200)
    plain, made = generate(target, PROMPTS, None, OPTIONS), {}

    def work(thread):
        drafter = BlendedDrafter(target, memory=memory, nodes=8)
        made[thread] = [generate(target, PROMPTS, drafter, OPTIONS) for _ in range(4)]

    at_once(work, range(3))
    wanted = [one.tokens.tolist() for one in plain]
    assert len(made) == 3
    assert all([one.tokens.tolist() for one in call] == wanted for calls in made.values() for call in calls)


def test_a_memory_of_more_ids_is_refused():
    target = BlockwiseTarget(trained())
    ids, larger = tiny_blockwise.V, TextMemory(vocab_size=tiny_blockwise.V + 1, end_of_text=0)
    refuses(ValueError, lambda: BlendedDrafter(target, NGram.uniform(ids), memory=larger), "memory", ids, ids + 1)


def test_a_memory_of_fewer_ids_remembers_what_lies_between_those_it_lacks():
    memory = TextMemory(vocab_size=10, end_of_text=0)
    memory.remember(np.array([3, 10, 4, 5, 11, 12, 6], np.int32), 0)
    assert [text.tolist() for text in memory.texts()] == [[3], [4, 5], [6]]


def test_each_request_has_its_own_memory():
    target = BlockwiseTarget(trained())
    plain = generate(target, PROMPTS, None, OPTIONS)
    own, shared = (TextMemory(vocab_size=tiny_blockwise.V, end_of_text=0) for _ in range(2))
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
