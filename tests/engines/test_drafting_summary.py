"""What `Drafting.summary` tells of a call, against the call's own statistics."""

import numpy as np
import pytest
from support.scripted import Scripted

transformers = pytest.importorskip("transformers", minversion="5.20")

from support import tiny_transformers
from support.generating import PLAIN, ragged

from rescore import Drafting, NGram
from rescore.decode.draft.pace import AutoWidth
from rescore.decode.models.causal_lm import CausalLMTarget

MODEL = tiny_transformers.shared("llama")
NGRAM = NGram.uniform(tiny_transformers.V)


def call(drafting, rows=1):
    MODEL.generate(**ragged(*[6] * rows), **PLAIN, max_new_tokens=20, custom_generate=drafting)
    return drafting.summary()


def every_other(history):
    """Drafts that are wrong, after every second token."""
    return [[5, 6, 7]] if len(history) % 2 else [[-1]]


def test_plain_decoding_is_estimated_from_the_passes_without_drafts():
    """In a batch, from those in which no row had drafts."""
    rows = 3
    drafting = Drafting(Scripted(every_other))
    found = call(drafting, rows)
    cost = drafting.statistics
    assert found.totals.tokens == 20 * rows and found.totals.passes == sum(one.passes for one in cost)
    assert all(len(one.plain_us) == one.drafted.count(0) > 2 for one in cost)
    assert found.payoff.plain_ms == pytest.approx(1e-3 * np.mean([us for one in cost for us in one.plain_us]))
    taken = sum(one.drafting_us + one.verifying_us for one in cost)
    steps = sum(len(one.accepted) + sum(one.accepted) for one in cost)
    plainly = sum(one.prompt_us for one in cost) + 1e3 * found.payoff.plain_ms * steps
    assert found.payoff.speedup.ratios == (pytest.approx(plainly / taken),)
    assert found.payoff.pays == (not found.remedies)


def test_without_a_plain_pass_the_speed_is_not_known():
    found = call(Drafting(nodes=4))
    assert found.payoff is None and found.totals.tokens == 20 and "not known" in found.verdict
    (remedy,) = found.remedies
    assert "nodes=None" in remedy
    assert call(Drafting(Scripted(lambda history: [[5]]))).remedies == ()


def test_then_the_times_that_sizes_are_chosen_by_count():
    """Seconds of a pass of both rows, divided among them."""
    drafter = Scripted(lambda history: [[5]])
    drafter.nodes = AutoWidth(CausalLMTarget(MODEL))
    drafting = Drafting(drafter)
    assert call(drafting, rows=2).payoff is None
    for seconds in (3.0, 2.0):
        drafter.nodes.open(2, 6).pace.times.note(2, seconds)
    found = call(drafting, rows=2)
    assert found.payoff.plain_ms == 1000.0 and found.payoff.pays and found.remedies == ()


@pytest.mark.parametrize(
    "drafting, options",
    [
        (Drafting(), ["Drafting(lm)", "Drafting(heads)"]),
        (Drafting(NGRAM), ["Drafting(heads, lm=lm)"]),
        (Drafting(Scripted(every_other)), ["Drafting()"]),
    ],
)
def test_sources_that_are_not_in_use_are_suggested(monkeypatch, drafting, options):
    call(drafting)
    monkeypatch.setattr(drafting, "_plain_ms", 1e-3)  # passes with drafts are dear
    *sources, plainly = drafting.summary().remedies
    assert all(option in line for option, line in zip(options, sources, strict=True))
    assert "custom_generate" in plainly
