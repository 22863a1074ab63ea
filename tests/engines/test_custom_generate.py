"""rescore.Drafting inside Hugging Face's generate: every argument against the same call without it, and its summary."""

import functools
import inspect
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.scripted import Scripted
from support.slow import slow_but

transformers = pytest.importorskip("transformers", minversion="5.20")

from support import tiny_transformers
from support.bita import tokens_for
from support.generating import PLAIN, Prophet, assert_a_chat_continues, ragged, texts_of
from support.public_heads import Mtp
from tokenizers import Tokenizer, decoders, models
from transformers import DynamicCache, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from rescore import Drafting, NGram, Rescorer, TextMemory, ngram_drafter
from rescore.decode.conformance import conforms
from rescore.decode.conformance.huggingface import HuggingFace, logits_of
from rescore.decode.draft.draft_model_drafter import DraftModelDrafter
from rescore.decode.draft.pace import AutoWidth
from rescore.decode.draft.published.baseline import BaselineDrafter
from rescore.decode.draft.published.prompt_lookup import PromptLookup
from rescore.decode.draft.published.token_recycling import TokenRecycling
from rescore.decode.engines.huggingface.drafting import _CHECKED
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.fixed_passes import FixedPasses
from rescore.decode.models.medusa import MedusaHeads
from rescore.decode.models.slot_cache import CACHE
from rescore.lm.build.in_memory import build

V = tiny_transformers.V
FAMILIES = ("llama", "gpt2", "qwen2", "mistral")
PIECES = ("<pad>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz", "th", "he", "ing", "ou", "at", "on", " ", ".")
assert len(PIECES) == V


@functools.cache
def tokenizer():
    """A tokenizer of letters and a few longer pieces, joined without spaces."""
    plain = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(PIECES)}, merges=[]))
    plain.decoder = decoders.Fuse()
    special = dict(pad_token="<pad>", bos_token="<s>", eos_token="</s>")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **special, padding_side="left")


RAGGED = (9, 4, 6, 1, 7)


def both(model, inputs, **arguments):
    """What generate returns without drafts and with those of a prophet, each argument made anew if it is a function."""

    def call(**more):
        made = {name: value() if callable(value) else value for name, value in arguments.items()}
        return model.generate(**inputs, **made, **more)

    expected = call()
    drafting = Drafting(Prophet(texts_of(inputs, getattr(expected, "sequences", expected))))
    return expected, call(custom_generate=drafting), drafting


def check(model, inputs, **arguments):
    expected, got, drafting = both(model, inputs, **arguments)
    assert got.tolist() == expected.tolist()
    accepted = [many for row in drafting.statistics for many in row.accepted]
    assert sum(accepted) > 0.5 * len(accepted), "most drafts are accepted, or the test shows nothing"


class ByRow(LogitsProcessor):
    """A processor that depends on the row in the batch and on the padding."""

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        for row, ids in enumerate(input_ids):
            scores[row, (7 * row + len(ids) + int(ids.sum())) % V] += 6.0
        return scores


class EndsAt(StoppingCriteria):
    """Row i ends at length lengths[i], seen in the batch."""

    def __init__(self, lengths):
        self.lengths = torch.tensor(lengths)

    def __call__(self, input_ids, scores, **kwargs):
        assert len(input_ids) == len(self.lengths)
        return self.lengths == input_ids.shape[1]


ARGUMENTS = {
    "plain": {},
    "end tokens": dict(eos_token_id=list(range(2, 9)), no_repeat_ngram_size=2),
    "no repeated bigrams": dict(no_repeat_ngram_size=2),
    "minimum length": dict(min_length=14, eos_token_id=list(range(2, 20))),
    "suppressed": dict(suppress_tokens=list(range(3, 17)), begin_suppress_tokens=[20, 21, 22]),
    "forced": dict(forced_eos_token_id=2, forced_bos_token_id=5, exponential_decay_length_penalty=(4, 1.5)),
    "by row": dict(logits_processor=lambda: LogitsProcessorList([ByRow()]), repetition_penalty=1.2),
    "prefix function": dict(
        prefix_allowed_tokens_fn=lambda: lambda row, ids: [3 + (row + len(ids) + i) % 30 for i in range(4)]
    ),
    "criterion": dict(stopping_criteria=lambda: StoppingCriteriaList([EndsAt([12, 20, 10, 14, 11])])),
    "criterion, no end token": dict(
        stopping_criteria=lambda: StoppingCriteriaList([EndsAt([12, 16, 10, 14, 11])]), eos_token_id=None
    ),
    "no cache": dict(use_cache=False),
}


