"""Structures in `model.generate`, ours and other libraries': texts equal those of `generate`, or are refused."""

import json
from functools import partial

import pytest
import torch
import transformers
from support import tiny_transformers
from support.generating import padded
from support.paths import ROOT
from support.refusals import refuses
from support.slow import slow_but

from rescore import Drafting
from rescore.decode.draft.structure import Grammar

V, END, PAD = 49_152, 2, 0
PATTERNS = "(ab|ba){3,9}", "[ab]{3,9}"
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["alpha", "beta"]}, "sizes": {"type": "array", "items": {"type": "integer"}}},
    "required": ["kind", "sizes"],
    "additionalProperties": False,
}
TOKENIZER = transformers.PreTrainedTokenizerFast(
    tokenizer_file=str(ROOT / "data/demo/tokenizer.json"), eos_token="<|im_end|>", pad_token="<|endoftext|>"
)


def of_xgrammar(model, pattern=PATTERNS[0]):
    xgrammar = pytest.importorskip("xgrammar")
    facts = xgrammar.TokenizerInfo.from_huggingface(TOKENIZER, vocab_size=V, stop_token_ids=[END])
    compiled = xgrammar.GrammarCompiler(facts).compile_regex(pattern)
    return {"logits_processor": [xgrammar.contrib.hf.LogitsProcessor(compiled)]}


def of_outlines(model):
    outlines = pytest.importorskip("outlines")
    from outlines.backends import get_regex_logits_processor

    wrapped = outlines.from_transformers(model, TOKENIZER)
    return {"logits_processor": [get_regex_logits_processor("outlines_core", wrapped, PATTERNS[0])]}


def of_lm_format_enforcer(model):
    """As its own integration, which does not import with transformers 5."""
    enforcer = pytest.importorskip("lmformatenforcer")
    tokens = [(i, TOKENIZER.decode([i]), False) for i in range(V) if i not in TOKENIZER.all_special_ids]
    data = enforcer.TokenEnforcerTokenizerData(tokens, TOKENIZER.decode, END, False, V)
    allowed = enforcer.TokenEnforcer(data, enforcer.RegexParser(PATTERNS[0])).get_allowed_tokens
    return {"prefix_allowed_tokens_fn": lambda row, ids: allowed(ids.tolist()).allowed_tokens}


# Outlines compiles its masks' kernel, which takes seconds.
LIBRARIES = slow_but((of_xgrammar, of_lm_format_enforcer), (of_xgrammar, of_outlines, of_lm_format_enforcer))


@pytest.fixture(scope="module")
def model():
    return tiny_transformers.generating(V, end=END, pad=PAD)


def prompts(*texts):
    return padded([TOKENIZER.encode(text) for text in texts])


def texts_of(found, given):
    """What was generated, up to the end token, and whether it ended."""
    rows = [row[given["input_ids"].shape[1] :] for row in found.tolist()]
    return [(row[: row.index(END)], True) if END in row else (row, False) for row in rows]


def generated(model, given, library, **options):
    """`generate` under a new structure, since matchers are good for one text."""
    return model.generate(**given, max_new_tokens=30, **{"do_sample": False} | options, **library(model))


@pytest.mark.parametrize("library", LIBRARIES)
def test_texts_of_one_row_are_equal(model, library):
    given, drafting = prompts("ababab ba abba ababab"), Drafting(nodes=8)
    plain = generated(model, given, library)
    assert torch.equal(plain, generated(model, given, library, custom_generate=drafting))
    assert sum(sum(one.accepted) for one in drafting.statistics) > 0
    sampling = {"do_sample": True, "top_k": 20, "custom_generate": Drafting(nodes=8)}
    ((text, _),) = texts_of(generated(model, given, library, **sampling), given)
    text = TOKENIZER.decode(text)
    assert set(text) == {"a", "b"} and len(text) % 2 == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_batches(model, library):
    """One that keeps state leaves the call to the model's own loop; the others see every row."""
    given = prompts("ab ba ab", "b a b ba")
    name = {of_xgrammar: "LogitsProcessor", of_outlines: "OutlinesCoreLogitsProcessor"}.get(library)
    drafted = partial(generated, model, given, library, custom_generate=Drafting(nodes=8))
    if name is None:
        assert torch.equal(generated(model, given, library), drafted())
    else:
        with pytest.warns(UserWarning, match=f"{name} .* follows a text"):
            assert torch.equal(generated(model, given, library), drafted())


def test_ours_are_those_of_another_library(model):
    """Rows of a batch, each with its own, against `generate` of each row with masks of xgrammar."""
    rows = "ab ba ab and more", "b a b ba"
    plain = []
    for row, pattern in zip(rows, PATTERNS):
        plain += texts_of(generated(model, prompts(row), partial(of_xgrammar, pattern=pattern)), prompts(row))
    drafting = Drafting(structure=[Grammar.regex(pattern, TOKENIZER) for pattern in PATTERNS], nodes=8)
    found = model.generate(**prompts(*rows), max_new_tokens=30, do_sample=False, custom_generate=drafting)
    assert texts_of(found, prompts(*rows)) == plain
    assert sum(sum(one.accepted) for one in drafting.statistics) > 0


