"""The decode loop: drafts never change the text, whatever is drafted, wherever it ends, alone or in batches."""

from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from support.refusals import refused, refuses
from support.scripted import Scripted
from support.threads import at_once
from support.tiny_blockwise import END, V, text, trained

from rescore import HeadsLattice, Options, Rescorer, Sampling, TreeDrafter, generate, stream
from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.draft.lattice_drafters import PathDrafter
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.loop.request import Finish, Request, Stopping, accepted_by_position
from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget
from rescore.decode.models.target import Block
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.greedy import Greedy
from rescore.decode.verify.shaping import Shaping
from rescore.decode.verify.tree_rules import Matching
from rescore.lattice.structure import Matcher, State, bits_of
from rescore.lattice.tree import TokenTree
from rescore.lm.build.in_memory import build

SAMPLING = Sampling(temperature=0.9, top_p=0.95, seed=4)
PROMPTS = [text(4 + i, seed=50 + i).astype(np.int64) for i in range(7)]
ENDS = Stopping(tokens=frozenset({END}))
TARGET, SLOTS = BlockwiseTarget(trained()), HeadsLattice(heads=BlockwiseHeads(trained()), top_k=5)
WORDS = Rescorer(build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, end_of_text=END), alpha=0.6)


def penalise(ids, scores):
    """A processor that reads the text: the token before last becomes unlikely."""
    scores = scores.clone()
    scores[0, ids[0, -2]] -= 3.0
    return scores


def tokens_of(texts) -> list[list[int]]:
    return [one.tokens.tolist() for one in texts]


GREEDY = Shaping()


def plain(prompt, most: int, shaping: Shaping = GREEDY, sequence: int = 0, ends: bool = True) -> list[int]:
    """The continuation, the whole text read anew for every token."""
    tokens: list[int] = []
    seeds = shaping.sampling.seeds(sequence, most) if shaping.sampling else None
    while len(tokens) < most and not (ends and END in tokens):
        ids = torch.tensor([[*prompt.tolist(), *tokens]])
        with torch.no_grad():
            logits = trained().logits(trained()(ids)[0, -1], 1)[None]
        for token in set(ids[0].tolist()):
            logits[0, token] *= shaping.repetition_penalty ** (1 if logits[0, token] < 0 else -1)
        for processor in shaping.processors:
            logits = processor(ids, logits)
        token = logits.argmax() if seeds is None else shaping.sampling.draw(logits[0], seeds[len(tokens)])
        tokens.append(int(token))
    return tokens


class Begins(Matcher):
    """A structure, and its states: texts that begin with some tokens."""

    def __init__(self, *tokens: int):
        self.left = tokens

    @property
    def accepting(self):
        return not self.left

    free = accepting

    def start(self, vocab_size, ends):
        return State(self, vocab_size, ends)

    def run(self):
        return self.left

    def write(self, words):
        words[:] = bits_of(self.left[:1], 32 * len(words)) if self.left else 0xFFFFFFFF

    def after(self, *tokens):
        return Begins(*self.left[len(tokens) :])


SHAPINGS = {
    "greedy": GREEDY,
    "greedy penalised": Shaping(repetition_penalty=1.7, processors=(penalise,)),
    "sampled": Shaping(sampling=SAMPLING),
    "sampled penalised": Shaping(sampling=SAMPLING, repetition_penalty=1.3, processors=(penalise,)),
}
DRAFTERS = {
    "none": (None, TreeLayout()),
    "base": (PathDrafter(SLOTS), TreeLayout()),
    "rescored": (PathDrafter(SLOTS, WORDS), TreeLayout()),
    "parallel": (PathDrafter(SLOTS, WORDS, paths=8), TreeLayout()),
    "parallel as rows": (PathDrafter(SLOTS, WORDS, paths=8), BatchLayout(8)),
    "tree": (TreeDrafter(SLOTS, WORDS, nodes=20), TreeLayout()),
    "wrong": (Scripted(lambda history: [[(int(history[-1]) + 7) % V, 1, 2], [3, 3, 3]]), TreeLayout()),
    "ragged": (Scripted(lambda history: [[int(history[-1]), 4, 5, 6][: len(history) % 5]]), TreeLayout()),
    "none as rows": (None, BatchLayout(2)),
    "ragged as rows": (Scripted(lambda history: [[int(history[-1]), 4, 5, 6][: len(history) % 5]]), BatchLayout(1)),
    "longer than the heads": (Scripted(lambda history: [[END] * 9 + [-1] * 3, [5] * 12]), TreeLayout()),
}