@pytest.mark.parametrize(
    "family, name", [*(("llama", name) for name in ARGUMENTS), *((family, "by row") for family in FAMILIES[1:])]
)
def test_the_text_is_that_of_generate(family, name):
    check(tiny_transformers.shared(family), ragged(*RAGGED), max_new_tokens=20, do_sample=False, **ARGUMENTS[name])


def test_a_processor_that_remembers_sees_every_position_once():
    """Classifier-free guidance keeps its own cache, which reading a position twice would corrupt."""
    guided = dict(guidance_scale=1.6, negative_prompt_ids=torch.tensor([[4, 5, 6]]))
    check(tiny_transformers.shared("llama"), ragged(6, seed=1), max_new_tokens=15, do_sample=False, **guided)


@pytest.mark.parametrize("batch, drafting", [(RAGGED, Drafting()), ((6,), None)], ids=["batch", "drawn drafts"])
def test_a_processor_that_follows_one_text_is_left_to_the_models_own_loop(batch, drafting):
    inputs = ragged(*batch)
    guided = dict(guidance_scale=1.5, negative_prompt_ids=inputs["input_ids"], do_sample=drafting is None)
    call = functools.partial(tiny_transformers.shared("llama").generate, **inputs, **guided, max_new_tokens=4)
    torch.manual_seed(0)
    expected = call()
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="UnbatchedClassifierFreeGuidanceLogitsProcessor .* follows a text"):
        got = call(custom_generate=drafting or Drafting(small(True, family="llama")))
    assert got.tolist() == expected.tolist()


class Recorder:
    """A streamer that keeps what it is given."""

    def __init__(self):
        self.calls = []

    def put(self, value):
        self.calls.append(value.tolist())

    def end(self):
        self.calls.append("end")


@pytest.mark.parametrize("arguments", [{}, dict(eos_token_id=list(range(2, 9)))], ids=str)
def test_the_streamer_gets_what_generate_gives_it(arguments):
    model, arguments = tiny_transformers.shared("llama"), {**PLAIN, "max_new_tokens": 15, **arguments}
    for inputs in (ragged(6, seed=1), ragged(*RAGGED)):
        plain, drafted = Recorder(), Recorder()
        expected = model.generate(**inputs, **arguments, streamer=plain)
        drafting = Drafting(Prophet(texts_of(inputs, expected)))
        model.generate(**inputs, **arguments, streamer=drafted, custom_generate=drafting)
        assert drafted.calls == plain.calls and plain.calls[-1] == "end" and len(plain.calls) > 3


def close(got, expected, atol=1e-4):
    infinite = torch.isinf(expected)
    assert torch.equal(torch.isinf(got), infinite)
    torch.testing.assert_close(got.masked_fill(infinite, 0), expected.masked_fill(infinite, 0), atol=atol, rtol=0)


