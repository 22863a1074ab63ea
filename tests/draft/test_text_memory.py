"""The memory of earlier texts: contents, saving, use by several threads."""

import io

import numpy as np
import pytest
from support.refusals import refuses
from support.threads import at_once

torch = pytest.importorskip("torch")

from support import tiny_blockwise
from support.tiny_blockwise import trained

from rescore import BlendedDrafter, NGram, Options, TextMemory, generate, stream
from rescore.decode.loop.request import Request
from rescore.decode.models.blockwise import BlockwiseTarget

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
    nothing = TextMemory.open(tmp_path / "empty.npy", vocab_size=V, end_of_text=END)
    assert (nothing.size, nothing.most) == (0, 1 << 20)
    # Of a longer file the last texts are read; a frozen memory stays as it is.
    np.save(tmp_path / "long.npy", np.array([1, 2, 3, END] * 1000 + [4, 5, END], np.uint16))
    last = TextMemory.open(tmp_path / "long.npy", vocab_size=V, end_of_text=END, most=80, frozen=True)
    assert 40 <= last.size <= 80 and last.texts()[-1].tolist() == [4, 5, END]
    size = last.size
    refuses(ValueError, lambda: last.add([1]), "add")
    assert last.size == size


def opened(tmp_path, content):
    """A memory of a file of these bytes, or of this array."""
    path = tmp_path / "memory.npy"
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content, allow_pickle=True)
    return TextMemory.open(path, vocab_size=V, end_of_text=END)


SAVED = io.BytesIO()
np.save(SAVED, np.array([1, 2, 3, END], np.int32))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda folder: opened(folder, np.array([1, V], np.int32)), ValueError, ["0..49", "1..50"]),
        (lambda folder: opened(folder, np.array([-1, 2], np.int32)), ValueError, ["0..49", "-1..2"]),
        (lambda folder: opened(folder, np.array([[1, 2]], np.int32)), ValueError, ["int32", "[1, 2]"]),
        (lambda folder: opened(folder, np.array([1.0])), ValueError, ["float64"]),
        (lambda folder: opened(folder, np.array([{}], object)), ValueError, ["file"]),
        *(
            (lambda folder, cut=cut: opened(folder, SAVED.getvalue()[:cut]), ValueError, ["memory.npy"])
            for cut in (0, 5, 60, 130)
        ),
        (lambda _: TextMemory(vocab_size=V, end_of_text=V), ValueError, ["end_of_text", "0..49", "50"]),
        (lambda _: memory_of(most=1), ValueError, ["most", "1073741824"]),
        (lambda _: memory_of(shares=()), ValueError, ["shares", "()"]),
        (lambda _: memory_of(shares=((0.0, 1.0, float("nan")),)), ValueError, ["shares"]),
        (lambda _: memory_of([1, V]), ValueError, ["tokens"]),
        (lambda _: memory_of([-1]), ValueError, ["tokens"]),
        (lambda _: memory_of([0.5]), TypeError, ["tokens"]),
        (lambda _: memory_of([[1]]), TypeError, ["tokens"]),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, call, error, message):
    refuses(error, lambda: call(tmp_path), *message)


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


def ids(made):
    return [one.tokens.tolist() for one in made]


def empty(**options):
    return TextMemory(vocab_size=tiny_blockwise.V, end_of_text=0, **options)


def test_a_text_that_nobody_waits_for_is_not_remembered():
    target, memory = BlockwiseTarget(trained()), empty()
    chunks = stream(target, PROMPTS[:1], BlendedDrafter(target, memory=memory, nodes=8), OPTIONS)
    next(chunks)
    chunks.close()
    assert memory.size == 0


def test_threads_share_a_memory():
    target, memory, made = BlockwiseTarget(trained()), empty(most=200), {}
    wanted = ids(generate(target, PROMPTS, None, OPTIONS))

    def work(thread):
        drafter = BlendedDrafter(target, memory=memory, nodes=8)
        made[thread] = [ids(generate(target, PROMPTS, drafter, OPTIONS)) for _ in range(4)]

    at_once(work, range(3))
    assert made == dict.fromkeys(range(3), [wanted] * 4)


@pytest.mark.parametrize("nodes", [8, None])
def test_texts_that_end_are_remembered_in_the_memory_of_their_request(nodes):
    """What was said before takes fewer passes."""
    target, own, shared = BlockwiseTarget(trained()), empty(), empty()
    plain = ids(generate(target, PROMPTS, None, OPTIONS))
    drafter = BlendedDrafter(target, memory=shared, nodes=nodes)
    requests = [PROMPTS[0], Request(prompt=PROMPTS[1], memory=own), PROMPTS[2]]
    first = generate(target, requests, drafter, OPTIONS)
    ends = [[*prompt[max(0, len(prompt) - own.context) :], *text] for prompt, text in zip(PROMPTS, plain)]
    assert [one.tolist() for one in own.texts()] == [ends[1]]
    assert sorted(one.tolist() for one in shared.texts()) == sorted([ends[0], ends[2]])
    own.frozen = shared.frozen = True
    again = generate(target, requests, drafter, OPTIONS)
    assert ids(first) == ids(again) == plain and shared.size == sum(map(len, [ends[0], ends[2]]))
    for rows in ([1], [0, 2]) if nodes else ():
        now, before = (sum(made[row].statistics.passes for row in rows) for made in (again, first))
        assert now < before


def test_a_memory_of_other_ids_is_refused_or_remembers_what_lies_between_those_it_lacks():
    target, larger = BlockwiseTarget(trained()), TextMemory(vocab_size=tiny_blockwise.V + 1, end_of_text=0)
    refuses(
        ValueError, lambda: BlendedDrafter(target, NGram.uniform(tiny_blockwise.V), memory=larger), "memory", 24, 25
    )
    fewer = TextMemory(vocab_size=10, end_of_text=0)
    fewer.remember(np.array([3, 10, 4, 5, 11, 12, 6], np.int32), 0)
    assert [text.tolist() for text in fewer.texts()] == [[3], [4, 5], [6]]
