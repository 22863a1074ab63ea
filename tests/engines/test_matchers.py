"""Other libraries' structures in `logits_processor=` beside drafts: texts equal those of `generate`, or are refused."""

import pytest
from support.paths import ROOT
from support.refusals import refuses

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from support import tiny_transformers

from rescore import Drafting

V, END, PAD = 49_152, 2, 0
PATTERN = "(ab|ba){3,9}"
TOKENIZER = transformers.PreTrainedTokenizerFast(
    tokenizer_file=str(ROOT / "data/demo/tokenizer.json"), eos_token="<|im_end|>", pad_token="<|endoftext|>"
)


def of_xgrammar(model):
    xgrammar = pytest.importorskip("xgrammar")
    facts = xgrammar.TokenizerInfo.from_huggingface(TOKENIZER, vocab_size=V, stop_token_ids=[END])
    compiled = xgrammar.GrammarCompiler(facts).compile_regex(PATTERN)
    return {"logits_processor": [xgrammar.contrib.hf.LogitsProcessor(compiled)]}


def of_outlines(model):
    outlines = pytest.importorskip("outlines")
    from outlines.backends import get_regex_logits_processor

    wrapped = outlines.from_transformers(model, TOKENIZER)
    return {"logits_processor": [get_regex_logits_processor("outlines_core", wrapped, PATTERN)]}


def of_lm_format_enforcer(model):
    """As its own integration, which does not import with transformers 5."""
    enforcer = pytest.importorskip("lmformatenforcer")
    tokens = [(i, TOKENIZER.decode([i]), False) for i in range(V) if i not in TOKENIZER.all_special_ids]
    data = enforcer.TokenEnforcerTokenizerData(tokens, TOKENIZER.decode, END, False, V)
    allowed = enforcer.TokenEnforcer(data, enforcer.RegexParser(PATTERN)).get_allowed_tokens
    return {"prefix_allowed_tokens_fn": lambda row, ids: allowed(ids.tolist()).allowed_tokens}


LIBRARIES = [of_xgrammar, of_outlines, of_lm_format_enforcer]


@pytest.fixture(scope="module")
def model():
    return tiny_transformers.generating(V, end=END, pad=PAD)


def generated(model, ids, library, **options):
    """`generate` under a new structure, since matchers are good for one text."""
    return model.generate(ids, max_new_tokens=30, **{"do_sample": False} | options, **library(model))


@pytest.mark.parametrize("library", LIBRARIES)
def test_texts_of_one_row_are_equal(model, library):
    ids, drafting = torch.tensor([TOKENIZER.encode("ababab ba abba ababab")]), Drafting(nodes=8)
    plain = generated(model, ids, library)
    assert torch.equal(plain, generated(model, ids, library, custom_generate=drafting))
    assert sum(sum(one.accepted) for one in drafting.statistics) > 0
    sampling = {"do_sample": True, "top_k": 20, "custom_generate": Drafting(nodes=8)}
    text = TOKENIZER.decode(generated(model, ids, library, **sampling)[0, ids.shape[1] :], skip_special_tokens=True)
    assert set(text) == {"a", "b"} and len(text) % 2 == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_batches(model, library):
    """One that keeps state is refused by name; the others see every row."""
    ids = torch.tensor([TOKENIZER.encode("ab ba ab"), TOKENIZER.encode("b a b ba")[:3]])
    name = {of_xgrammar: "LogitsProcessor", of_outlines: "OutlinesCoreLogitsProcessor"}.get(library)
    if name is None:
        plain = generated(model, ids, library)
        assert torch.equal(plain, generated(model, ids, library, custom_generate=Drafting(nodes=8)))
        return
    refuses(ValueError, lambda: generated(model, ids, library, custom_generate=Drafting(nodes=8)), name, "2")