@pytest.mark.parametrize("kept", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["plain", "end tokens", "criterion, no end token"])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_dict_with_scores_logits_and_cache(family, name, kept):
    inputs = ragged(*RAGGED)
    shown = dict(return_dict_in_generate=True, output_scores=True, output_logits=True)
    wanted = dict(repetition_penalty=1.3, max_new_tokens=15, do_sample=False, pad_token_id=0, **shown)
    wanted["cache_implementation"] = kept
    expected, got, _ = both(tiny_transformers.shared(family), inputs, **wanted, **ARGUMENTS[name])
    assert type(got) is type(expected) and got.keys() == expected.keys()
    assert got.sequences.tolist() == expected.sequences.tolist()
    for kind in ("scores", "logits"):
        assert len(got[kind]) == len(expected[kind]) == got.sequences.shape[1] - 9
        for mine, theirs in zip(got[kind], expected[kind]):
            close(mine, theirs)
    text = torch.nn.functional.pad(inputs["attention_mask"], (0, got.sequences.shape[1] - 10), value=1).bool()
    for mine, theirs in zip(getattr(got, CACHE).layers, getattr(expected, CACHE).layers):
        assert type(mine) is type(theirs) and mine.get_seq_length() == theirs.get_seq_length() == text.shape[1]
        slots = theirs.keys.shape[2]
        seen = torch.nn.functional.pad(text, (0, max(0, slots - text.shape[1])))[:, -slots:, None]
        for states, others in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
            assert not states.is_inference()
            close(states.transpose(1, 2).flatten(2) * seen, others.transpose(1, 2).flatten(2) * seen)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch", [(6,), (6, 3, 9)], ids=["alone", "ragged"])
def test_a_chat_continues_from_its_cache(family, batch):
    model = tiny_transformers.shared(family)
    assert_a_chat_continues(model, ragged(*batch), lambda *known: Drafting(Prophet(texts_of(*known))))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_chat_continues_from_its_static_cache(family):
    model = tiny_transformers.shared(family)
    new_cache = functools.partial(transformers.StaticCache, config=model.config, max_cache_len=48)
    drafting = lambda *known: Drafting(Prophet(texts_of(*known)))  # noqa: E731
    assert_a_chat_continues(model, ragged(6, 3, 9), drafting, new_cache=new_cache)


@pytest.mark.slow  # compiling takes half a minute
def test_a_compiled_generate_is_taken_with_its_streamer():
    model, inputs = tiny_transformers.build("llama"), ragged(6)
    expected, put = model.generate(**inputs, **PLAIN, max_new_tokens=9), []
    streamer = SimpleNamespace(put=lambda ids: put.extend(ids.flatten().tolist()), end=lambda: put.append("end"))
    model.generate = torch.compile(model.generate, backend="eager")
    drafting = Drafting(Prophet(texts_of(inputs, expected)))
    call = dict(**inputs, **PLAIN, max_new_tokens=9, custom_generate=drafting, streamer=streamer)
    assert model.generate(**call).tolist() == expected.tolist()
    assert put == [*expected[0].tolist(), "end"] and "torch.compile" in str(drafting.summary())


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_passes_of_fixed_shape_fill_and_continue_caches(family, monkeypatch):
    """As on a GPU, but not captured: the same calls, on a model of their own."""
    fix = CausalLMTarget.__init__

    def fixed(target, *given):
        fix(target, *given)
        target._fix(FixedPasses(target, grain=64, capture=False))

    monkeypatch.setattr(CausalLMTarget, "__init__", fixed)
    model = tiny_transformers.build(family)
    for batch in ((6,), (6, 3, 9)):
        assert_a_chat_continues(model, ragged(*batch), lambda *known: Drafting(Prophet(texts_of(*known))))
    drafting = Drafting(nodes=5)
    expected, got = (
        model.generate(**ragged(*RAGGED), **PLAIN, max_new_tokens=20, **more)
        for more in ({}, {"custom_generate": drafting})
    )
    assert got.tolist() == expected.tolist() and _CHECKED[model].targets[0][1].fixed is not None


@functools.cache
def ngram() -> NGram:
    """An n-gram model of the llama's own texts."""
    call = functools.partial(tiny_transformers.shared("llama").generate, **PLAIN, max_new_tokens=25)
    texts = [row[-25:].tolist() for seed in range(20) for row in call(**ragged(*RAGGED, seed=seed))]
    return build([np.array([*text, 2], np.int32) for text in texts], order=3, vocab_size=V, end_of_text=2)


