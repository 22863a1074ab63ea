"""`generate` of models that see or hear, with drafts behind images and sound."""

from functools import partial

import pytest
from support.refusals import refuses

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from support.generating import PLAIN, Prophet, texts_of
from support.seeing import FAMILIES, REFUSED, SHOWN, seeing, shown

from rescore import Drafting
from rescore.decode.engines.huggingface import call
from rescore.decode.models.fixed_passes import FixedPasses
from rescore.decode.models.slot_cache import CACHE

QWEN = "Qwen2VL"  # positions of images, which behind them go on from less than the number of tokens


def written(model, inputs, **more):
    return model.generate(**inputs, **{**PLAIN, "max_new_tokens": 9, **more})


def same(name, inputs, **more):
    """Checks the text with drafts, right and wrong ones; returns it."""
    model = seeing(name)
    plain = written(model, inputs, **more)
    prophet = Prophet(texts_of(inputs, plain))
    for drafting in (Drafting(prophet), Drafting(nodes=6), Drafting()):
        assert written(model, inputs, **more, custom_generate=drafting).tolist() == plain.tolist()
    return plain


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_behind_images_or_sound(name):
    """One; ragged rows; two of one row; rows of which one has none."""
    same(name, shown(name, (3, 4)))
    same(name, shown(name, (3, 4), (5, 9), (2, 2)))
    same(name, shown(name, (3, 2, 4), (1, 1, 6)))
    if name not in ("Idefics3", "SmolVLM"):  # of these every row has as many, some of zeros
        same(name, shown(name, (3, 4), (8,), seed=1))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_draft_that_is_right_saves_passes(name):
    inputs = shown(name, (3, 4))
    plain = texts_of(inputs, written(seeing(name), inputs))
    drafting = Drafting(Prophet(plain))
    written(seeing(name), inputs, custom_generate=drafting)
    assert sum(drafting.statistics[0].accepted) > 3


@pytest.mark.parametrize("name", ["Gemma3", QWEN])
def test_passes_of_fixed_shape_behind_images(name):
    """As on a GPU, without a graph."""
    model, inputs, drafting = seeing(name), shown(name, (3, 4), (5, 9), (2, 2)), Drafting(nodes=6)
    plain = written(model, inputs)
    written(model, inputs, custom_generate=drafting)
    target = drafting._opened[model][0].target
    target._model = model  # not weakly, or its self-test has no copy
    target._fix(FixedPasses(target, grain=64, capture=False))
    assert target.eager is None
    try:
        for given in (drafting, Drafting(Prophet(texts_of(inputs, plain)))):
            assert written(model, inputs, custom_generate=given).tolist() == plain.tolist()
    finally:
        target.fixed = None
        target.let_go()


@pytest.mark.parametrize("name", ["Gemma3", QWEN, "Qwen3VL"])
def test_sampled_tokens_are_drawn_from_the_models_own_scores(name):
    """Token by token, the scores are those of a pass over image and text."""
    model, inputs = seeing(name), shown(name, (3, 4), (5, 9))
    torch.manual_seed(5)
    drawn = dict(do_sample=True, temperature=1.3, top_k=0)
    out = written(
        model,
        inputs,
        **drawn,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        custom_generate=Drafting(nodes=6),
    )
    for scores, logits in zip(out.scores, out.logits):
        torch.testing.assert_close(scores, logits / 1.3)
    size = inputs["input_ids"].shape[1]
    forced = transformers.LogitsProcessorList([partial(only, out.sequences)])
    plain = written(model, inputs, logits_processor=forced, return_dict_in_generate=True, output_logits=True)
    assert plain.sequences.tolist() == out.sequences.tolist() and len(plain.logits) == out.sequences.shape[1] - size
    torch.testing.assert_close(torch.stack(out.logits), torch.stack(plain.logits), atol=1e-3, rtol=1e-4)


def only(text, ids, scores):
    """Leaves the next token of a text alone."""
    kept = torch.full_like(scores, -torch.inf)
    return kept.scatter(1, text[:, ids.shape[1], None], 0.0)


@pytest.mark.parametrize("name", ["Llava", QWEN, "Qwen3VL"])
def test_second_turns(name):
    """Over one cache, with text alone or another image, equal `generate` over a cache of its own."""
    model, inputs = seeing(name), shown(name, (3, 4), (2, 6))
    caches = {drafted: transformers.DynamicCache() for drafted in (False, True)}
    for turn in range(3):
        found = {}
        for drafted, cache in caches.items():
            more = {"custom_generate": Drafting(nodes=6)} if drafted else {}
            found[drafted] = written(model, inputs, **{CACHE: cache}, **more)
        assert found[True].tolist() == found[False].tolist()
        said = shown(name, *(((1, 3), (2, 2)) if turn else ((5,), (5,))), seed=turn)
        grown = (0, found[True].shape[1] - inputs["input_ids"].shape[1])
        inputs["attention_mask"] = torch.nn.functional.pad(inputs["attention_mask"], grown, value=1)
        marks = torch.zeros_like(found[True])
        before = {"input_ids": found[True], "attention_mask": inputs["attention_mask"], "mm_token_type_ids": marks}
        joined = {key: torch.cat((old, said[key].long()), dim=1) for key, old in before.items() if key in said}
        inputs = {**said, **joined}


def test_placeholders_are_no_text_to_draft_from():
    """Sixteen times the same token in the prompt, and drafts behind it that would go on so."""
    model, inputs = seeing("Llava"), shown("Llava", (3, 0, 3))
    drafting, drafted = Drafting(nodes=6), []
    own = drafting._open

    def watched(*given):
        opened = own(*given)
        propose = opened.drafter.open

        def opening(*prompts):
            session = propose(*prompts)
            told = session.propose
            session.propose = lambda step: drafted.append(told(step)) or drafted[-1]
            return session

        opened.drafter.open = opening
        return opened

    drafting._open = watched
    written(model, inputs, custom_generate=drafting)
    assert drafted and not any(SHOWN in tree.tokens for step in drafted for tree in [step[0]])


@pytest.mark.parametrize("name, missing", [("Mllama", "cross-attention"), ("PaliGemma", "sees both ways")])
def test_families_that_are_refused_by_name(name, missing):
    assert name in REFUSED
    inputs = shown(name, (3, 4))
    refuses(ValueError, lambda: written(seeing(name), inputs, custom_generate=Drafting()), missing)


def test_what_is_no_text_before_the_answer_and_other_arguments_are_refused():
    inputs = shown("Llava", (3, 0))  # the last token is a part of the image
    refuses(
        ValueError,
        lambda: written(seeing("Llava"), inputs, custom_generate=Drafting()),
        "images or sound",
        "ends with them",
    )
    inputs = shown("Llava", (3, 4))
    inputs["pixel_values"][0, 0, 0, 0] = torch.nan
    refuses(ValueError, lambda: written(seeing("Llava"), inputs, custom_generate=Drafting()), "not finite", "images")
    refuses(ValueError, lambda: call._shown(seeing("Llava"), {"inputs_embeds": torch.zeros(1)}), "inputs_embeds")
    refuses(ValueError, lambda: call._shown(seeing("Llava"), {"whatever": torch.zeros(1)}), "whatever")
