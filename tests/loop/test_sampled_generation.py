"""Drawn drafts in the loop: the text has the target's distribution under every rule; draws follow q."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.g_test import g_test
from support.tiny_blockwise import END, V, text, trained

from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.draft.drawn_drafter import DrawnDrafter
from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.path_drafter import PathDrafter
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.loop.request import Request
from rescore.decode.loop.stopping import Stopping
from rescore.decode.models.blockwise import BlockwiseHeads, BlockwiseTarget
from rescore.decode.models.heads import Memoryless
from rescore.decode.models.slot_cache import SlotCache
from rescore.decode.verify.block import BlockVerification
from rescore.decode.verify.greedy_block import GreedyBlockVerification
from rescore.decode.verify.matching import Matching
from rescore.decode.verify.recursive import RecursiveRejection
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping, shaped_probabilities
from rescore.decode.verify.token import TokenVerification
from rescore.lattice.structure import Acceptor
from rescore.lm.build import build

WORDS = 4


class Markov:
    """A target of four words whose next word depends on the last alone."""

    vocab_size, context, trees, reads_back = WORDS, None, True, True
    device = torch.device("cpu")

    def __init__(self, seed: int = 3):
        self.table = torch.from_numpy(np.random.default_rng(seed).normal(size=(WORDS, WORDS), scale=1.2))

    def open(self, prompts, copies, length):
        cache = SlotCache(len(prompts) * copies, length)
        return cache, list(prompts)

    def read(self, block, cache):
        cache.begin(block)
        empty = torch.zeros(block.rows, 1, block.width, 1)
        cache.update(0, empty, empty)
        return block.ids[..., None].double()

    def logits(self, hidden):
        return self.table[hidden[..., 0].long()]


class Guesses(Memoryless):
    """Three heads that know the last word but one."""

    slots = 3

    def __init__(self):
        self.table = torch.from_numpy(np.random.default_rng(4).normal(size=(WORDS, 3, WORDS)))

    def of_hidden(self, hidden, certain):
        return self.table[hidden[:, 0].long()]


def draft_model(seed: int = 12) -> DraftModelDrafter:
    """Another table of words, which writes three ahead."""
    return DraftModelDrafter(Markov(seed), gamma=3, vocab_size=WORDS, drawn=True)


BIGRAMS = Rescorer(
    build(
        [np.random.default_rng(5).integers(0, WORDS, 400).astype(np.int32)], order=2, vocab_size=WORDS, end_of_text=0
    ),
    alpha=0.7,
)
SHAPING = Shaping(sampling=Sampling(temperature=0.8, top_k=3, seed=11))
GUESSED = HeadsLattice(heads=Guesses(), top_k=3)
RULES = {
    "matching": (Matching(), PathDrafter(GUESSED, BIGRAMS, paths=3)),
    "fixed siblings": (
        RecursiveRejection("fixed"),
        TreeDrafter(GUESSED, BIGRAMS, nodes=6),
    ),
    "token": (TokenVerification(), DrawnDrafter(GUESSED, BIGRAMS)),
    "block": (BlockVerification(), DrawnDrafter(GUESSED, BIGRAMS, local=True)),
    "block, q of temperature 0.8": (
        BlockVerification(),
        DrawnDrafter(HeadsLattice(heads=Guesses(), top_k=4), BIGRAMS, temperature=0.8),
    ),
    "greedy block": (GreedyBlockVerification(), DrawnDrafter(GUESSED, BIGRAMS)),
    "independent siblings": (
        RecursiveRejection(),
        DrawnDrafter(GUESSED, BIGRAMS, paths=3),
    ),
    "token, draft model": (TokenVerification(), draft_model()),
    "block, draft model": (BlockVerification(), draft_model()),
    "greedy block, draft model": (GreedyBlockVerification(), draft_model()),
    "independent siblings, draft model": (RecursiveRejection(), draft_model()),
}


def check_law(out, law: dict[tuple[int, ...], float]) -> None:
    """Tests texts against their probabilities."""
    expected = {words: len(out) * p for words, p in law.items()}
    observed = dict.fromkeys(expected, 0)
    for one in out:
        observed[tuple(one.tokens.tolist())] += 1
    # Cells that expect little are taken together, by their first words.
    cells = {words: words if expected[words] >= 5 else words[:2] for words in expected}
    names = sorted(set(cells.values()), key=str)
    place = {name: i for i, name in enumerate(names)}
    e, o = np.zeros(len(names)), np.zeros(len(names))
    for words, cell in cells.items():
        e[place[cell]] += expected[words]
        o[place[cell]] += observed[words]
    assert g_test(o, e) > 1e-3


@pytest.mark.parametrize("name", RULES)
def test_the_text_has_the_targets_law(name):
    """All texts of four words, 3,000 times: three passes and more, drafts of three words cut by the end."""
    rule, drafter = RULES[name]
    target, count, length = Markov(), 3000, 4
    requests = [Request(prompt=[1], sequence=i) for i in range(count)]
    options = Options(max_tokens=length, shaping=SHAPING, rule=rule)
    # Small batches: a draft model that is asked what it did not draft looks at its whole batch.
    out = [
        one
        for first in range(0, count, 100)
        for one in generate(target, requests[first : first + 100], drafter, options)
    ]
    step = shaped_probabilities(target.table, SHAPING.sampling).numpy()
    expected = {
        words: float(np.prod([step[a, b] for a, b in zip((1, *words), words)]))
        for words in itertools.product(range(WORDS), repeat=length)
    }
    check_law(out, expected)
    accepted = np.mean([sum(one.statistics.accepted) for one in out])
    assert accepted > 0.5  # drafts were accepted, or the test shows nothing


@pytest.mark.parametrize("name", RULES)
def test_texts_do_not_depend_on_their_company(name):
    rule, drafter = RULES[name]
    options = Options(max_tokens=9, shaping=SHAPING, rule=rule)
    together = generate(Markov(), [[i % WORDS] * (1 + i % 3) for i in range(6)], drafter, options)
    for i in (1, 4):
        alone = generate(Markov(), [Request(prompt=[i % WORDS] * (1 + i % 3), sequence=i)], drafter, options)[0]
        assert alone.tokens.tolist() == together[i].tokens.tolist()


SLOTS = HeadsLattice(heads=BlockwiseHeads(trained()), top_k=6)
LM = Rescorer(build([text(5000, 7).astype(np.int32)], order=3, vocab_size=V, end_of_text=END), alpha=0.6)
TRAINED = {
    "matching": (Matching(), TreeDrafter(SLOTS, LM, nodes=12), TreeLayout()),
    "token": (TokenVerification(), DrawnDrafter(SLOTS, LM), TreeLayout()),
    "block": (BlockVerification(), DrawnDrafter(SLOTS, LM), TreeLayout()),
    "greedy block": (GreedyBlockVerification(), DrawnDrafter(SLOTS, LM), TreeLayout()),
    "independent siblings": (RecursiveRejection(), DrawnDrafter(SLOTS, LM, paths=4), TreeLayout()),
    "independent siblings as rows": (RecursiveRejection(), DrawnDrafter(SLOTS, LM, paths=4), BatchLayout(4)),
}


@pytest.mark.parametrize("name", TRAINED)
def test_the_words_of_a_trained_model_have_its_distribution(name):
    """How often each word comes, against the sum of the target's probabilities along the texts that came."""
    rule, drafter, layout = TRAINED[name]
    shaping = Shaping(sampling=Sampling(temperature=1.0, top_p=0.97, seed=5))
    prompts = [text(4, seed=i).astype(np.int64) for i in range(60)]
    out = generate(
        BlockwiseTarget(trained()), prompts, drafter, Options(max_tokens=24, shaping=shaping, rule=rule, layout=layout)
    )
    observed, expected = np.zeros(V), np.zeros(V)
    for prompt, one in zip(prompts, out):
        ids = torch.from_numpy(np.concatenate((prompt, one.tokens)))[None]
        with torch.no_grad():
            logits = trained().logits(trained()(ids)[0, len(prompt) - 1 : -1], 1)
        expected += shaped_probabilities(logits, shaping.sampling).sum(0).numpy()
        observed += np.bincount(one.tokens, minlength=V)
    assert g_test(observed, expected) > 1e-3
    assert sum(sum(one.statistics.accepted) for one in out) > 60 * 6