def test_rows_have_memories_of_their_own():
    inputs, call = ragged(5, 6), functools.partial(tiny_transformers.shared("llama").generate, **PLAIN)
    mine, expected = TextMemory(vocab_size=V, end_of_text=2), call(**inputs, max_new_tokens=30)
    drafting, passes = Drafting(nodes=12, memory=[mine, None]), []
    for _ in range(2):
        assert call(**inputs, max_new_tokens=30, custom_generate=drafting).tolist() == expected.tolist()
        passes.append([row.passes for row in drafting.statistics])
    assert passes[1][0] < passes[0][0] and passes[1][1] == passes[0][1]
    assert [text.tolist()[-30:] for text in mine.texts()] == 2 * expected[:1, -30:].tolist()
    refuses(ValueError, lambda: call(**inputs, custom_generate=Drafting(memory=[mine, None, mine])), "memory", "2", "3")


def test_rows_have_ngram_models_of_their_own(tmp_path):
    inputs, call = ragged(5, 6), functools.partial(tiny_transformers.shared("llama").generate, **PLAIN)
    ngram().save(tmp_path / "own.ngram")
    expected = call(**inputs, max_new_tokens=30).tolist()

    def passes(source=None, **own):
        drafting = Drafting(source, nodes=8, **own)
        assert call(**inputs, max_new_tokens=30, custom_generate=drafting).tolist() == expected
        return [row.passes for row in drafting.statistics]

    with_lm, without = passes(ngram()), passes()
    assert passes(lm=[tmp_path / "own.ngram", None]) == [with_lm[0], without[1]] != without
    assert passes(lm={"tone": ngram()}) == without  # no such adapter
    refuses(ValueError, lambda: call(**inputs, custom_generate=Drafting(lm=[None] * 3)), "lm", "2", "3")
    refuses(ValueError, lambda: Drafting(NO_DRAFTS, lm=[ngram()]), "lm", "Prophet")


def test_a_draft_model_is_one_more_source():
    """The model itself is right as far as it reads; one of fewer ids changes no text, alone, beside an n-gram model, or
    sampled."""
    inputs, model = ragged(5, 6), tiny_transformers.shared("llama")
    expected, passes = model.generate(**inputs, **PLAIN, max_new_tokens=30).tolist(), []
    for small, source in ((model, None), (model, ngram()), (tiny_transformers.shared("llama-tied"), ngram())):
        drafting = Drafting(source, draft_model=small, nodes=12)
        assert model.generate(**inputs, **PLAIN, max_new_tokens=30, custom_generate=drafting).tolist() == expected
        passes.append(sum(row.passes for row in drafting.statistics))
    assert max(passes[:2]) < 60
    refuses(ValueError, lambda: Drafting(medusa(), draft_model=model), "draft_model", "heads")
    refuses(ValueError, lambda: Drafting(NO_DRAFTS, draft_model=model), "draft_model", "Prophet")
    refuses(TypeError, lambda: Drafting(draft_model="folder"), "draft_model", "from_pretrained", "'folder'")
    drafting = Drafting(draft_model=tiny_transformers.shared("t5"))
    refuses(ValueError, lambda: model.generate(**inputs, custom_generate=drafting), "draft_model", "T5")


@functools.cache
def medusa() -> MedusaHeads:
    heads = MedusaHeads(heads=3, width=tiny_transformers.shared("llama").config.hidden_size, vocab_size=V)
    return tiny_transformers.randomised(heads)


@pytest.mark.parametrize("name", ["deepseek-v3", "llama", "gpt2"])
def test_heads_continue_from_a_cache_too(name, tmp_path):
    """Multi-token prediction must see the whole text's hidden states, which a cache does not hold."""
    if name == "deepseek-v3":
        model, drafting = Mtp(tmp_path, name).model, Drafting(tmp_path, nodes=8)
    else:
        model = tiny_transformers.shared(name)
        tokens_for(name).save(tmp_path, {})
        drafting = Drafting(tmp_path, lm=ngram(), nodes=7)
    assert_a_chat_continues(model, ragged(6, 4), lambda *known: drafting)


def small(drawn, family="llama-tied"):
    return DraftModelDrafter(CausalLMTarget(tiny_transformers.shared(family)), gamma=3, vocab_size=V, drawn=drawn)


