"""Ids, sizes and objects in the forms in which callers have them: taken, or refused with what was expected and got."""

import copy
import pickle
from dataclasses import asdict, dataclass

import numpy as np
import pytest
import torch
from support import tiny_transformers
from support.generating import PLAIN, ragged
from support.refusals import refuses
from support.tiny_transformers import V

from rescore import Drafting, NGram, TextMemory, ngram_drafter
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.draft.neural_drafter import NeuralRescorer
from rescore.decode.engines.text_drafter import DraftRow, TextDrafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Request
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.medusa import MedusaHeads

TEXT = [5, 6, 7, 8, 9, 10, 5, 6, 7, 8]
FORMS = {
    "list": list,
    "tuple": tuple,
    "numpy's numbers": lambda ids: list(np.array(ids)),
    "torch's numbers": lambda ids: list(torch.tensor(ids)),
    "int64": np.array,
    "uint16": lambda ids: np.array(ids, np.uint16),
    "tensor": torch.tensor,
    "[1, n] tensor": lambda ids: torch.tensor([ids]),
    "[1, n] array": lambda ids: np.array([ids]),
    "every second": lambda ids: np.repeat(ids, 2)[::2],
}
WRONG = {
    "floats": ([0.5, 1.0], "float64"),
    "two texts": ([[5, 6], [7, 8]], "[2, 2]"),
    "too large": ([5, 1 << 40], 1 << 40),
}


def plainly(**more):
    model, inputs = tiny_transformers.shared("llama"), ragged(6)
    return model.generate(**inputs, **PLAIN, max_new_tokens=12, **more)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_ids_of_one_text(form):
    target = CausalLMTarget(tiny_transformers.shared("llama"))
    expected = plainly()
    new = expected[0, 6:].tolist()
    drafting = Drafting(prediction=form(new))
    assert plainly(custom_generate=drafting).tolist() == expected.tolist()
    assert drafting.statistics[0].predicted == (12, 0)
    prompt = form(ragged(6)["input_ids"][0].tolist())
    (own,) = generate(target, [Request(prompt=prompt, prediction=form(new))], options=Options(max_tokens=12))
    assert own.tokens.tolist() == new and own.statistics.predicted == (12, 0)
    chains = [
        TextDrafter(vocab_size=V, cost=0.05).chains([row], most=4)[0].tolist()
        for row in (DraftRow.of_tokens(TEXT, prediction=TEXT), DraftRow.of_tokens(form(TEXT), prediction=form(TEXT)))
    ]
    assert chains[0] == chains[1] and chains[0]
    memory = TextMemory(vocab_size=V, end_of_text=2)
    memory.add(form(TEXT))
    assert [text.tolist() for text in memory.texts()] == [TEXT]


@pytest.mark.parametrize("name", WRONG)
def test_what_are_no_ids_of_one_text(name):
    wrong, got = WRONG[name]
    target = CausalLMTarget(tiny_transformers.shared("llama"))
    kind = (TypeError, ValueError)
    for ids in (np.array(wrong), torch.tensor(wrong)):
        got_of = "float" if name == "floats" else got
        refuses(kind, lambda ids=ids: generate(target, [ids]), "prompt 0", got_of)
        predicted = Request(prompt=[5], prediction=ids, max_tokens=4)
        refuses(kind, lambda one=predicted: generate(target, [one]), "prediction", got_of)
        refuses(kind, lambda ids=ids: DraftRow.of_tokens(ids), "tokens", got_of)
        refuses(kind, lambda ids=ids: DraftRow.of_tokens([5], prediction=ids), "prediction", got_of)
        refuses(kind, lambda ids=ids: TextMemory(vocab_size=V, end_of_text=2).add(ids), "tokens", got_of)
        refuses(kind, lambda ids=ids: plainly(custom_generate=Drafting(prediction=ids)), "prediction")


def test_predictions_of_several_rows():
    model, inputs = tiny_transformers.shared("llama"), ragged(6, 6)
    expected = model.generate(**inputs, **PLAIN, max_new_tokens=12)
    new = expected[:, 6:]
    rows = [new[0].tolist(), None]
    for given, copied in ((new, [12, 12]), (new.numpy(), [12, 12]), (list(new), [12, 12]), (tuple(rows), [12, None])):
        drafting = Drafting(prediction=given)
        got = model.generate(**inputs, **PLAIN, max_new_tokens=12, custom_generate=drafting)
        assert got.tolist() == expected.tolist()
        assert [one.predicted and one.predicted[0] for one in drafting.statistics] == copied
    plainly(custom_generate=Drafting(prediction=[]))


SIZES = {
    "nodes": lambda value: Drafting(nodes=value).nodes,
    "nodes of a drafter": lambda value: ngram_drafter(NGram.uniform(V), slots=4, nodes=value).nodes,
    "max_tokens": lambda value: Options(max_tokens=value).max_tokens,
    "max_tokens of a request": lambda value: Request(prompt=[5], max_tokens=value).max_tokens,
    "gamma": lambda value: DraftModelDrafter(None, gamma=value, vocab_size=V, drawn=False).gamma,
    "paths": lambda value: NeuralRescorer(None, vocab_size=V, paths=value).paths,
}


@pytest.mark.parametrize("name", SIZES)
def test_whole_numbers(name):
    for value in (4, np.int64(4), np.array(4), np.uint8(4), torch.tensor(4)):
        assert SIZES[name](value) == 4 and type(SIZES[name](value)) is int
    for value in (4.0, "4", True, 0, -1, None if name == "gamma" else [4]):
        refuses((ValueError, TypeError), lambda value=value: SIZES[name](value), name.split()[0], value)


@pytest.mark.parametrize("most", [4, np.int64(4), np.array(4), [4], np.array([4]), torch.tensor([4])], ids=repr)
def test_room_of_chains(most):
    (chain,) = TextDrafter(vocab_size=V, cost=0.05).chains([DraftRow.of_tokens(TEXT)], most=most)
    assert chain.tolist() == [9, 10, 5, 6]


@dataclass
class Arguments:
    """Of a training run, which are copied deeply."""

    generation: dict


COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda drafting: pickle.loads(pickle.dumps(drafting)),
    "asdict": lambda drafting: asdict(Arguments({"custom_generate": drafting}))["generation"]["custom_generate"],
}


def medusa():
    torch.manual_seed(0)
    return MedusaHeads(width=32, heads=2, vocab_size=V)


SOURCES = {
    "text": Drafting,
    "n-gram model": lambda: Drafting(NGram.uniform(V)),
    "heads": lambda: Drafting(medusa(), lm=NGram.uniform(V)),
    "memory": lambda: Drafting(memory=TextMemory(vocab_size=V, end_of_text=2)),
    "prediction": lambda: Drafting(prediction=torch.tensor([TEXT])),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("source", SOURCES)
def test_copies_of_a_drafting_begin_anew(source, how):
    drafting = SOURCES[source]()
    expected = plainly(custom_generate=drafting)
    made = COPIES[how](drafting)
    assert made is not drafting and made.statistics == [] and "no call" in str(made.summary())
    assert plainly(custom_generate=made).tolist() == expected.tolist()
    assert drafting.statistics and str(drafting.summary())
