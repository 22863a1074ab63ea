"""The drafters of `rescore run` for dumps of models without heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rescore.decode.replay.drafters.calibrated import CalibratedReplay
from rescore.decode.replay.drafters.prior_art import PromptLookupReplay, SuffixReplay, TokenRecyclingReplay
from rescore.decode.replay.drafters.standard import check_models
from rescore.decode.replay.worth import ReplayDrafter
from rescore.decode.rescoring.calibrated import CalibratedRescorer
from rescore.decode.rescoring.calibration import DEPTH, HEADLESS, Calibration
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

SIZES = (16, 32, 64)
LOOKED_UP = 10  # tokens, as is usual
STATIC = "recycling_static_80"
ALONE = replace(HEADLESS, text=None, soft=())
# The blend against what others have published, and against itself without one of its sources.
COMPARED = (
    ("blend_16", f"prompt_lookup_{LOOKED_UP}"),
    ("blend_16", STATIC),
    *((f"blend_{n}", f"{other}_{n}") for other in ("recycling", "suffix", "lm_alone", "text", "hard") for n in SIZES),
)
COMPARED_TUNED = tuple(
    (f"blend_tuned_{n}", f"{other}_{n}") for other in ("blend", "text_tuned", "hard_tuned") for n in SIZES
)


def headless_drafters(dump: Dump, rescorer: Rescorer, tuned: Calibration | None = None) -> list[ReplayDrafter]:
    """prompt_lookup_10, recycling_static_80, recycling_N, suffix_N; lm_alone_N and text_N (where there is a model),
    hard_N and blend_N, in this order; of a tuned calibration text_tuned_N, hard_tuned_N and blend_tuned_N, too.

    ValueError if a model's vocabulary or tokenizer is not that of the dump, or there are several models.
    """
    check_models(dump, rescorer)
    if len(rescorer.models) > 1:
        raise ValueError(
            f"models: expected one at most for a dump of a model without heads, got {len(rescorer.models)}; "
            "mix them with rescore lm merge"
        )
    model = rescorer.models[0] if rescorer.models else None
    drafters: list[ReplayDrafter] = [
        PromptLookupReplay(budgets={f"prompt_lookup_{LOOKED_UP}": LOOKED_UP}),
        TokenRecyclingReplay(budgets={STATIC: None, **sizes("recycling")}),
        SuffixReplay(budgets=sizes("suffix")),
    ]
    if model:
        drafters.append(blend(dump, model, ALONE, sizes("lm_alone"), rescorer.threads))
    for calibration, ending in ((HEADLESS, ""), (tuned, "_tuned")):
        if calibration:
            drafters += ablations(dump, model, calibration, ending, rescorer.threads)
    return drafters


def ablations(
    dump: Dump, model: NGram | None, calibration: Calibration, ending: str, threads: int
) -> list[ReplayDrafter]:
    """The blend, after the same without its n-gram model, if it has one, and without soft counts."""
    hard = replace(calibration, soft=())
    text = [blend(dump, None, calibration, sizes(f"text{ending}"), threads)] if model else []
    return [
        *text,
        blend(dump, model, hard, sizes(f"hard{ending}"), threads),
        blend(dump, model, calibration, sizes(f"blend{ending}"), threads),
    ]


def blend(
    dump: Dump, model: NGram | None, calibration: Calibration, budgets: Mapping[str, int], threads: int = 1
) -> CalibratedReplay:
    """Trees of an n-gram model, or none, and of what the calibration says of the running text."""
    model = model or NGram.uniform(dump.header.vocab_size)
    rescorer = CalibratedRescorer(model, calibration, threads=threads)
    return CalibratedReplay(rescorer=rescorer, budgets=budgets, depth=DEPTH)


def sizes(name: str) -> Mapping[str, int]:
    return {f"{name}_{n}": n for n in SIZES}
