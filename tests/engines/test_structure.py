"""Structures in `model.generate`: greedy texts equal those of Hugging Face's loop with llguidance's masks."""

import json

import numpy as np
import pytest
from support.paths import ROOT
from support.refusals import refuses

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
llguidance = pytest.importorskip("llguidance.hf")

from llguidance import LLMatcher
from support import tiny_transformers
from support.generating import padded

from rescore import Drafting
from rescore.decode.draft.structure import Grammar

V, END, PAD = 49_160, 2, 0
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["alpha", "beta"]}, "sizes": {"type": "array", "items": {"type": "integer"}}},
    "required": ["kind", "sizes"],
    "additionalProperties": False,
}
STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
TOKENIZER = transformers.PreTrainedTokenizerFast(tokenizer_file=str(ROOT / "data/demo/tokenizer.json"))


class Masks(transformers.LogitsProcessor):
    """One matcher a row, told each token as it comes."""

    def __init__(self, grammars):
        tokenizer = llguidance.from_tokenizer(TOKENIZER, n_vocab=V, eos_token=END)
        self.matchers, self.begun = [LLMatcher(tokenizer, one) for one in grammars], False

    def __call__(self, ids, scores):
        scores = scores.clone()
        for matcher, row, own in zip(self.matchers, ids, scores):
            if self.begun and not matcher.is_stopped():
                matcher.consume_token(int(row[-1]))
            mask = np.zeros((V + 31) // 32, np.uint32)
            mask[0] = 1 << END
            if not matcher.is_stopped():
                matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            allowed = np.unpackbits(mask.view(np.uint8), count=V, bitorder="little")
            own[torch.from_numpy(allowed == 0)] = -torch.inf
        self.begun = True
        return scores


@pytest.fixture(scope="module")
def model():
    return tiny_transformers.generating(V, end=END, pad=PAD)


@pytest.fixture(scope="module")
def prompts():
    return padded([TOKENIZER.encode(text) for text in ('{"kind": "beta", "sizes": [1, 2]} and', "alpha")])


def test_greedy_texts_are_those_of_masked_generation(model, prompts):
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA), STYLE)
    pattern = LLMatcher.grammar_from_regex("[ab]{3,9}")
    processors = transformers.LogitsProcessorList([Masks([grammar, pattern])])
    plain = model.generate(**prompts, max_new_tokens=40, do_sample=False, logits_processor=processors)
    structures = [Grammar.json_schema(SCHEMA, TOKENIZER), Grammar.regex("[ab]{3,9}", TOKENIZER)]
    drafting = Drafting(structure=structures, nodes=8)
    drafted = model.generate(**prompts, max_new_tokens=40, do_sample=False, custom_generate=drafting)
    assert torch.equal(plain, drafted)
    assert sum(sum(one.accepted) for one in drafting.statistics) > 0


def test_samples_are_of_the_structure(model, prompts):
    grammar, ended = Grammar.json_schema(SCHEMA, TOKENIZER), 0
    sampled = dict(max_new_tokens=60, do_sample=True, top_k=20, temperature=0.8)
    for seed in range(6):
        torch.manual_seed(seed)
        found = model.generate(**prompts, **sampled, custom_generate=Drafting(structure=grammar, nodes=8))
        for text in found[:, prompts["input_ids"].shape[1] :].tolist():
            text, end = text[: text.index(END)] if END in text else text, END in text
            state = grammar.start(V, {END}).after(text)
            ended += end
            assert not end or state.accepting and set(json.loads(TOKENIZER.decode(text))) == {"kind", "sizes"}
    assert ended


def test_refusals(model, prompts):
    grammar = Grammar.regex("a", TOKENIZER)

    def call(structure, **options):
        model.generate(**prompts, max_new_tokens=4, custom_generate=Drafting(structure=structure), **options)

    refuses(ValueError, lambda: call([grammar]), "structure", "2", "1")
    refuses(ValueError, lambda: call(grammar, eos_token_id=None), "structure", "eos_token_id")
    bad = transformers.LogitsProcessorList([transformers.SuppressTokensLogitsProcessor([TOKENIZER.encode("a")[0]])])
    refuses(ValueError, lambda: call(grammar, logits_processor=bad), "processors")
