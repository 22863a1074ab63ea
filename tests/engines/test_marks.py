"""Structures that begin in a text, in `model.generate`, against a processor that reads each text as a whole."""

import re

import pytest
import torch
from support import tiny_transformers
from support.generating import padded
from support.paths import ROOT

pytest.importorskip("llguidance")
tokenizers = pytest.importorskip("tokenizers")

from transformers import DynamicCache

from rescore import Drafting, TextMemory
from rescore.decode.draft.grammar_tokenizer import spelling_of
from rescore.decode.draft.structure import Grammar
from rescore.decode.models.slot_cache import CACHE
from rescore.lattice.marks import After
from rescore.lattice.structure import Acceptor

V, END, PAD = 49_152, 2, 0
TOKENIZER = tokenizers.Tokenizer.from_file(str(ROOT / "data/demo/tokenizer.json"))
TEXTS = [TOKENIZER.decode([token], skip_special_tokens=False) for token in range(V)]
MARK = "zq"


@pytest.fixture(scope="module")
def model():
    """Its texts are of few letters, and often hold the mark, within tokens that go on."""
    made = tiny_transformers.generating(V, end=END, pad=PAD)
    frequent = [token for token, text in enumerate(TEXTS) if text and re.fullmatch("[zqab ]{1,3}|<[|]im_end[|]>", text)]
    with torch.no_grad():
        made.get_output_embeddings().weight[frequent] *= 4
    return made


def beginning(text, exact):
    """What a text may go on to be: [ab]{2,9} behind the mark, behind white space."""
    free, mark, rest = text.partition(MARK)
    if not mark:
        return True
    rest = rest if exact else rest.lstrip(" \t\r\n")
    return re.fullmatch("[ab]{0,9}", rest) is not None


class Whole:
    """A processor that tries every token behind the text, as text."""

    def __init__(self, width, exact, required):
        self.width, self.exact, self.required = width, exact, required

    def __call__(self, ids, scores):
        scores = scores.clone()
        for row, tokens in enumerate(ids[:, self.width :].tolist()):
            if END in tokens:
                continue
            text = "".join(TEXTS[token] for token in tokens)
            _, mark, rest = text.partition(MARK)
            inside = len(rest.lstrip(" \t\r\n")) if mark else -1
            allowed = [beginning(text + more, self.exact) if more else not mark for more in TEXTS]
            allowed[END] = not self.required if not mark else inside >= 2
            if self.exact and mark:
                allowed[END] = len(rest) >= 2
            scores[row, ~torch.tensor(allowed)] = -torch.inf
        return scores


@pytest.mark.parametrize("exact, required", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("of_ids", [False, True])
def test_texts_are_those_under_a_processor_of_text(model, exact, required, of_ids):
    """Of a grammar, and of an acceptor whose tokens are those of its letters."""
    given = padded([TOKENIZER.encode(text).ids for text in ("a", "b c", "ab zq", "q")])
    if of_ids:
        letters = [token for token, text in enumerate(TEXTS) if text and re.fullmatch("[ab]+", text)]
        arcs = [(n, t, n + len(TEXTS[t])) for n in range(9) for t in letters if n + len(TEXTS[t]) <= 9]
        inner = Acceptor(arcs, final=range(2, 10))
        structure = After(inner, MARK, spelling_of(TOKENIZER), exact=exact, required=required)
    else:
        structure = Grammar.regex("[ab]{2,9}", TOKENIZER).after(MARK, exact=exact, required=required)
    width, options = given["input_ids"].shape[1], {"max_new_tokens": 24, "do_sample": False}
    plain = model.generate(**given, **options, logits_processor=[Whole(width, exact, required)])
    begun = 0
    for row in range(4):
        if row == 2:  # its prompt ends with the mark, which counts
            continue
        alone = {name: value[row : row + 1] for name, value in given.items()}
        text = model.generate(**alone, **options, custom_generate=Drafting(structure=structure, nodes=8))
        kept = plain[row : row + 1, : text.shape[1]]
        assert torch.equal(text, kept), row
        begun += MARK in "".join(TEXTS[token] for token in text[0, width:].tolist())
    drafting = Drafting(structure=[structure, None, structure, structure])
    batch = model.generate(**given, **options, custom_generate=drafting)
    free = model.generate(**given, **options)
    for row in (0, 3):
        assert torch.equal(batch[row], plain[row][: batch.shape[1]])
    assert torch.equal(batch[1], free[1][: batch.shape[1]])
    inside = "".join(TEXTS[token] for token in batch[2, width:].tolist() if token not in (END, PAD))
    assert re.fullmatch("[ab]{0,9}", inside if exact else inside.lstrip())
    assert begun


class Streamed(list):
    """A streamer that keeps what it is given: the prompt, then the tokens."""

    def put(self, tokens):
        self += tokens.flatten().tolist()

    def end(self):
        self.append(None)


def test_with_streamer_prediction_and_memory(model):
    """A text that is right in all, and then remembered; what is expected need not fit the structure."""
    given, options = padded([TOKENIZER.encode("b c").ids]), {"max_new_tokens": 24, "do_sample": False}
    structure, width = Grammar.regex("[ab]{2,9}", TOKENIZER).after(MARK), given["input_ids"].shape[1]
    plain = model.generate(**given, **options, logits_processor=[Whole(width, False, False)])
    memory, passes = TextMemory(vocab_size=V, end_of_text=END), []
    for expected in (plain[0, width:].tolist(), [5, 6, 7], None):
        streamer = Streamed()
        drafting = Drafting(nodes=8, structure=structure, memory=memory, prediction=expected)
        text = model.generate(**given, **options, streamer=streamer, custom_generate=drafting)
        assert torch.equal(text, plain) and streamer == [*plain[0].tolist(), None]
        passes.append(drafting.statistics[0].passes)
    assert MARK in TOKENIZER.decode(plain[0, width:].tolist()) and passes[0] < 12 and memory.size


def test_behind_a_cache(model):
    """The structure begins in the second part of a text whose first part a cache holds."""
    structure, options = Grammar.regex("[ab]{2,9}", TOKENIZER).after(MARK), {"do_sample": False}
    cache, given = DynamicCache(), padded([TOKENIZER.encode("b c").ids])
    first = model.generate(**given, **options, max_new_tokens=4, **{CACHE: cache}, custom_generate=Drafting())
    whole = torch.cat((first, torch.tensor([TOKENIZER.encode(" a b").ids])), dim=1)
    again = {"input_ids": whole, "attention_mask": torch.ones_like(whole), "max_new_tokens": 20, **options}
    plain = model.generate(**again, logits_processor=[Whole(whole.shape[1], False, False)])
    text = model.generate(**again, **{CACHE: cache}, custom_generate=Drafting(nodes=8, structure=structure))
    assert torch.equal(text, plain) and MARK in TOKENIZER.decode(plain[0, whole.shape[1] :].tolist())