def test_drawn_drafts_and_their_rules_belong_together():
    drawn = DrawnDrafter(GUESSED)
    fixed = PathDrafter(GUESSED)
    with pytest.raises(
        ValueError,
        match=(
            "drafter: expected drafts that are drawn from q, which BlockVerification verifies, got PathDrafter, "
            "whose drafts are deterministic"
        ),
    ):
        generate(Markov(), [[1]], fixed, Options(shaping=SHAPING, rule=BlockVerification()))
    with pytest.raises(
        ValueError,
        match=(
            "drafter: expected drafts that are deterministic, which Matching verifies, got DrawnDrafter, "
            "whose drafts are drawn"
        ),
    ):
        generate(Markov(), [[1]], drawn, Options(shaping=SHAPING, rule=Matching()))
    with pytest.raises(
        ValueError, match="draft: expected one chain, which token and block verification test, got a tree with branches"
    ):
        generate(
            Markov(),
            [[1]],
            DrawnDrafter(GUESSED, paths=9),
            Options(shaping=SHAPING, rule=BlockVerification()),
        )


def test_the_default_rule_goes_with_the_drafter():
    slots, options = GUESSED, Options(shaping=SHAPING)
    for drafter, rule in (
        (PathDrafter(slots), Matching),
        (DrawnDrafter(slots), BlockVerification),
        (DrawnDrafter(slots, paths=2), RecursiveRejection),
    ):
        assert isinstance(options.rule_for(drafter), rule)