DRAFTED = {
    "blend": lambda: [Drafting(nodes=8)],
    "prompt lookup": lambda: [Drafting(BaselineDrafter(PromptLookup, 4))],
    "token recycling": lambda: [Drafting(BaselineDrafter(TokenRecycling, None))],
    "heads, size by measured times": lambda: [Drafting(medusa())],
    "rescored heads": lambda: [Drafting(medusa(), rescorer=Rescorer(ngram(), alpha=0.5), nodes=30, top_k=6)],
    "the model itself": lambda: [Drafting(small(False, family="llama"))],
    "block": lambda: [Drafting(small(False)), Drafting(small(True))],
}


CASES = [("mistral", "blend"), *(("llama", name) for name in DRAFTED)]


@pytest.mark.parametrize("family, name", slow_but([("llama", "blend")], CASES))
def test_drafts_conform(family, name):
    model, made, accepted = tiny_transformers.shared(family), DRAFTED[name](), []
    ways = [HuggingFace(model, tokenizer=tokenizer(), custom_generate=drafting) for drafting in made]

    def decode(prompts, parameters):
        way = -1 if parameters.temperature else 0  # the last, which may be the only one, is for samples
        texts = ways[way](prompts, parameters)
        accepted.extend(sum(row.accepted) for row in made[way].statistics)
        return texts

    decode.lacks = frozenset({"seeds"})
    prompts = texts_of(ragged(*RAGGED), ragged(*RAGGED)["input_ids"])
    sizes = dict(samples=200, batch=100, max_new_tokens=16)
    report = conforms(decode, logits_of(model), prompts, text_of=tokenizer().decode, **sizes)
    assert report, str(report)
    assert [one.check for one in report.findings if one.status.value != "passed"] == ["seeds"], str(report)
    assert sum(accepted) > 20  # or the test shows nothing; how many, measured times decide


def test_a_drawn_draft_is_shaped_as_the_target_is():
    """Drafts sampled from the model's own shaped distribution are all accepted."""
    drafting = Drafting(small(True, family="llama"))
    torch.manual_seed(3)
    arguments = dict(do_sample=True, temperature=0.4, top_k=6, top_p=0.8, eos_token_id=None, max_new_tokens=17)
    generated(**ragged(*RAGGED), **arguments, custom_generate=drafting)
    assert [row.accepted for row in drafting.statistics] == [[3, 3, 3, 3]] * 5


def test_torchs_seed_is_the_seed(tmp_path):
    """Whatever drafts: heads that a call opens take none of torch's random numbers."""
    model, texts = tiny_transformers.shared("llama"), []
    arguments = dict(do_sample=True, max_new_tokens=12, num_return_sequences=2)
    medusa().save(tmp_path / "medusa")
    tokens_for("llama").save(tmp_path / "bita", {})
    sources = [ngram_drafter(ngram(), slots=3, nodes=9), tmp_path / "medusa", tmp_path / "bita", Prophet([])]
    for seed, source in (*((1, source) for source in sources), (2, Prophet([]))):
        drafting = Drafting(source)
        torch.manual_seed(seed)
        calls = [model.generate(**ragged(*RAGGED), **arguments, custom_generate=drafting).tolist() for _ in range(2)]
        texts.append(calls)
    assert texts[0] == texts[1] == texts[2] == texts[3] != texts[4] and texts[0][0] != texts[0][1]
    assert all(left != right for left, right in itertools.combinations(texts[0][0], 2))


