"""Counts of running texts, against the model's own passes; the memory of earlier texts: contents, saving, threads."""

import io

import numpy as np
import pytest
from support.refusals import refuses
from support.threads import at_once

torch = pytest.importorskip("torch")

from support.running_text import Text
from support.scripted import Scripted
from support.steps import later, texts_of
from support.tiny_blockwise import END, V, predicted, text, trained
from support.watched import Watched

from rescore import NGram, Options, Rescorer, Sampling, TextMemory, TreeDrafter, blended_drafter, generate, stream
from rescore.decode.draft.calibration import HEADLESS, PREDICTED
from rescore.decode.draft.shared_counts import SharedCounts
from rescore.decode.loop.generate import top_predictions
from rescore.decode.loop.request import Request
from rescore.decode.models.blockwise import BlockwiseTarget
from rescore.decode.models.draft_step import TOP, LastPass, Read
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree

RESCORER = Rescorer(NGram.uniform(V), calibration=HEADLESS)


def twin_of(prompt):
    return Text(prompt, HEADLESS.text, PREDICTED, prompt=len(prompt))


def assert_same(counts, twin, drafts):
    other, ids = np.full(V, 1 / V), np.arange(V, dtype=np.int32)
    for draft in drafts:
        share, rest = counts.mixture(np.array(draft, np.int32), ids)
        assert share + rest * other == pytest.approx(twin.distribution(tuple(draft), other), abs=2e-5)


@pytest.mark.parametrize("rejected", [False, True])
def test_counts_are_those_of_the_models_own_passes(rejected):
    prompt = text(9, seed=3)
    drafter = Watched(TreeDrafter(None, RESCORER, nodes=5, depth=3, rejected=rejected))
    generate(BlockwiseTarget(trained()), [prompt], drafter, Options(max_tokens=12))
    twin, foreseen = twin_of(prompt.tolist()), 0
    for step in drafter.steps:
        history, tree = step.histories[0].tolist(), step.last[0].tree
        for node in sorted(set(range(tree.size)) - set(step.last[0].accepted)) if rejected else ():
            path = tree.tokens[tree.path_to(node)].tolist()
            twin.foresee(path, predicted([*twin.tokens, *path]))
            foreseen += 1
        twin.extend(history[len(twin.tokens) :])
    assert bool(foreseen) == rejected
    assert_same(drafter.steps[-1].texts[0].counts, twin, ((), (3,), (history[-2], history[-1])))


@torch.inference_mode()
def test_a_pass_is_read_after_steps_that_were_not():
    """Its rejected nodes follow all tokens but those that it accepted and the root token."""
    prompt, seen = text(9, seed=3), Watched(Scripted(lambda _: []))
    tree = TokenTree.from_parents([5, 7, 2], [-1, 0, -1])
    generate(BlockwiseTarget(trained()), [prompt], seen, Options(max_tokens=9))
    session, first = TreeDrafter(None, RESCORER).open([prompt], Shaping()), seen.steps[0]
    session.propose(first)
    history = [*first.histories[0].tolist(), 4, 6, 5, 9]  # two tokens unread, one accepted, the root token
    ids, p = top_predictions(TOP, torch.randn(4, V, generator=torch.Generator().manual_seed(2)) * 3)
    read, last = Read(np.append(history[-3], tree.tokens), ids, p), LastPass(tree=tree, accepted=[0])
    session.propose(later(first, [history], last=[last], predictions=lambda k: [read]))
    twin = twin_of(prompt.tolist())
    twin.extend(history[len(prompt) : -2])
    for path, node in (((5, 7), 1), ((2,), 2)):
        twin.foresee(path, dict(zip(ids[1 + node].tolist(), p[1 + node])))
    twin.extend(history[-2:])
    assert_same(first.texts[0].counts, twin, ((), (7,), (5, 7), (2,), (6, 2), (9,)))