@pytest.mark.parametrize("shaping", SHAPINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_drafts_and_company_do_not_change_the_text(name, shaping):
    (drafter, layout), shaping = DRAFTERS[name], SHAPINGS[shaping]
    options = Options(max_tokens=18, shaping=shaping, stopping=ENDS, layout=layout)
    expected = [plain(prompt, 18, shaping, i) for i, prompt in enumerate(PROMPTS)]
    together = generate(TARGET, PROMPTS, drafter, options)
    assert tokens_of(together) == expected
    for i in (0, 3):
        alone = generate(TARGET, [Request(prompt=PROMPTS[i], sequence=i)], drafter, options)[0]
        assert alone.tokens.tolist() == expected[i]
        assert alone.statistics.accepted == together[i].statistics.accepted
    for one in together:
        # Every pass gives a token beyond those accepted, except a last one that ends inside its draft.
        assert one.statistics.passes + sum(one.statistics.accepted) - len(one.tokens) in (0, 1)
        assert one.finish == (Finish.STOP_TOKEN if one.tokens[-1] == END else Finish.LENGTH)
    if name in ("base", "tree"):  # drafts were accepted, or the test shows nothing
        assert sum(one.statistics.passes for one in together) < 0.8 * sum(len(one.tokens) for one in together)


def test_what_is_right_is_accepted_up_to_the_last_token_asked_for():
    """With everything accepted, T = 3: one token, then 4 a pass, cut at max_tokens."""
    prompt = PROMPTS[2]
    truth = plain(prompt, 30, ends=False)
    prophet = Scripted(lambda history: [truth[len(history) - len(prompt) :][:3]])
    for most in range(1, 12):
        one = generate(TARGET, [prompt], prophet, Options(max_tokens=most))[0]
        assert one.tokens.tolist() == truth[:most]
        passes, rest = divmod(most - 1, 4)
        expected = [3] * passes + [rest] * (rest > 0)
        assert one.statistics.accepted == expected
        by_position = [sum(n >= i for n in expected) for i in range(1, max(expected, default=0) + 1)]
        assert accepted_by_position(one.statistics.accepted).tolist() == by_position
        assert one.block_efficiency == most / (1 + len(expected))
    ends = Stopping(criterion=lambda text: len(text) == len(prompt) + 3)  # inside a draft
    one = generate(TARGET, [prompt], prophet, Options(stopping=ends))[0]
    assert one.tokens.tolist() == truth[:3] and one.statistics.accepted == [2]


def test_a_stream_adds_up_to_the_text():
    options = Options(max_tokens=18, stopping=ENDS)
    parts, ended = [[] for _ in PROMPTS], []
    for chunk in stream(TARGET, PROMPTS, TreeDrafter(SLOTS, WORDS, nodes=12), options):
        assert chunk.request not in ended and 0 <= chunk.accepted <= len(chunk.tokens)
        parts[chunk.request] += chunk.tokens.tolist()
        ended += [chunk.request] if chunk.finish else []
    assert parts == tokens_of(generate(TARGET, PROMPTS, None, options))
    assert sorted(ended) == list(range(len(PROMPTS)))


def test_requests_have_their_own_lengths_seeds_and_sequences():
    options = Options(max_tokens=9, shaping=Shaping(sampling=SAMPLING))
    own = [{"max_tokens": 4}, {"sequence": 5}, {"seeds": SAMPLING.seeds(5, 12), "max_tokens": 12}]
    requests = [Request(prompt=PROMPTS[0], **one) for one in own]
    got = tokens_of(generate(TARGET, requests, TreeDrafter(SLOTS), options))
    assert got == [plain(PROMPTS[0], most, options.shaping, of, ends=False) for most, of in ((4, 0), (9, 5), (12, 5))]


def test_requests_have_their_own_ngram_models():
    """Each drafts as if it were alone with its model; ragged rows leave early."""
    models = [
        build([text(900, seed).astype(np.int32)], order=n, vocab_size=V, end_of_text=END)
        for seed, n in ((1, 3), (2, 5))
    ]
    for drafter in (blended_drafter(TARGET, nodes=7), TreeDrafter(SLOTS, Rescorer(WORDS.models), nodes=7)):
        requests = [Request(prompt=PROMPTS[i], max_tokens=30 - 9 * i, lm=lm) for i, lm in enumerate((*models, None))]
        together = generate(TARGET, requests, drafter)
        for request, lm, found in zip(requests, (*models, None), together):
            own = copy(drafter)
            own.rescorer = Rescorer(lm or drafter.rescorer.models, least=drafter.rescorer.least)
            own.rescorer.calibration = drafter.rescorer.calibration
            (alone,) = generate(TARGET, [replace(request, lm=None)], own)
            assert found.tokens.tolist() == alone.tokens.tolist()
            assert found.statistics.accepted == alone.statistics.accepted
    with refused(ValueError, "texts without n-gram models"):
        generate(TARGET, requests[:1], TreeDrafter(SLOTS))
    larger = build([text(90, 1).astype(np.int32)], order=2, vocab_size=V + 1, end_of_text=END)
    with refused(ValueError, "n-gram model", str(V + 1)):
        generate(TARGET, [Request(prompt=PROMPTS[0], lm=larger)], None)
    with refused(TypeError, "request 0", "lm", "rescore.load('one.ngram')"):
        generate(TARGET, [Request(prompt=PROMPTS[0], lm="one.ngram")], None)


def test_requests_have_their_own_processors_and_criteria():
    """Behind those of the options; the criterion besides theirs, which see the text token by token."""
    prompt, seen = PROMPTS[2], []

    def favour(ids, scores):
        return scores + 8.0 * (torch.arange(V) == (ids.shape[1] * 5) % V)

    def at_13(text):
        seen.append(len(text))
        return len(text) == 13

    stopping = Stopping(criterion=lambda text: len(text) == 16)
    options = Options(max_tokens=12, shaping=Shaping(processors=(penalise,)), stopping=stopping)
    requests = [prompt, Request(prompt=prompt, processors=(favour,)), Request(prompt=prompt, criterion=at_13)]
    got = generate(TARGET, requests, TreeDrafter(SLOTS, WORDS, nodes=12), options)
    shapings = (Shaping(processors=one) for one in ((penalise,), (penalise, favour)))
    expected, favoured = (plain(prompt, 10, one, ends=False) for one in shapings)
    assert tokens_of(got) == [expected, favoured, expected[:7]] and expected != favoured
    assert all(one.finish == Finish.CRITERION for one in got) and seen == list(range(len(prompt) + 1, 14))
    short = Request(prompt=prompt, processors=(lambda ids, scores: scores[:, :5],))
    refuses(ValueError, lambda: generate(TARGET, [short], None), "processor", f"[1, {V}]", "[1, 5]")


class Resumed(BlockwiseTarget):
    """Opens with all but the last `unread[b]` tokens of prompt b in the cache, and keeps the widths of its passes."""

    unread, widths = (2, 1, 5), []

    def open(self, prompts, copies, length):
        cache, first = super().open(prompts, copies, length)
        rows = [prompt[:-unread] for prompt, unread in zip(prompts, self.unread) for _ in range(copies)]
        with torch.no_grad():
            self.read(Block.of_texts(rows, [0] * len(rows), self.device), cache)
        cache.held = [len(row) for row in rows]
        return cache, first

    def read(self, block, cache):
        self.widths.append(block.width)
        return super().read(block, cache)


def test_what_a_cache_holds_of_a_prompt_is_not_read_again():
    """With rows of several drafts; with trees, test_custom_generate.py continues chats."""
    prompts, options, target = PROMPTS[2:5], Options(max_tokens=12, layout=BatchLayout(4)), Resumed(trained())
    got, expected = (generate(one, prompts, PathDrafter(SLOTS, WORDS, paths=4), options) for one in (target, TARGET))
    assert tokens_of(got) == tokens_of(expected)
    assert [one.statistics.accepted for one in got] == [one.statistics.accepted for one in expected]
    assert target.widths[1] == 5  # behind what open() read: the longest part that was left


class Raw(Scripted):
    """Drafts as they are, not cut to the room."""

    def propose(self, step):
        drafts = [np.array(self.of_history(history), np.int32) for history in step.histories]
        return [Draft(tree=TokenTree.from_drafts(rows)) for rows in drafts]


class Drawn(Raw):
    """And drawn, but without their distribution."""

    drawn = 1


def test_stop_strings_of_any_length_are_found_over_tokens_of_any_length():
    rng, words = np.random.default_rng(3), ("", "a", "bcd")
    for length in range(1, 40):
        tokens = np.append(rng.integers(0, 3, 2 * length), 2).astype(np.int32)
        text = "".join(words[token] for token in tokens)
        for string, there in ((text[-length:], True), (text[-length:] + "e", False)):
            stopping = Stopping(strings=("never", string), decode=lambda ids: "".join(words[one] for one in ids))
            assert stopping.string_in(tokens) == there


@pytest.mark.parametrize("form", [list, set, np.array, torch.tensor])
def test_stop_tokens_of_any_form_end_a_text(form):
    (whole,) = generate(TARGET, [[1]], options=Options(max_tokens=8))
    stopping = Stopping(tokens=form([int(whole.tokens[2]), V]))
    (ended,) = generate(TARGET, [[1]], options=Options(max_tokens=8, stopping=stopping))
    assert ended.finish is Finish.STOP_TOKEN and len(ended.tokens) <= 3


def test_arguments_and_drafts_are_checked():
    sampled = Shaping(sampling=SAMPLING)

    def drafted(drafter, **options):
        return lambda: generate(TARGET, [[1]], drafter, Options(**options))

    refuses(ValueError, lambda: Options(max_tokens=0), "max_tokens", "0")
    refuses(ValueError, lambda: Options(rule=Greedy(), shaping=sampled), "rule")
    refuses(ValueError, lambda: Options(rule=Matching()), "rule")
    refuses(ValueError, lambda: Stopping(strings=("a",)), "stop strings")
    refuses(ValueError, lambda: Stopping(strings=("",), decode=str), "stop strings")
    refuses(TypeError, lambda: Stopping(strings="END", decode=str), "stop strings", "END")
    refuses(TypeError, lambda: Stopping(tokens=END), "stop tokens", END)
    refuses(TypeError, lambda: Stopping(tokens={"</s>"}), "stop tokens", "integers")
    refuses(ValueError, lambda: generate(TARGET, []), "prompts")
    refuses(TypeError, lambda: generate(TARGET, [1, 2]), "prompt 0", "[]")
    refuses(TypeError, lambda: generate(TARGET, [[1], []]), "prompt 1", "[m]", "[0]")
    refuses(ValueError, lambda: generate(TARGET, [[1, V]]), "prompt 0", V, f"1..{V}")
    long, few = Options(max_tokens=93), Request(prompt=[1], seeds=SAMPLING.seeds(0, 9))
    refuses(ValueError, lambda: generate(TARGET, PROMPTS[:1], None, long), "request 0", "4", "max_tokens", "93", "96")
    refuses(ValueError, lambda: generate(TARGET, [few]), "request 0", "uint64", "[max_tokens = 64]", "[9]")
    refuses(ValueError, drafted(Scripted(lambda _: [[1, V]])), "request 0", V)
    refuses(ValueError, drafted(Raw(lambda _: [[1] * 5]), max_tokens=4), "request 0", "3", "5")
    refuses(ValueError, drafted(Drawn(lambda _: [[1]]), shaping=sampled), "request 0")
    refuses(ValueError, drafted(Scripted(lambda _: [[1], [2], [3]]), layout=BatchLayout(2)), "'batch'", "2", "3")
    refuses(TypeError, lambda: Shaping(repetition_penalty="2"), "repetition_penalty", "numbers")
    for penalty in (0, float("inf"), float("nan")):
        refuses(ValueError, partial(Shaping, repetition_penalty=penalty), "repetition_penalty", "0", "1")
    for most in (0, -3, 2.5, True):
        refuses((ValueError, TypeError), partial(Request, prompt=[1], max_tokens=most), "max_tokens", most)


class Broken(BlockwiseTarget):
    """Whose logits of the token behind every 5 are all `value`."""

    value: float

    def read(self, block, cache):
        hidden = super().read(block, cache)
        return torch.where((block.ids == 5)[..., None], torch.nan, hidden)

    def logits(self, hidden):
        return torch.where(hidden.isnan().any(-1, keepdim=True), self.value, super().logits(hidden.nan_to_num()))


@pytest.mark.parametrize(
    ("value", "shaping"),
    [
        (float("nan"), GREEDY),
        (float("inf"), Shaping(repetition_penalty=1.2)),
        (-float("inf"), Shaping(sampling=SAMPLING)),
        (-float("inf"), GREEDY),
    ],
)
def test_logits_that_are_no_numbers_are_named_where_the_text_comes_to_them(value, shaping):
    target, options = Broken(trained()), Options(max_tokens=4, shaping=shaping)
    target.value = value
    refuses(ValueError, lambda: generate(target, [[3, 5]], None, options), "-inf")
    if shaping is GREEDY:
        refuses(ValueError, lambda: generate(target, [[3, 5]], None, options), "2")
    # Behind a draft that is rejected nobody looks.
    expected = tokens_of(generate(TARGET, [[3]], None, options))
    assert 5 not in expected[0]
    assert tokens_of(generate(target, [[3]], Scripted(lambda history: [[5, 5]]), options)) == expected


def test_others_code_cannot_write_into_the_text():
    def overwrite(history):
        with refused(ValueError, "read"):
            history[:] = 0
        return [[1]]

    got, expected = (generate(TARGET, PROMPTS[:2], drafter) for drafter in (Scripted(overwrite), None))
    assert tokens_of(got) == tokens_of(expected)


def test_calls_of_several_threads_share_target_and_drafter():
    drafter, found = TreeDrafter(SLOTS, WORDS, nodes=20), {}

    def work(number):
        found[number] = tokens_of(generate(TARGET, PROMPTS[number:], drafter, Options(max_tokens=20)))

    at_once(work, range(5))
    plainly = tokens_of(generate(TARGET, PROMPTS, None, Options(max_tokens=20)))
    assert found == {number: plainly[number:] for number in range(5)}


def test_a_drafter_that_fails_ends_the_call_and_harms_no_other():
    def fails(history):
        if len(history) > 8:
            raise KeyError("no idea")
        return [[1, 2]]

    drafter = TreeDrafter(SLOTS, WORDS, nodes=20)
    running = stream(TARGET, PROMPTS[:2], drafter)
    next(running)
    failing = stream(TARGET, PROMPTS[:2], Scripted(fails))
    refuses(KeyError, lambda: list(failing), "idea")
    assert list(failing) == []
    # The same drafter in another call meanwhile, and the first call abandoned and closed.
    texts = tokens_of(generate(TARGET, PROMPTS[:2], drafter))
    running.close()
    assert texts == tokens_of(generate(TARGET, PROMPTS[:2]))


@pytest.mark.parametrize("shaping", [Shaping(), SHAPINGS["sampled"]])
@pytest.mark.parametrize("copies", [None, 3])
def test_tokens_with_which_every_text_begins_are_read_with_the_prompt(shaping, copies):
    structures = [Begins(5, 6, 7), None, Begins(4)]
    requests = [Request(prompt=prompt, structure=one) for prompt, one in zip(PROMPTS, structures)]
    layout = BatchLayout(copies) if copies else TreeLayout()
    drafter = PathDrafter(SLOTS, WORDS, paths=3) if copies else TreeDrafter(SLOTS, WORDS, nodes=8)
    for most in (1, 2, 3, 4, 14):
        options = Options(max_tokens=most, stopping=ENDS, shaping=shaping, layout=layout)
        plainly = generate(TARGET, requests, None, replace(options, layout=TreeLayout()))
        assert not any(one.statistics.begun for one in plainly)
        chunks = [*stream(TARGET, requests, drafter, options)]
        begun = [min(3, most - 1), 0, min(1, most - 1)]
        assert [len(chunk.tokens) - 1 for chunk in chunks[:3]] == [chunk.accepted for chunk in chunks[:3]] == begun
        assert [chunk.statistics.begun for chunk in chunks[:3]] == begun
        found = [[token for one in chunks if one.request == row for token in one.tokens.tolist()] for row in range(3)]
        assert found == tokens_of(plainly)


def test_what_may_end_or_change_a_text_early_is_asked_for_each_token():
    """Also of those with which its structure lets every text begin."""
    drafter, asked = TreeDrafter(SLOTS, WORDS, nodes=8), []
    decode = lambda ids: "".join(f"<{token}>" for token in ids)  # noqa: E731
    for changed in (
        {"stopping": replace(ENDS, strings=("<6>",), decode=decode)},
        {"stopping": replace(ENDS, criterion=lambda text: text[-1] == 6)},
        {"stopping": ENDS, "shaping": Shaping(processors=(lambda ids, scores: asked.append(ids) or scores,))},
    ):
        options = Options(max_tokens=9, **changed)
        request = Request(prompt=PROMPTS[0], structure=Begins(5, 6, 7))
        drafted, plainly = (generate(TARGET, [request], source, options)[0] for source in (drafter, None))
        assert drafted.tokens.tolist() == plainly.tokens.tolist() and drafted.statistics.begun == 0
        assert len(drafted.tokens) == 2 or asked
