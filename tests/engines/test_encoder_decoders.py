"""`generate` of encoder-decoders with drafts: T5, BART and Whisper, whose encoder hears."""

import gc
import weakref

import numpy as np
import pytest
from support.refusals import refuses

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from support import tiny_transformers
from support.generating import PLAIN, ragged

from rescore import Drafting
from rescore.lm.build.in_memory import build


def sound(rows, seed=0):
    return {"input_features": torch.randn(rows, 8, 32, generator=torch.Generator().manual_seed(seed))}


def model_of(texts):
    """An n-gram model of the texts' ids."""
    return build(
        [row.numpy().astype(np.int32) for row in texts], order=3, vocab_size=int(texts.max()) + 1, end_of_text=2
    )


CALLS = {
    "t5": lambda: (tiny_transformers.shared("t5"), ragged(6, 3, 9), dict(PLAIN, max_new_tokens=14)),
    "bart": lambda: (tiny_transformers.shared("bart"), ragged(6, 3, 9), dict(PLAIN, max_new_tokens=14)),
    "whisper": lambda: (tiny_transformers.whisper(), sound(3), dict(max_new_tokens=14)),
    "whisper with times": lambda: (
        tiny_transformers.whisper(),
        sound(3),
        dict(max_new_tokens=14, return_timestamps=True),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_texts_are_those_of_plain_decoding(name):
    model, inputs, more = CALLS[name]()
    plain = model.generate(**inputs, **more)
    for drafting in (Drafting(), Drafting(nodes=6), Drafting(model_of(plain), nodes=6)):
        assert model.generate(**inputs, **more, custom_generate=drafting).tolist() == plain.tolist()


def test_long_recordings_are_written_down_part_by_part():
    """Of 32 frames at most, each begun where the last time of the one before says."""
    model, drafting, parts = tiny_transformers.whisper(), Drafting(nodes=6), []
    own = drafting._open
    drafting._open = lambda *given: parts.append(1) or own(*given)
    features = torch.randn(1, 8, 100, generator=torch.Generator().manual_seed(4))
    inputs = {"input_features": features, "attention_mask": torch.ones(1, 100, dtype=torch.int64)}
    plain = model.generate(**inputs, return_timestamps=True)
    assert model.generate(**inputs, return_timestamps=True, custom_generate=drafting).tolist() == plain.tolist()
    assert len(parts) > 1


@pytest.mark.parametrize("name", CALLS)
def test_drafts_that_are_right_save_passes(name):
    model, inputs, more = CALLS[name]()
    inputs = {key: value[:1] for key, value in inputs.items()}
    plain = model.generate(**inputs, **more)
    drafting = Drafting(prediction=plain[0], nodes=6)
    assert model.generate(**inputs, **more, custom_generate=drafting).tolist() == plain.tolist()
    assert sum(drafting.statistics[0].accepted) > 3


def test_a_model_is_not_kept():
    model = tiny_transformers.build("t5")
    model.generate(**ragged(4), **PLAIN, max_new_tokens=4, custom_generate=Drafting())
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_what_is_left_to_the_model_and_what_is_refused():
    model, inputs, more = CALLS["t5"]()
    plain = model.generate(**inputs, **more, return_dict_in_generate=True, output_scores=True)
    with pytest.warns(UserWarning, match="only the text of an encoder-decoder"):
        got = model.generate(
            **inputs, **more, return_dict_in_generate=True, output_scores=True, custom_generate=Drafting()
        )
    assert got.sequences.tolist() == plain.sequences.tolist()
    refuses(ValueError, lambda: model.generate(**inputs, **more, custom_generate=Drafting("heads")), "encoder")
    drafting = Drafting(nodes=6)
    model.generate(**inputs, **more, custom_generate=drafting)
    drafting._last = (drafting._last[0], 1e-3, *drafting._last[2:])  # passes with drafts are dear
    assert "Drafting(lm)" in str(drafting.summary()) and "heads" not in str(drafting.summary())