@pytest.mark.parametrize("groups", [(), (None, None, None), ("a", "b", "a"), ("a", "a", "b"), (0, 0, 0)])
def test_requests_of_a_group_share_their_counts(groups):
    """By default those with the same prompt, here the first and the last; in a group, a prompt counts once."""
    prompts, answers = [[1, 2, 3], [1, 2, 4], [1, 2, 3]], [[5, 6, 5], [5, 7, 7], [6, 6, 2]]
    of = groups if any(one is not None for one in groups) else ("a", "b", "a")
    twins, blank = [], {}
    for prompt, group in zip(prompts, of):
        if of.count(group) == 1:
            twins.append(twin_of(prompt))
            continue
        behind = blank.setdefault(group, {(): twin_of(())})
        if tuple(prompt) not in behind:
            behind[tuple(prompt)] = behind[()].sibling()
            behind[tuple(prompt)].extend(prompt)
        twins.append(behind[tuple(prompt)].sibling())
    texts = texts_of(prompts, group=groups)
    SharedCounts(RESCORER.calibration.counts).begin(texts)
    for part in (slice(1), slice(1, 3)):
        for own, twin, answer in zip(texts, twins, answers):
            own.append(answer[part])
            own.read()
            twin.extend(answer[part])
    for own, twin in zip(texts, twins):
        assert_same(own.counts, twin, ((), (5,), (1, 2), (6, 5)))


@torch.inference_mode()
def test_samples_of_one_prompt_draft_from_each_other_and_stay_the_same():
    """Random numbers belong to the rows, so the texts are those decoded alone, in fewer passes."""
    prompt, target = text(9, seed=3), BlockwiseTarget(trained())
    drafter = TreeDrafter(None, RESCORER, nodes=5, depth=3)
    options = Options(max_tokens=24, shaping=Shaping(sampling=Sampling(temperature=0.7)))

    def passes(groups):
        found = generate(target, [Request(prompt=prompt, group=group) for group in groups], drafter, options)
        return [one.tokens.tolist() for one in found], sum(one.statistics.passes for one in found)

    apart, alone = passes(range(8))
    together, shared = passes([None] * 8)
    assert together == apart and shared < alone


# The memory of earlier texts.


def memory_of(*texts, **options):
    memory = TextMemory(vocab_size=V, end_of_text=END, **options)
    for one in texts:
        memory.add(one)
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
    texts = [draw.integers(1, 6, 10).astype(np.int32) for _ in range(9)]
    memory = memory_of(*texts[:8], most=most)
    before = memory.texts()
    kept = [text for text in before if text[0] < 3]
    assert memory.remove(lambda text: text[0] >= 3) == len(before) - len(kept) > 0
    memory.add(texts[8])
    assert [text.tolist() for text in memory.texts()] == [text.tolist() for text in [*kept, texts[8]]]
    same_counts(memory, memory.texts())


def opened(folder, content, **options):
    """A memory of a file of these bytes, or of this array."""
    path = folder / "memory.npy"
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content, allow_pickle=True)
    return TextMemory.open(path, vocab_size=V, end_of_text=END, **options)


def test_what_is_saved_is_what_is_opened(tmp_path):
    path = tmp_path / "saved.npy"
    memory_of([1, 2, 3], [4, END], [5]).save(path)
    assert np.load(path).tolist() == [1, 2, 3, END, 4, END, 5, END]
    again, saved = opened(tmp_path, path.read_bytes()), path.read_bytes()
    assert [one.tolist() for one in again.texts()] == [[1, 2, 3, END], [4, END], [5, END]]
    again.save(path)
    assert path.read_bytes() == saved
    memory_of().save(path)
    nothing = opened(tmp_path, path.read_bytes())
    assert (nothing.size, nothing.most) == (0, 1 << 20)
    # Of a longer file the last texts are read; a frozen memory stays as it is.
    last = opened(tmp_path, np.array([1, 2, 3, END] * 1000 + [4, 5, END], np.uint16), most=80, frozen=True)
    size = last.size
    assert 40 <= size <= 80 and last.texts()[-1].tolist() == [4, 5, END]
    refuses(ValueError, lambda: last.add([1]), "add")
    assert last.size == size


