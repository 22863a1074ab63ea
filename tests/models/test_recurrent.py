"""Families with recurrent state, small and random: texts with drafts are `generate`'s, whatever is drafted, without a
pass more.
"""

from contextlib import contextmanager
from functools import cache, partial

import numpy as np
import pytest
import torch
import transformers
from support.blocks import tree_block
from support.generating import PLAIN, assert_a_chat_continues, padded, texts_of
from support.refusals import refuses
from support.scripted import Scripted
from support.slow import slow_but
from support.tiny_families import FAMILIES, small_model
from transformers import DynamicCache

from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.engines.huggingface.drafting import Drafting
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.layout import BatchLayout
from rescore.decode.models import recurrent
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.model_check import attends
from rescore.decode.models.open import open_model
from rescore.decode.models.recurrent import causal_target
from rescore.decode.models.slot_cache import CACHE
from rescore.decode.models.target import Block
from rescore.lattice.tree import TokenTree

NAMES = """
    bailing_hybrid bamba falcon_h1 granitemoehybrid kimi_linear lara_mini lfm2 lfm2_moe lfm3 mamba2 nemotron_h
    olmo_hybrid qwen3_5_moe_text qwen3_5_text qwen3_next zamba2 zaya
""".split()
CLAMPED = "nemotron_h zamba2".split()  # pass over several tokens and passes over one differ by 1e-3 of a logit
CONVOLUTIONS = "lfm2 lfm2_moe lfm3".split()  # no other state
PROMPTS = [np.array(ids) for ids in ([5, 6, 7, 8, 5, 6], [9, 8, 7, 9], [3, 1, 4, 1])]
ATTENTIONLESS = "lfm3 mamba2".split()
TOKENS, DRAFTED = 24, 4
EQUAL = [family for family in NAMES if family in FAMILIES]
RIGHT = {"right": lambda place: True, "half": lambda place: place % 3, "wrong": lambda place: False}

families = pytest.mark.parametrize("family", EQUAL)


@cache
def target_of(family):
    return causal_target(small_model(family))


@cache
def plain(family):
    """The texts of `generate`, each prompt alone, and what may be drafted after them."""
    model = target_of(family).model
    alone = [model.generate(**padded([prompt]), max_new_tokens=TOKENS + DRAFTED, **PLAIN)[0] for prompt in PROMPTS]
    return [text[len(prompt) :].tolist() for text, prompt in zip(alone, PROMPTS)]


def knowing(texts, right, lengths=(DRAFTED, DRAFTED, DRAFTED)):
    """Drafts the true continuation of these texts, wrong at the places that `right` denies."""

    def propose(history):
        row = next(row for row, text in enumerate(texts) if text[: len(history)] == history.tolist())
        draft = enumerate(texts[row][len(history) :][: lengths[row]], len(history))
        return [[token if right(place) else (token + 1) % 7 + 1 for place, token in draft]]

    return Scripted(propose)


def drafter_of(family, right, **lengths):
    return knowing([[*prompt.tolist(), *text] for prompt, text in zip(PROMPTS, plain(family))], RIGHT[right], **lengths)