NO_DRAFTS = Prophet([])
REFUSED = {
    "beam search": (dict(num_beams=3), "num_beams=1"),
    "constraints": (dict(num_beams=3, force_words_ids=[[5]]), "constraints"),
    "contrastive": (dict(penalty_alpha=0.6, top_k=4, do_sample=False), "penalty_alpha"),
    "prompt look-up": (dict(prompt_lookup_num_tokens=3), "prompt_lookup_num_tokens"),
    "assistant": (dict(assistant_model=lambda: tiny_transformers.shared("llama-tied")), "assistant_model"),
    "DoLa": (dict(dola_layers="low"), "dola_layers"),
    "several processes": (dict(synced_gpus=True), "synced_gpus"),
    "offloaded cache": (dict(cache_implementation="offloaded"), "cache_implementation", "'offloaded'"),
    "offloaded static cache": (dict(cache_implementation="offloaded_static"), "cache_implementation", "'static'"),
    "prefill in chunks": (dict(prefill_chunk_size=4), "prefill_chunk_size", "4"),
    "attentions": (dict(output_attentions=True, return_dict_in_generate=True), "output_attentions"),
    "hidden states": (dict(output_hidden_states=True, return_dict_in_generate=True), "output_hidden_states"),
    "positions": (dict(position_ids=lambda: torch.arange(6)[None] + 1), "position_ids"),
    "more positions than ids": (dict(position_ids=lambda: torch.arange(9)[None]), "position_ids"),
    "short static cache": ({CACHE: lambda: static_cache()}, "9 tokens", "max_cache_len 8"),
    "padding on the right": (dict(attention_mask=torch.tensor([[1, 1, 1, 1, 1, 0]])), "row 0", "padding_side = 'left'"),
    "a hole in the mask": (dict(attention_mask=torch.tensor([[0, 1, 0, 1, 1, 1]])), "row 0", "padding_side = 'left'"),
}


def static_cache():
    return transformers.StaticCache(config=tiny_transformers.shared("llama").config, max_cache_len=8)


def generated(family="llama", **arguments):
    """A call with drafts, and its arguments made anew if they are functions."""
    made = {name: value() if inspect.isfunction(value) else value for name, value in arguments.items()}
    call = {"max_new_tokens": 4, "custom_generate": Drafting(NO_DRAFTS), **ragged(6, seed=1), **made}
    return tiny_transformers.shared(family).generate(**call)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_by_name(name):
    arguments, *named = REFUSED[name]
    refuses(ValueError, lambda: generated(**arguments), *named)


def test_inputs_that_are_refused():
    model, embeds = tiny_transformers.shared("llama"), torch.zeros(1, 4, 32)
    refuses(ValueError, lambda: model.generate(inputs_embeds=embeds, custom_generate=Drafting()), "inputs_embeds")
    types = torch.zeros(1, 6, dtype=torch.int64)
    refuses(ValueError, lambda: generated("gpt2", token_type_ids=types), "token_type_ids")
    drawn = Drafting(small(True, family="llama"))
    refuses(ValueError, lambda: generated(custom_generate=drawn), "Greedy", "DraftModelDrafter")
    criteria = StoppingCriteriaList([transformers.EosTokenCriteria(5)])
    refuses(ValueError, lambda: generated("gpt2", eos_token_id=None, stopping_criteria=criteria), "pad_token_id")


def test_caches_that_are_refused():
    model, inputs = tiny_transformers.shared("mistral"), ragged(9, seed=1)

    def filled(cache):
        model(**inputs, **{CACHE: cache})
        return cache

    ids = torch.nn.functional.pad(inputs["input_ids"], (0, 3), value=4)
    longer = {"input_ids": ids, "attention_mask": torch.ones(1, 12, dtype=torch.int64)}

    def refused_cache(cache, *named, **more):
        refuses(ValueError, lambda: generated("mistral", **{**longer, **more}, **{CACHE: cache}), CACHE, *named)

    refused_cache(filled(DynamicCache(config=model.config)), "9", "the last 4", "DynamicSlidingWindowLayer")
    whole, masked = filled(DynamicCache()), torch.tensor([[0] + [1] * 11])
    refused_cache(whole, "9", "got 3", input_ids=ids[:, -3:])
    refused_cache(whole, "9", "got 9", **inputs)
    refused_cache(whole, "9", "got 3", input_ids=ids[:, -3:], attention_mask=masked)
    refused_cache(whole, "2 rows", "got 1", num_return_sequences=2, do_sample=True)
    offloading = DynamicCache()
    offloading.offloading = True  # its own constructor wants a device to copy from
    refused_cache(offloading, "offloads")
    refused_cache(transformers.EncoderDecoderCache(DynamicCache(), DynamicCache()), "EncoderDecoderCache")
    hybrid = DynamicCache()
    hybrid.layers += [transformers.cache_utils.DynamicLayer(), transformers.cache_utils.LinearAttentionLayer()]
    refused_cache(hybrid, "LinearAttentionLayer")


