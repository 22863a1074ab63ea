"""Drawn drafts in the loop: the text has the target's distribution under every rule; draws follow q."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.slow import slow_but

from rescore import HeadsLattice, Options, Rescorer, Sampling, TreeDrafter, generate
from rescore.decode.conformance import conforms
from rescore.decode.conformance.checks import CHECKS, FEATURES
from rescore.decode.conformance.loop import Loop
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.draft.drawn_drafter import DrawnDrafter
from rescore.decode.draft.lattice_drafters import PathDrafter
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.loop.request import Request, Stopping
from rescore.decode.models.draft_step import StatelessHeads
from rescore.decode.models.slot_cache import SlotCache
from rescore.decode.verify.chain_rules import BlockVerification, GreedyBlockVerification, TokenVerification
from rescore.decode.verify.shaping import Shaping
from rescore.decode.verify.tree_rules import Matching, RecursiveRejection
from rescore.lattice.marks import After
from rescore.lattice.spelling import Spelling
from rescore.lattice.structure import Acceptor
from rescore.lm.build.in_memory import build

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


class Guesses(StatelessHeads):
    """Three heads that know the last word but one."""

    slots = 3

    def __init__(self):
        self.table = torch.from_numpy(np.random.default_rng(4).normal(size=(WORDS, 3, WORDS)))

    def of_hidden(self, hidden, certain):
        return self.table[hidden[:, 0].long()]


LM = build([np.random.default_rng(5).integers(0, WORDS, 400)], order=2, vocab_size=WORDS, end_of_text=0)
BIGRAMS = Rescorer(LM, alpha=0.7)
SHAPING = Shaping(sampling=Sampling(temperature=0.8, top_k=3, seed=11))
AHEAD = DraftModelDrafter(Markov(12), gamma=3, vocab_size=WORDS, drawn=True)  # another table, three words ahead
GUESSED, ALL_FOUR = (HeadsLattice(heads=Guesses(), top_k=top_k) for top_k in (3, 4))
RULES = {
    "matching": (Matching(), PathDrafter(GUESSED, BIGRAMS, paths=3)),
    "fixed siblings": (RecursiveRejection("fixed"), TreeDrafter(GUESSED, BIGRAMS, nodes=6)),
    "token": (TokenVerification(), DrawnDrafter(GUESSED, BIGRAMS)),
    "block": (BlockVerification(), DrawnDrafter(GUESSED, BIGRAMS)),
    "block, q of temperature 0.8": (BlockVerification(), DrawnDrafter(ALL_FOUR, BIGRAMS, temperature=0.8)),
    "greedy block": (GreedyBlockVerification(), DrawnDrafter(GUESSED, BIGRAMS)),
    "independent siblings": (RecursiveRejection(), DrawnDrafter(GUESSED, BIGRAMS, paths=3)),
    "independent siblings as rows": (RecursiveRejection(), DrawnDrafter(GUESSED, BIGRAMS, paths=3)),
    "token, draft model": (TokenVerification(), AHEAD),
    "greedy block, draft model": (GreedyBlockVerification(), AHEAD),
    "independent siblings, draft model": (RecursiveRejection(), AHEAD),
}


BLEND = TreeDrafter(None, Rescorer(LM, calibration=HEADLESS), nodes=6)


QUICK = "matching", "block", "blend"


def found(name: str, decode: Loop, prompts: list[list[int]], **options):
    """What the harness finds, with 100 rows a call, ten where all are read again for the sake of one."""
    table, batch = Markov().table, 10 if name == "greedy block, draft model" else 100
    return conforms(decode, lambda ids: table[ids].numpy(), prompts, samples=500, batch=batch, **options)


@pytest.mark.parametrize("name", slow_but(QUICK, (*RULES, "blend")))
def test_rules_conform(name):
    rule, drafter = RULES.get(name, (Matching(), BLEND))
    layout = BatchLayout(3) if name.endswith("as rows") else TreeLayout()

    def text_of(ids):
        return "".join("abcd"[x] for x in ids)

    greedy = None if layout.copies > 1 else BLEND
    decode = Loop(target=Markov(), drafter=greedy, sampled=drafter, rule=rule, layout=layout, text_of=text_of)
    prompts = [[1], [2, 0, 3], [3, 3], [0, 1, 2, 1, 1]]
    report = found(name, decode, prompts, text_of=text_of)
    assert all(one.status.value == "passed" for one in report.findings), str(report)
    assert decode.accepted > 0.3 * 4 * 500  # or the test shows nothing


# Every rule with structures that end again, where most of its states are met; few rules with the others.
BEGUN = [(name, False, "bd") for name in (*RULES, "blend")]
BEGUN += [(name, exact, None) for name in ("matching", "block", "independent siblings") for exact in (True, False)]


@pytest.mark.parametrize("name, exact, until", slow_but([(name, False, "bd") for name in ("matching", "block")], BEGUN))
def test_rules_conform_where_structures_begin_in_texts(name, exact, until):
    """Behind "bc", in texts of the letters a to d, of which d ends them. With `until`, "c" and "bd" again and again."""
    rule, drafter = RULES.get(name, (Matching(), BLEND))
    letters = Spelling([b"a", b"b", b"c", b"d"])
    inner = Acceptor([(0, 2, 1), (1, 1, 2), (2, 0, 0), (2, 2, 2)], final={0, 2})
    inner = Acceptor([(0, 2, 1), (1, 1, 2), (2, 0, 3)], final={3}) if until else inner
    structure = After(inner, "bc", letters, exact=exact, until=None if until is None else "ba")
    decode = Loop(target=Markov(), drafter=BLEND, sampled=drafter, rule=rule, layout=TreeLayout(), text_of=None)
    prompts = [[1], [2, 0, 0], [0, 1, 2], [0, 1, 2, 1, 1]]
    tried = {"sampling", "structure", "end tokens", "batches"}  # the rest has no structure
    report = found(name, decode, prompts, structure=structure, end_token=3, lacks=FEATURES - tried)
    wanted = {check for check, (needs, _) in CHECKS.items() if tried.issuperset(needs)}
    assert {one.check for one in report.findings if one.status.value == "passed"} == wanted, str(report)


@pytest.mark.parametrize(
    ("drafter", "default", "wrong", "named"),
    [
        (PathDrafter(GUESSED), Matching, BlockVerification(), ["BlockVerification", "PathDrafter"]),
        (DrawnDrafter(GUESSED), BlockVerification, Matching(), ["Matching", "DrawnDrafter"]),
        (DrawnDrafter(GUESSED, paths=9), RecursiveRejection, BlockVerification(), ["chain", "branches"]),
    ],
)
def test_rules_and_drafters_belong_together(drafter, default, wrong, named):
    assert isinstance(Options(shaping=SHAPING).rule_for(drafter), default)
    refuses(ValueError, lambda: generate(Markov(), [[1]], drafter, Options(shaping=SHAPING, rule=wrong)), *named)


def test_refusals_of_structures():
    def forbid(ids, scores):
        return scores.index_fill(1, torch.tensor([1]), -math.inf)

    never = Acceptor([(0, 1, 1), (1, 1000, 2)], final={2})  # the target has no such token
    one, forbidding = (Request(prompt=[1], structure=never, processors=given) for given in ((), (forbid,)))
    options = Options(max_tokens=4, stopping=Stopping(tokens=frozenset({3})))
    refuses(ValueError, lambda: generate(Markov(), [one]), "request 0", "stop tokens")
    refuses(ValueError, lambda: generate(Markov(), [one], None, options), "request 0", "structure", "2")
    refuses(ValueError, lambda: generate(Markov(), [forbidding], None, options), "processors", "forbid", "1")


@pytest.mark.parametrize("shaping", [Shaping(), SHAPING], ids=["greedy", "sampled"])
@pytest.mark.parametrize("drafter", [None, BLEND], ids=["plain", "drafted"])
def test_a_text_whose_processor_leaves_no_token_ends_and_others_go_on(shaping, drafter):
    """0 1 0 1 .. up to six tokens, then the end 3; the processor forbids 1 after the third token, or the end."""

    def forbid(ids, scores):
        return scores.index_fill(1, torch.tensor([1, 3] if ids.shape[1] > 3 else [3]), -math.inf)

    turns = Acceptor([(place, place % 2, place + 1) for place in range(6)], final={6})
    free = Request(prompt=[2], structure=turns)
    options = Options(max_tokens=12, stopping=Stopping(tokens=frozenset({3})), shaping=shaping)
    with pytest.warns(UserWarning, match="forbid"):
        texts = generate(Markov(), [Request(prompt=[2], structure=turns, processors=(forbid,)), free], drafter, options)
    assert [one.tokens.tolist() for one in texts] == [[0, 1, 0, 3], [0, 1, 0, 1, 0, 1, 3]]