def test_samples_are_of_the_structure(model):
    given = prompts('{"kind": "beta", "sizes": [1, 2]} and', "alpha")
    grammar, ended = Grammar.json_schema(SCHEMA, TOKENIZER), 0
    sampled = dict(max_new_tokens=60, do_sample=True, top_k=20, temperature=0.8)
    for seed in range(6):
        torch.manual_seed(seed)
        found = model.generate(**given, **sampled, custom_generate=Drafting(structure=grammar, nodes=8))
        for text, end in texts_of(found, given):
            state = grammar.start(V, {END}).after(text)
            ended += end
            assert not end or state.accepting and set(json.loads(TOKENIZER.decode(text))) == {"kind", "sizes"}
    assert ended


def test_refusals(model):
    given, grammar = prompts("a", "b"), Grammar.regex("a", TOKENIZER)

    def call(structure, **options):
        model.generate(**given, max_new_tokens=4, custom_generate=Drafting(structure=structure), **options)

    refuses(ValueError, lambda: call([grammar]), "structure", "2", "1")
    refuses(ValueError, lambda: call(grammar, eos_token_id=None), "structure", "eos_token_id")
    bad = [transformers.SuppressTokensLogitsProcessor([TOKENIZER.encode("a")[0]])]
    refuses(ValueError, lambda: call(grammar, logits_processor=bad), "processors", "SuppressTokensLogitsProcessor")


def ids(text):
    return TOKENIZER.encode(text)


def no_end(_, scores):
    return scores.index_fill(1, torch.tensor([END]), -torch.inf)


def in_place(_, scores):
    """In place, as users write them."""
    scores[:, END] = -torch.inf
    return scores


BLOCKING = {
    "Min.*LengthLogitsProcessor": dict(min_new_tokens=9),
    "MinLengthLogitsProcessor": dict(min_length=30),
    "SuppressTokensLogitsProcessor": dict(suppress_tokens=[END]),
    "SequenceBiasLogitsProcessor": dict(sequence_bias=[[[END], -float("inf")]]),
    "no_end": dict(logits_processor=transformers.LogitsProcessorList([no_end])),
    "in_place": dict(logits_processor=transformers.LogitsProcessorList([in_place])),
}


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("name", BLOCKING)
def test_a_row_whose_processors_leave_no_token_ends_and_others_go_on(model, name, sampled):
    """The end of `true|false` is blocked; the other row is as in a call of its own."""
    given, short = prompts("ab ba ab", "b a b ba"), Grammar.regex("(true|false)", TOKENIZER)
    options = dict(max_new_tokens=16, do_sample=sampled, top_k=5, **BLOCKING[name])
    with pytest.warns(UserWarning, match=name):
        drafting = Drafting(structure=[short, Grammar.regex("[ab]{3,40}", TOKENIZER)], nodes=8)
        found = model.generate(**given, **options, custom_generate=drafting)
    (first, ended), (second, _) = texts_of(found, given)
    assert ended and TOKENIZER.decode(first) in ("true", "false")
    assert set(TOKENIZER.decode(second)) <= {*"ab"} and len(second) > len(first)
    if not sampled:
        alone = Drafting(structure=Grammar.regex("[ab]{3,40}", TOKENIZER), nodes=8)
        one = {name: rows[1:] for name, rows in given.items()}
        (wanted, _), *_ = texts_of(model.generate(**one, **options, custom_generate=alone), one)
        assert second == wanted


def test_a_row_that_is_blocked_within_its_structure_ends_there(model):
    given, repeats = prompts("b", "c"), Grammar.regex("(ab ){4}", TOKENIZER)
    with pytest.warns(UserWarning, match="NoRepeatNGramLogitsProcessor"):
        drafting = Drafting(structure=[repeats, None], nodes=8)
        options = dict(max_new_tokens=20, do_sample=False, no_repeat_ngram_size=2)
        found = model.generate(**given, **options, custom_generate=drafting)
    (text, ended), (other, _) = texts_of(found, given)
    assert ended and "(ab ){4}".startswith("(ab") and "ab ab ab ab ".startswith(TOKENIZER.decode(text)) and text
    plain = model.generate(**given, **options)
    assert texts_of(plain, given)[1] == (other, END in plain[1].tolist())


def test_a_first_token_that_is_blocked_is_refused_by_the_processors_name(model):
    def call(pattern, name, texts=("b", "c"), **options):
        drafting = Drafting(structure=Grammar.regex(pattern, TOKENIZER))
        generate = partial(model.generate, **prompts(*texts), max_new_tokens=6, do_sample=False, **options)
        refuses(ValueError, lambda: generate(custom_generate=drafting), "structure", name)

    call("", "LengthLogitsProcessor", min_new_tokens=2)
    words = [[token] for token in range(V) if TOKENIZER.decode([token])[:1] in ("t", "f")]
    call("(true|false)", "NoBadWordsLogitsProcessor", bad_words_ids=words)
    call("(true|false)", "ForcedBOSTokenLogitsProcessor", forced_bos_token_id=ids("a")[0])


def test_a_forced_token_stays_within_the_structure(model):
    """`forced_eos_token_id` ends the text where its room ends, also where the structure does not accept."""
    given = prompts("b", "c")
    drafting = Drafting(structure=[Grammar.regex("(ab){30}", TOKENIZER), Grammar.regex("c?", TOKENIZER)])
    with pytest.warns(UserWarning, match="ForcedEOSTokenLogitsProcessor"):
        found = model.generate(
            **given, max_new_tokens=6, do_sample=False, forced_eos_token_id=END, custom_generate=drafting
        )
    (first, ended), (second, _) = texts_of(found, given)
    assert ended and TOKENIZER.decode(first) in ("ab" * 30)[:20] and TOKENIZER.decode(second) in ("", "c")
