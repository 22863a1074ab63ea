"""Models as tensors: look-ups of every arc, against the automaton."""

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle import models
from support.refusals import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
from support.device_rescorer import DEVICE

from rescore.decode.device.models import EMPTY, LOAD, WAYS, ResidentModels, _shared, bucket_of, resident_models
from rescore.lm.model.compile import Arrays
from rescore.lm.model.ngram import NGram

VOCAB = 5
EMPTY, WAYS = EMPTY.value, WAYS.value


def slow_find(resident, state: int, token: int) -> int | None:
    """The packed arc of a token, read bucket by bucket."""
    key = (state << 32) | token
    bucket = int(bucket_of.fn(torch.tensor([key]), resident.buckets))
    while True:
        ways = resident.keys[WAYS * bucket : WAYS * (bucket + 1)].tolist()
        if key in ways:
            return int(resident.arcs[WAYS * bucket + ways.index(key)])
        if EMPTY in ways:
            return None
        bucket += 1


def cost_of(packed: int) -> float:
    return float(np.array(packed & 0xFFFFFFFF, np.uint32).view(np.float32))


@settings(max_examples=60)
@given(st.lists(models(VOCAB), min_size=1, max_size=3))
def test_look_ups_are_the_automata_s(lms):
    ngrams = [lm.ngram() for lm in lms]
    resident = ResidentModels(ngrams, DEVICE)
    offset = 0
    for j, model in enumerate(ngrams):
        arrays = model.arrays
        for state in range(model.core.num_states):
            own = range(int(arrays.arc_begin[state]), int(arrays.arc_begin[state + 1]))
            arcs = {int(arrays.arc_token[arc]): arc for arc in own}
            if state:
                backoff = int(resident.backoffs[offset + state - 1])
                assert cost_of(backoff) == arrays.backoff_cost[state]
                assert backoff >> 32 == (
                    offset + int(arrays.backoff_state[state]) - 1 if arrays.backoff_state[state] else -1
                )
            for token in range(VOCAB):
                found = slow_find(resident, offset + state - 1, token) if state else int(resident.roots[j, token])
                assert (found is not None) == (token in arcs)
                if found is not None:
                    after = int(arrays.arc_next[arcs[token]])
                    assert cost_of(found) == arrays.arc_cost[arcs[token]]
                    assert found >> 32 == (offset + after - 1 if after else -1)
        offset += model.core.num_states - 1


def test_look_ups_take_few_reads(demo):
    """Of the keys that are there, and of others: buckets read, 32 bytes each."""
    model = NGram.open(demo / "demo.ngram")
    resident = ResidentModels([model], torch.device("cpu"))
    stored = torch.nonzero(resident.keys != EMPTY)[:, 0]
    displaced = stored // WAYS - bucket_of.fn(resident.keys[stored], resident.buckets)
    assert displaced.min() == 0 and displaced.float().mean() < 0.1
    assert len(stored) == model.core.num_arcs - model.vocab_size and len(resident.keys) < len(stored) / LOAD + 64
    full = (resident.keys.reshape(-1, WAYS) != EMPTY).all(dim=1)
    assert full.float().mean() < 0.2  # a search for what is not there reads on behind these alone


def test_models_are_copied_once_while_somebody_has_them(worked):
    model, _ = worked
    one, other = resident_models([model], DEVICE), resident_models([model], DEVICE)
    assert one is other and one is not resident_models([model, model], DEVICE)
    key = id(one)
    del one, other
    assert not any(id(held) == key for held in _shared.values())


@pytest.mark.parametrize(
    "name, at, value",
    [
        ("arc_next", -1, 999),
        ("arc_token", -1, 60_000),
        ("backoff_state", -1, 999),
        ("arc_begin", 1, 10**6),
        ("arc_begin", -1, 1),
    ],
)
def test_arrays_that_lead_outside_are_refused(worked, name, at, value):
    """Arrays of a damaged file that was opened without a full check."""
    model, _ = worked
    arrays = Arrays(*(array.copy() for array in model.arrays))
    getattr(arrays, name)[at] = value
    refuses(ValueError, lambda: ResidentModels([cast("NGram", Damaged(arrays, model))], DEVICE), "model")


class Damaged:
    """The part of a model that is read."""

    def __init__(self, arrays, model):
        self.arrays, self.core, self.order, self.vocab_size = arrays, model.core, model.order, model.vocab_size


def test_too_many_states_are_refused(worked):
    model = Damaged(worked[0].arrays, worked[0])
    model.core = type("Core", (), {"num_states": 2**30 + 2})
    refuses(ValueError, lambda: ResidentModels([cast("NGram", model)] * 2, DEVICE), "models", "2^31", "2147483650")