STRUCTURE = Acceptor([(0, 1, 1), (0, 2, 0), (1, 0, 1), (1, 1, 2), (1, 2, 0), (2, 2, 1), (2, 0, 0)], final={1})
STOP = 3  # ends a text where the structure accepts
BLEND = TreeDrafter(None, Rescorer(BIGRAMS.models[0], calibration=HEADLESS), nodes=6)


def bounded_law(table, length):
    """The probability of every text of at most `length` words under the structure, by recursion: the words outside are
    removed before temperature and top-k.
    """
    law = {}

    def follow(words, state, p):
        if len(words) == length or words[-1:] == (STOP,):
            law[words] = p
            return
        logits = table[words[-1] if words else 1].clone()
        logits[[word for word in range(WORDS) if not state.allows(word)]] = -math.inf
        for word, share in enumerate(shaped_probabilities(logits, SHAPING.sampling).tolist()):
            if share:
                follow((*words, word), state.step(word), p * share)

    follow((), STRUCTURE.start(WORDS, {STOP}), 1.0)
    return law


@pytest.mark.parametrize("name", [*RULES, "blend"])
def test_the_law_under_a_structure(name):
    rule, drafter = RULES.get(name, (Matching(), BLEND))
    target, count, length = Markov(), 3000, 5
    requests = [Request(prompt=[1], sequence=i, structure=STRUCTURE) for i in range(count)]
    options = Options(max_tokens=length, shaping=SHAPING, rule=rule, stopping=Stopping(tokens=frozenset({STOP})))
    out = [
        one
        for first in range(0, count, 100)
        for one in generate(target, requests[first : first + 100], drafter, options)
    ]
    law = bounded_law(target.table, length)
    assert sum(law.values()) == pytest.approx(1) and any(words[-1] == STOP for words in law)
    check_law(out, law)
    assert sum(sum(one.statistics.accepted) for one in out) > count / 10


@pytest.mark.parametrize("sampling", [None, SHAPING.sampling])
def test_drafts_under_a_structure_change_nothing_and_stay_inside(sampling):
    """Texts equal those without drafts, token for token; all drafted tokens are allowed."""
    options = Options(max_tokens=24, shaping=Shaping(sampling=sampling), stopping=Stopping(tokens=frozenset({STOP})))
    requests = [Request(prompt=[1, 2], sequence=i, structure=STRUCTURE) for i in range(40)]
    plain, drafted = (generate(Markov(), requests, drafter, options) for drafter in (None, BLEND))
    assert [one.tokens.tolist() for one in plain] == [one.tokens.tolist() for one in drafted]
    for one in plain:
        state = STRUCTURE.start(WORDS, {STOP})
        for word in one.tokens.tolist():
            state = state.step(word)
        assert state.ended == (one.finish.value == "stop_token")
    drafts = sum(sum(one.statistics.drafted) for one in drafted)
    assert drafts and sum(one.statistics.passes for one in drafted) < sum(one.statistics.passes for one in plain)


def test_refusals_of_structures():
    never = Acceptor([(0, 1, 1), (1, 1000, 2)], final={2})  # the target has no such token
    stopping = Stopping(tokens=frozenset({STOP}))
    with pytest.raises(ValueError, match="request 0: structure: expected stop tokens"):
        generate(Markov(), [Request(prompt=[1], structure=never)])
    with pytest.raises(ValueError, match="request 0: structure: expected a token that may follow 2 tokens of text"):
        generate(Markov(), [Request(prompt=[1], structure=never)], None, Options(max_tokens=4, stopping=stopping))

    def forbid(ids, scores):
        return scores.index_fill(1, torch.tensor([1]), -math.inf)

    one = Request(prompt=[1], structure=never, processors=(forbid,))
    with pytest.raises(ValueError, match=r"the processors \(forbid\) leave after 1 tokens of text, got none"):
        generate(Markov(), [one], None, Options(max_tokens=4, stopping=stopping))