SAVED = io.BytesIO()
np.save(SAVED, np.array([1, 2, 3, END], np.int32))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda folder: opened(folder, np.array([1, V], np.int32)), ValueError, ["0..23", "1..24"]),
        (lambda folder: opened(folder, np.array([-1, 2], np.int32)), ValueError, ["0..23", "-1..2"]),
        (lambda folder: opened(folder, np.array([[1, 2]], np.int32)), ValueError, ["int32", "[1, 2]"]),
        (lambda folder: opened(folder, np.array([1.0])), ValueError, ["float64"]),
        (lambda folder: opened(folder, np.array([{}], object)), ValueError, ["file"]),
        *(
            (lambda folder, cut=cut: opened(folder, SAVED.getvalue()[:cut]), ValueError, ["memory.npy"])
            for cut in (0, 5, 60, 130)
        ),
        (lambda _: TextMemory(vocab_size=V, end_of_text=V), ValueError, ["end_of_text", "0..23", "24"]),
        (lambda _: memory_of(most=1), ValueError, ["most", "1073741824"]),
        (lambda _: memory_of(shares=()), ValueError, ["shares", "()"]),
        (lambda _: memory_of(shares=((0.0, 1.0, float("nan")),)), ValueError, ["shares"]),
        (lambda _: memory_of([[1], [2]]), TypeError, ["tokens"]),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, call, error, message):
    refuses(error, lambda: call(tmp_path), *message)


def test_threads_add_and_save_at_once(tmp_path):
    memory = memory_of(most=100_000)
    texts = [[[worker, round % V, worker] * 5 for round in range(200)] for worker in range(4)]

    def work(worker):
        for one in texts[worker]:
            memory.add(one)
        memory.save(tmp_path / f"{worker}.npy")

    at_once(work, range(4))
    kept = [text.tolist() for text in memory.texts()]
    assert sorted(kept) == sorted(text for own in texts for text in own)
    same_counts(memory, kept)


PROMPTS = [text(n, seed=n) for n in (9, 4, 12)]
OPTIONS = Options(max_tokens=20)


def ids(made):
    return [one.tokens.tolist() for one in made]


def test_a_text_that_nobody_waits_for_is_not_remembered():
    target, memory = BlockwiseTarget(trained()), memory_of()
    chunks = stream(target, PROMPTS[:1], blended_drafter(target, memory=memory, nodes=8), OPTIONS)
    next(chunks)
    chunks.close()
    assert memory.size == 0


def test_threads_share_a_memory():
    target, memory, made = BlockwiseTarget(trained()), memory_of(most=200), {}
    wanted = ids(generate(target, PROMPTS, None, OPTIONS))

    def work(thread):
        drafter = blended_drafter(target, memory=memory, nodes=8)
        made[thread] = [ids(generate(target, PROMPTS, drafter, OPTIONS)) for _ in range(4)]

    at_once(work, range(3))
    assert made == dict.fromkeys(range(3), [wanted] * 4)


@pytest.mark.parametrize("nodes", [8, None])
def test_texts_that_end_are_remembered_in_the_memory_of_their_request(nodes):
    """What was said before takes fewer passes."""
    target, own, shared = BlockwiseTarget(trained()), memory_of(), memory_of()
    plain = ids(generate(target, PROMPTS, None, OPTIONS))
    drafter = blended_drafter(target, memory=shared, nodes=nodes)
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
    target, larger = BlockwiseTarget(trained()), TextMemory(vocab_size=V + 1, end_of_text=END)
    refuses(ValueError, lambda: blended_drafter(target, NGram.uniform(V), memory=larger), "memory", 24, 25)
    fewer = TextMemory(vocab_size=10, end_of_text=END)
    fewer.remember(np.array([3, 10, 4, 5, 11, 12, 6], np.int32), 0)
    assert [text.tolist() for text in fewer.texts()] == [[3], [4, 5], [6]]