@contextmanager
def widths_of(target):
    """The widths of the passes of its model."""
    widths = []
    hook = target.decoder.register_forward_pre_hook(
        lambda module, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    yield widths
    hook.remove()


def texts(target, drafter, **options):
    made = generate(target, PROMPTS, drafter, Options(max_tokens=TOKENS, **options))
    return [one.tokens.tolist() for one in made]


def expected(family):
    return [text[:TOKENS] for text in plain(family)]


@families
@pytest.mark.parametrize("right", slow_but(["half"], RIGHT))
def test_a_greedy_text_is_generates_in_no_pass_more(family, right):
    target, drafter = target_of(family), drafter_of(family, right)
    for prompt, text in zip(PROMPTS, expected(family)):
        with widths_of(target) as widths:
            (one,) = generate(target, [prompt], drafter, Options(max_tokens=TOKENS))
        assert one.tokens.tolist() == text
        assert len(widths) == one.statistics.passes


@families
def test_what_was_accepted_is_not_read_again_nor_what_can_be_cut(family):
    target, right, wrong = target_of(family), drafter_of(family, "right"), drafter_of(family, "wrong")
    with widths_of(target) as widths:
        generate(target, PROMPTS[:1], right, Options(max_tokens=1 + 4 * (DRAFTED + 1)))
    assert widths == [len(PROMPTS[0])] + [DRAFTED + 1] * 4
    with widths_of(target) as widths:
        generate(target, PROMPTS[:1], wrong, Options(max_tokens=1 + 4))
    again = [0, 0, 0, 0] if family in CONVOLUTIONS else [0, 1, 2, 3]
    assert widths[1:] == [tail + 1 + drafted for tail, drafted in zip(again, [4, 3, 2, 1])]


@families
def test_rows_of_a_batch_are_decoded_as_alone(family):
    for drafter in (None, drafter_of(family, "half", lengths=(4, 1, 3))):
        assert texts(target_of(family), drafter) == expected(family)


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2"])
def test_several_drafts_are_rows(family):
    """The second draft is the true one."""
    drafter = drafter_of(family, "half")

    def propose(history):
        (draft,) = drafter.of_history(history)
        return [[(draft[0] + 1) % 99, *[-1] * (len(draft) - 1)], draft] if draft else [[]]

    assert texts(target_of(family), Scripted(propose), layout=BatchLayout(2)) == expected(family)


@pytest.mark.parametrize("family", ["qwen3_next", "mamba2"])
def test_a_long_tail_is_read_once_by_itself(family, monkeypatch):
    monkeypatch.setattr(recurrent, "LONGEST", 5)
    target, drafter = target_of(family), drafter_of(family, "wrong")
    with widths_of(target) as widths:
        assert texts(target, drafter) == expected(family)
    assert max(widths[2:]) <= 5 + 1 + DRAFTED


@pytest.mark.parametrize("family", ["qwen3_next", "mamba2"])
def test_plain_passes_after_drafts_read_one_token(family):
    """Rows with tails of different lengths do not wait for each other."""
    target, drafter = target_of(family), drafter_of(family, "wrong", lengths=(4, 0, 2))
    early = Scripted(lambda history: drafter.of_history(history) if len(history) < 10 else [[]])
    with widths_of(target) as widths:
        assert texts(target, early) == expected(family)
    assert set(widths[-10:]) == {1}


def test_a_stored_model_is_opened(tmp_path):
    target_of("qwen3_next").model.save_pretrained(tmp_path)
    target = open_model(tmp_path).target
    assert texts(target, blended_drafter(target, nodes=4)) == expected("qwen3_next")


@pytest.mark.parametrize("family", [one for one in EQUAL if one not in ATTENTIONLESS])
@pytest.mark.parametrize("rows, right", slow_but([(3, "half")], [(1, "right"), (3, "half")]))
def test_a_chat_continues_from_its_cache(family, rows, right):
    """Of models with some attention: other caches do not tell how long their texts are."""
    model = target_of(family).model
    cache = partial(DynamicCache, config=model.config)

    def drafting_of(inputs, texts):
        return Drafting(knowing(texts_of(inputs, texts), RIGHT[right]))

    assert_a_chat_continues(model, padded(PROMPTS[:rows]), drafting_of, most=9, new_cache=cache)


@families
def test_a_dict_with_scores_and_cache(family):
    """Rows that end are read on with padding, as `generate` does."""
    model, inputs = target_of(family).model, padded(PROMPTS)
    free = model.generate(**inputs, max_new_tokens=TOKENS, **PLAIN)
    ends = free[0, inputs["input_ids"].shape[1] + 7].tolist()
    returned = dict(return_dict_in_generate=True, output_scores=True, output_logits=True)
    wanted = {**PLAIN, **returned, "max_new_tokens": 12, "eos_token_id": ends}
    expected = model.generate(**inputs, **wanted)
    drafting = Drafting(knowing(texts_of(inputs, free), RIGHT["half"]))
    got = model.generate(**inputs, **wanted, custom_generate=drafting)
    assert got.sequences.tolist() == expected.sequences.tolist()
    tolerance = 2e-3 if family in CLAMPED else 5e-4  # sums in another order, where `generate` pads
    close = partial(torch.testing.assert_close, atol=tolerance, rtol=tolerance)
    close((got.scores, got.logits), (expected.scores, expected.logits))
    assert got[CACHE].get_seq_length() == expected[CACHE].get_seq_length() if attends(model.config) else True
    for mine, theirs in zip(got[CACHE].layers, expected[CACHE].layers):
        assert type(mine) is type(theirs)
        for of in ("conv_states", "recurrent_states"):
            states = {at: state for at, state in getattr(theirs, of, {}).items() if state is not None}
            close({at: getattr(mine, of)[at] for at in states}, states)


def test_short_passes_are_computed_in_short_chunks(monkeypatch):
    monkeypatch.setattr(recurrent, "CHUNK", 2)
    target, drafter = causal_target(small_model("mamba2")), drafter_of("mamba2", "half")
    assert texts(target, drafter) == expected("mamba2")


def test_what_is_not_read():
    """Trees, and texts that do not go on from their ends."""
    target = target_of("mamba2")
    cache, prompts = target.open([np.array([1, 2, 3])], 1, 8)
    tree = tree_block(TokenTree.from_drafts(np.array([[3, 4], [5, -1]])), 9, [0])
    refuses(ValueError, lambda: target.read(tree, cache), "chain")
    target.read(Block.of_texts(prompts, [0], target.device), cache)
    refuses(ValueError, lambda: target.read(Block.of_texts([np.array([4])], [2], target.device), cache), "[3]", "[2]")


def test_states_that_no_cache_holds_are_refused_with_a_remedy_that_exists():
    """Of RWKV, which makes its own; not that of a family whose target `causal_target` makes."""
    sizes = dict(vocab_size=60, hidden_size=16, num_hidden_layers=2, attention_hidden_size=16)
    rwkv = transformers.RwkvForCausalLM(transformers.RwkvConfig(**sizes, eos_token_id=2, pad_token_id=0)).eval()
    refuses(ValueError, lambda: causal_target(rwkv), "RwkvForCausalLM", "custom_generate")
    ids = torch.tensor([[1, 5, 6]])
    refuses(ValueError, lambda: rwkv.generate(ids, custom_generate=Drafting()), "RwkvForCausalLM", "custom_generate")
    refuses(ValueError, lambda: CausalLMTarget(small_model("mamba2")), "causal_target")
