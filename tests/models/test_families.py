"""Every causal family of the installed transformers, small and random: its text with drafts is `generate`'s, or the
family is refused. No family differs silently, and none has anything written to it that plain decoding does not write.

What was found is a page, docs/reference/models.md: `python tests/models/test_families.py` writes it anew.
"""

import sys
import textwrap
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support import seeing
from support.generating import PLAIN
from support.tiny_families import FAMILIES, SIZES, small_model
from support.writes import writes_to

from rescore.decode.engines.huggingface.drafting import Drafting
from rescore.decode.models.model_check import is_recurrent

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"
PROMPTS = torch.tensor([[5, 6, 7, 8, 5, 6], [0, 0, 9, 8, 7, 9]])  # the second padded on the left

EQUAL = "Equal, attention alone"
RECURRENT = "Equal, with recurrent state or short convolutions"
UNPADDED = "Equal without padding, which their `generate` counts as positions: one prompt at a time"
SHOWN = "Equal behind images or sound, as `...ForConditionalGeneration` (tests/engines/test_images_and_sound.py)"
UNSHOWN = "Refused: layers that attend to images apart from the text, a prompt that sees both ways"
UNBUILT = "Not tried: not constructible, or not decodable by `generate`, at a small size"
REFUSED = {  # what errors say of families that are refused, and the page
    "after a kept state": "Refused: a pass over several tokens ignores the state that a cache keeps",
    "states of all recurrent layers": "Refused: the state is not in the cache",
    "recurrent state": "Refused: the state is not in the cache",
    "cache of its own": "Refused: the state is not in the cache",
    "full or sliding attention": "Refused: attention of another kind than full or sliding",
    "read in blocks": "Refused: given masks or positions are ignored, or the logits are computed otherwise",
    "ALiBi": "Refused: ALiBi, whose positions are slots of the cache",
    "positions, masks and a cache": "Refused: the decoder does not take positions, masks and a cache",
}


def text(model, prompts, **options) -> list[list[int]]:
    mask = (prompts > 0).long()
    return model.generate(input_ids=prompts, attention_mask=mask, max_new_tokens=16, **PLAIN, **options).tolist()


@cache
def found(family: str) -> str:
    """The title under which the page lists a family; fails if the text differs."""
    try:
        model = small_model(family)
        with writes_to(model) as usual:
            plain = text(model, PROMPTS)
    except Exception:  # of the family's own code, at sizes it was not made for
        return UNBUILT
    with writes_to(model) as written:
        title = drafted_equally(family, model, plain)
    assert written <= usual, f"{family}: plain decoding does not write this"
    return title


def drafted_equally(family: str, model, plain: list[list[int]]) -> str:
    """The title of a model whose text is known; fails if drafts change it."""
    drafting = Drafting(nodes=8)
    title = RECURRENT if is_recurrent(model.config) else EQUAL
    try:
        drafted = text(model, PROMPTS, custom_generate=drafting)
    except (ValueError, TypeError) as error:
        if "expected no padding" not in str(error):
            return refused(family, error)
        try:
            plain, drafted = text(model, PROMPTS[:1]), text(model, PROMPTS[:1], custom_generate=drafting)
        except (ValueError, TypeError) as alone:
            return refused(family, alone)
        title = UNPADDED
    assert drafted == plain, family
    assert all(sum(row.drafted) for row in drafting.statistics), family
    return title


def refused(family: str, error: Exception) -> str:
    """The title of an error that says what was expected, which one in passing does not."""
    titles = [title for phrase, title in REFUSED.items() if phrase in str(error)]
    assert ": expected " in str(error) and titles, f"{family}: {error}"
    return titles[0]


def page() -> str:
    titles = EQUAL, RECURRENT, UNPADDED, *dict.fromkeys(REFUSED.values()), UNBUILT
    kinds = {title: [family for family in FAMILIES if found(family) == title] for title in titles}
    lines = [
        "# Models of Hugging Face",
        "",
        *textwrap.wrap(
            f"All {len(FAMILIES)} causal families of transformers {transformers.__version__}, small and with random "
            "weights: greedy texts of two prompts, one padded, through `Drafting()` and by `generate` alone. Made by "
            "`python tests/models/test_families.py`; the tests hold every family to it. A model is tested once more "
            "when it is first decoded, so a family that is not here is drafted for exactly or refused by name. Those "
            "that are refused decode with `generate` as it is. How passes over kept states work: "
            "[models](../../decode/models/README.md#recurrent-state).",
            120,
        ),
    ]
    for title, families in kinds.items():
        if families:
            lines += ["", f"## {title}", "", *textwrap.wrap(", ".join(families), 120)]
    for title, families in ((SHOWN, seeing.FAMILIES), (UNSHOWN, seeing.REFUSED)):
        lines += ["", f"## {title}", "", *textwrap.wrap(", ".join(families), 120)]
    return "\n".join(lines) + "\n"


def listed() -> dict[str, set[str]]:
    """The families of the page by title."""
    parts = PAGE.read_text().split("\n## ")[1:]
    return {
        title: set(" ".join(names.split()).split(", ")) for title, _, names in (one.partition("\n") for one in parts)
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_is_generates_or_the_family_is_refused(family):
    assert found(family)


@pytest.mark.parametrize("title", [EQUAL, RECURRENT, UNPADDED])
def test_listed_families_are_equal(title):
    """In any version of transformers that has them."""
    families = listed()[title].intersection(FAMILIES)
    assert {family: found(family) for family in families} == dict.fromkeys(families, title)


def test_the_page_is_what_was_found():
    if f"transformers {transformers.__version__}," not in " ".join(PAGE.read_text().split()):
        pytest.skip("the page is of another version of transformers")
    assert PAGE.read_text() == page()


def _long(family: str) -> dict:
    """Fields of a model for texts of 2,200 tokens."""
    fields = {
        **dict.fromkeys(f"{SIZES[128]} max_target_positions".split(), 4096),
        "sliding_window": 700,
        "window_size": 700,
    }
    return {name: value for name, value in fields.items() if name in CONFIG_MAPPING[family]().to_dict()}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_long_prompts_have_their_text(family):
    """Read in parts whose borders lie inside windows, alone and with a shorter one."""
    kind = next((kind for kind in (EQUAL, RECURRENT, UNPADDED) if family in listed()[kind]), None)
    if kind is None:
        pytest.skip("refused")
    model = small_model(family, **_long(family))
    prompts = torch.randint(5, 99, (2, 2150), generator=torch.Generator().manual_seed(2))
    prompts[1, :700] = 0
    for some in (prompts[:1], prompts)[: 1 if kind == UNPADDED else 2]:
        assert text(model, some, custom_generate=Drafting(nodes=8)) == text(model, some), family


if __name__ == "__main__":
    PAGE.write_text(page())
