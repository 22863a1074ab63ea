"""One model for several threads, which decode with drafts and without while it is opened and later."""

import gc
import threading
import weakref
from functools import partial, wraps
from types import MethodType

import pytest
import torch
from support.generating import PLAIN, Prophet, ragged, texts_of
from support.slow import slow_but
from support.tiny_families import small_model
from support.tiny_transformers import longrope
from support.writes import writes_to

from rescore import Drafting, NGram
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.model_check import is_recurrent
from rescore.decode.models.private_copy import private_copy

WINDOWS = ["mistral", "gemma3_text", "gpt_neo", "qwen2", "cohere2", "gpt_oss"]
SAFE = [*WINDOWS, "llama", "gpt2", "phi", "lfm2", "qwen3_next", "falcon_h1", "qwen3_moe"]
ROUNDS = 200 // len(SAFE) + 1
MOST = 24  # tokens, past the windows


def at_once(*calls) -> list:
    """What calls return, each in a thread, begun together."""
    start, found = threading.Barrier(len(calls)), [None] * len(calls)

    def run(at: int) -> None:
        start.wait()
        try:
            found[at] = calls[at]()
        except BaseException as error:  # whatever it is, it is shown in place of the text
            found[at] = repr(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def decoded(model, inputs, **more):
    return model.generate(**inputs, **{**PLAIN, "max_new_tokens": MOST, **more}).tolist()


@pytest.mark.parametrize("family", slow_but(["mistral"], SAFE))
def test_threads_decode_with_and_without_drafts_while_a_model_is_opened(family):
    fresh = small_model(family)
    inputs = ragged(9, 4), ragged(6)
    truth = [decoded(fresh, one) for one in inputs]
    known = [text for one, found in zip(inputs, truth) for text in texts_of(one, torch.tensor(found))]
    for _ in range(ROUNDS):
        model = small_model(family)
        shared = Drafting(nodes=6) if is_recurrent(model.config) else Drafting(Prophet(known))
        calls = [
            partial(decoded, model, one, **more)
            for one in inputs
            for more in ({}, {"custom_generate": Drafting()}, {"custom_generate": shared})
        ]
        assert at_once(*calls) == [text for text in truth for _ in range(3)]
        assert decoded(model, inputs[0]) == truth[0]


@pytest.mark.parametrize("switch", [False, True])
def test_threads_on_both_sides_of_the_switch_of_longrope(switch):
    """Each thread has the angles of its own text."""
    model, inputs = longrope("llama"), (ragged(8), ragged(14 if switch else 8, 3))
    truth = [decoded(model, one) for one in inputs]
    calls = [partial(decoded, model, one, custom_generate=Drafting(nodes=4)) for one in (*inputs, *inputs)]
    for _ in range(4):
        assert at_once(*calls) == truth * 2


def test_longrope_writes_frequencies_of_its_own():
    model, inputs = longrope("phi3"), ragged(8)
    with writes_to(model) as usual:
        decoded(model, inputs)
    with writes_to(model) as written:
        decoded(model, inputs, custom_generate=Drafting())
    assert written <= usual


@pytest.mark.parametrize("compiled", [False, True])
def test_a_private_copy_shares_weights_alone(compiled):
    model = small_model("mistral")
    own = model.forward
    if compiled:
        model.compile()
        model.model.forward = torch.compile(model.model.forward)
    counted = []
    model.model.layers[0].register_forward_hook(lambda *given: counted.append(given))
    model.forward = MethodType(wraps(own)(lambda self, **named: own(**named)), model)  # as trainers replace it
    target = CausalLMTarget(model)
    made = private_copy(target, window=3)
    with writes_to(model) as written, torch.no_grad():
        for module in made.model.modules():
            module.register_forward_hook(lambda *given: None)
        made.model.config.sliding_window = made.model.model.layers[1].renamed = 2
        ids = torch.arange(9)[None]
        narrow = made.model(input_ids=ids).logits
    assert not written and not counted and made.model.model.layers[0] is not model.model.layers[0]
    assert made.decoder is made.model.model and made.config is made.model.config
    assert all(one is other for one, other in zip(made.model.parameters(), model.parameters()))
    small = small_model("mistral")
    small.config.sliding_window = 2
    with torch.no_grad():
        assert torch.equal(narrow, small(input_ids=ids).logits)


@pytest.mark.parametrize("family", ["llama", "gpt_neo", "lfm2"])
@pytest.mark.parametrize("changed", [False, True])
def test_a_drafting_keeps_no_model_alive(family, changed):
    drafting = Drafting(NGram.uniform(99))
    model = small_model(family)
    decoded(model, ragged(6), custom_generate=drafting)
    if changed:
        model.forward = (lambda own: lambda **named: own(**named))(model.forward)
        decoded(model, ragged(6), custom_generate=drafting)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None and str(drafting.summary())