def test_sources_that_are_refused(tmp_path):
    refuses(TypeError, lambda: Drafting(3), "source", "int")
    refuses(ValueError, lambda: Drafting(NO_DRAFTS, rescorer=Rescorer()), "rescorer", "Prophet")
    memory = TextMemory(vocab_size=V, end_of_text=2)
    refuses(ValueError, lambda: Drafting(NO_DRAFTS, memory=memory), "memory", "Prophet")
    refuses(ValueError, lambda: Drafting(ngram(), lm=ngram()), "lm", "NGram")
    refuses(ValueError, lambda: Drafting(tmp_path, lm=ngram(), rescorer=Rescorer(ngram(), alpha=0.5)), "lm", "rescorer")
    refuses(FileNotFoundError, lambda: Drafting(tmp_path / "gone.ngram"), "gone.ngram")
    for nodes in (0, -1, 1025):
        refuses(ValueError, lambda nodes=nodes: Drafting(nodes=nodes), "nodes", nodes)


# What `Drafting.summary` tells of a call, against the call's own statistics


def summary_of(drafting, rows=1):
    generated(**ragged(*[6] * rows), **PLAIN, max_new_tokens=20, custom_generate=drafting)
    return drafting.summary()


def every_other(history):
    """Drafts that are wrong, after every second token."""
    return [[5, 6, 7]] if len(history) % 2 else [[-1]]


def test_plain_decoding_is_estimated_from_the_passes_without_drafts():
    """In a batch, from those in which no row had drafts."""
    rows = 3
    drafting = Drafting(Scripted(every_other))
    found = summary_of(drafting, rows)
    cost = drafting.statistics
    assert found.totals.tokens == 20 * rows and found.totals.passes == sum(one.passes for one in cost)
    assert all(len(one.plain_us) == one.drafted.count(0) > 2 for one in cost)
    assert found.payoff.plain_ms == pytest.approx(1e-3 * np.mean([us for one in cost for us in one.plain_us]))
    taken = sum(one.drafting_us + one.verifying_us for one in cost)
    steps = sum(len(one.accepted) + sum(one.accepted) for one in cost)
    plainly = sum(one.prompt_us for one in cost) + 1e3 * found.payoff.plain_ms * steps
    assert found.payoff.speedup.ratios == (pytest.approx(plainly / taken),)
    assert found.payoff.pays == (not found.remedies)


def test_without_a_plain_pass_the_speed_is_not_known():
    found = summary_of(Drafting(nodes=4))
    assert found.payoff is None and found.totals.tokens == 20 and "not known" in found.verdict
    (remedy,) = found.remedies
    assert "nodes=None" in remedy
    assert summary_of(Drafting(Scripted(lambda history: [[5]]))).remedies == ()


def test_then_the_times_that_sizes_are_chosen_by_count():
    """Seconds of a pass of both rows, divided among them."""
    drafter = Scripted(lambda history: [[5]])
    drafter.nodes = AutoWidth(CausalLMTarget(tiny_transformers.shared("llama")))
    drafting = Drafting(drafter)
    assert summary_of(drafting, rows=2).payoff is None
    for seconds in (3e-6, 2e-6):
        drafter.nodes.open(2, 6).pace.times.note(2, seconds)
    assert summary_of(drafting, rows=2).payoff.plain_ms == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "drafting, options",
    [
        (Drafting(), ["Drafting(lm)", "Drafting(heads)"]),
        (Drafting(NGram.uniform(V)), ["Drafting(heads, lm=lm)"]),
        (Drafting(Scripted(every_other)), ["Drafting()"]),
    ],
)
def test_sources_that_are_not_in_use_are_suggested(monkeypatch, drafting, options):
    summary_of(drafting)
    monkeypatch.setattr(drafting, "_last", (drafting._last[0], 1e-3, None, True))  # passes with drafts are dear
    *sources, plainly = drafting.summary().remedies
    assert all(option in line for option, line in zip(options, sources, strict=True))
    assert "custom_generate" in plainly
