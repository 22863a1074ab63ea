"""Processors and criteria with a memory of their own, in batches: the text is `generate`'s."""

import threading
from functools import partial

import pytest
import torch
from support import tiny_transformers
from support.generating import PLAIN, Prophet, ragged, texts_of
from support.tiny_transformers import V
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from rescore import Drafting
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.models.causal_lm import CausalLMTarget

ROWS = (6, 3, 9)
MOST = 24


class Latching(StoppingCriteria):
    """A verdict on all rows, which remembers in which of them a token has occurred: evaluation harnesses have such."""

    def __init__(self, stop, how=all):
        self.stop, self.how, self.seen = stop, how, [False] * len(ROWS)

    def __call__(self, ids, scores, **_):
        self.seen = [seen or row[-1] in self.stop for seen, row in zip(self.seen, ids.tolist(), strict=True)]
        return self.how(self.seen)


class EachLatching(Latching):
    """The same with a verdict on each row."""

    def __call__(self, ids, scores, **_):
        super().__call__(ids, scores)
        return torch.tensor(self.seen)


class Counting(StoppingCriteria):
    """Ends all rows at its twelfth call, and keeps what it has seen."""

    def __init__(self):
        self.asked = []

    def __call__(self, ids, scores, **_):
        self.asked.append(ids.tolist())
        return len(self.asked) >= 12


class Comparing(StoppingCriteria):
    """Ends a row whose last token is greater than that of all others."""

    def __call__(self, ids, scores, **_):
        last = ids[:, -1]
        return (last == last.max()) & (ids.sum(dim=1) % 5 == 0)


CRITERIA = {
    "all": lambda: [Latching(range(3, 12))],
    "any": lambda: [Latching(range(3, 8), any)],
    "each": lambda: [EachLatching(range(3, 12))],
    "counting": lambda: [Counting()],
    "comparing": lambda: [Comparing()],
    "several": lambda: [Latching(range(3, 12)), Comparing(), Counting()],
}


def both(make, name, drafting=None, **more):
    """What generate returns and what drafts return, with processors or criteria made anew for each."""
    model, inputs = tiny_transformers.shared("llama"), ragged(*ROWS)
    call = {**inputs, **PLAIN, "max_new_tokens": MOST, **more}
    lists = {"stopping_criteria": StoppingCriteriaList, "logits_processor": LogitsProcessorList}
    given = [make(), make()]
    expected = model.generate(**call, **{name: lists[name](given[0])})
    drafting = drafting or Drafting(Prophet(texts_of(inputs, expected)))
    got = model.generate(**call, **{name: lists[name](given[1])}, custom_generate=drafting)
    return expected, got, given, drafting


@pytest.mark.parametrize("ends", [None, list(range(60, 70))], ids=["no end token", "end tokens"])
@pytest.mark.parametrize("name", CRITERIA)
def test_criteria_are_asked_at_each_step_with_all_rows(name, ends):
    expected, got, (plain, drafted), drafting = both(CRITERIA[name], "stopping_criteria", eos_token_id=ends)
    assert got.tolist() == expected.tolist()
    assert max(map(sum, (row.accepted for row in drafting.statistics))) > 2
    for one, other in zip(plain, drafted):
        assert vars(one) == vars(other), "asked the same, in the same order"


def test_a_streamer_gets_no_token_past_a_late_end():
    class Kept:
        def __init__(self):
            self.values = []

        def put(self, value):
            self.values.append(value.tolist())

        def end(self):
            pass

    streams = Kept(), Kept()
    model, inputs = tiny_transformers.shared("llama"), ragged(*ROWS)
    first, *_ = texts_of(inputs, model.generate(**inputs, **PLAIN, max_new_tokens=MOST))
    for stream, more in zip(streams, ({}, {"custom_generate": Drafting(Prophet([first]))})):
        criteria = StoppingCriteriaList([EachLatching(range(3, 12))])
        call = {**inputs, **PLAIN, "eos_token_id": 60, "max_new_tokens": MOST}
        model.generate(**call, stopping_criteria=criteria, streamer=stream, **more)
    assert streams[0].values == streams[1].values


class Banning(LogitsProcessor):
    """Bans tokens that a row has chosen before: what it is shown last is remembered for each row."""

    def __init__(self):
        self.chosen = {}

    def __call__(self, ids, scores):
        scores = scores.clone()
        for row, last in enumerate(ids[:, -1].tolist()):
            self.chosen.setdefault(row, set()).add(last)
            scores[row, list(self.chosen[row])] = -torch.inf
        return scores


class Stepping(LogitsProcessor):
    """Favours a token by the number of its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, ids, scores):
        self.calls += 1
        scores = scores.clone()
        scores[:, 5 * self.calls % V] += 8.0
        return scores


class Mixing(LogitsProcessor):
    """Adds the mean of all rows."""

    def __call__(self, ids, scores):
        return scores + 3 * scores.mean(dim=0, keepdim=True)


class Locked(Stepping):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


@pytest.mark.parametrize("kind, reason", [(Banning, None), (Stepping, None), (Mixing, "Mixing"), (Locked, "Locked")])
def test_processors_have_a_memory_for_each_row_or_rows_are_decoded_together(kind, reason):
    call = partial(both, lambda: [kind()], "logits_processor")
    if reason is None:
        expected, got, _, drafting = call()
        assert max(map(sum, (row.accepted for row in drafting.statistics))) > 2
    else:
        with pytest.warns(UserWarning, match=f"decoded without drafts, since {reason}"):
            expected, got, _, _ = call()
    assert got.tolist() == expected.tolist()


def test_drafts_that_are_drawn_leave_a_memory_to_the_models_own_loop():
    """Verification then processes rejected tokens too."""
    model, inputs = tiny_transformers.shared("llama"), ragged(6)
    drafting = Drafting(DraftModelDrafter(CausalLMTarget(model), gamma=3, vocab_size=V, drawn=True))
    call = {**inputs, "max_new_tokens": 8, "do_sample": True, "pad_token_id": 0, "eos_token_id": None}
    for kind, reason in ((Stepping, "Stepping"), (Mixing, None)):
        torch.manual_seed(0)
        expected = model.generate(**call, logits_processor=LogitsProcessorList([kind()]))
        torch.manual_seed(0)
        if reason is None:
            model.generate(**call, logits_processor=LogitsProcessorList([kind()]), custom_generate=drafting)
            assert drafting.statistics
            continue
        with pytest.warns(UserWarning, match=f"decoded without drafts, since {reason}"):
            got = model.generate(**call, logits_processor=LogitsProcessorList([kind()]), custom_generate=drafting)
        assert got.tolist() == expected.tolist()
