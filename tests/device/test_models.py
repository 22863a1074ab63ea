"""Models as tensors: look-ups of every arc, against the automaton."""

from typing import cast

import pytest
from support.refusals import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
from support.device_rescorer import DEVICE

from rescore.decode.device.models import ResidentModels, _shared, resident_models
from rescore.lm.model.compile import Arrays
from rescore.lm.model.ngram import NGram


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
