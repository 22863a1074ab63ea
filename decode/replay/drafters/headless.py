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
# The blend against what others have published, and against itself without one of its sources.
COMPARED = (
    ("blend_16", f"prompt_lookup_{LOOKED_UP}"),
    ("blend_16", STATIC),
    *((f"blend_{n}", f"{other}_{n}") for other in ("recycling", "suffix", "lm_alone", "text", "hard") for n in SIZES),
)


def headless_drafters(dump: Dump, rescorer: Rescorer, calibration: Calibration = HEADLESS) -> list[ReplayDrafter]:
    """prompt_lookup_10, recycling_static_80, recycling_N, suffix_N; lm_alone_N and hard_N (where there is a model),
    text_N and blend_N, in this order.

    ValueError if a model's vocabulary or tokenizer is not that of the dump, or there are several models.
    """
    check_models(dump, rescorer)
    if len(rescorer.models) > 1:
        raise ValueError(
            f"models: expected one at most for a dump of a model without heads, got {len(rescorer.models)}; "
            "mix them with rescore lm merge"
        )
    hard, alone = replace(calibration, soft=()), replace(calibration, text=None, soft=())
    nothing = NGram.uniform(dump.header.vocab_size)

    def trees(name: str, model: NGram, of: Calibration) -> CalibratedReplay:
        own = CalibratedRescorer(model, of, threads=rescorer.threads)
        return CalibratedReplay(rescorer=own, budgets=sizes(name), depth=DEPTH)

    drafters: list[ReplayDrafter] = [
        PromptLookupReplay(budgets={f"prompt_lookup_{LOOKED_UP}": LOOKED_UP}),
        TokenRecyclingReplay(budgets={STATIC: None, **sizes("recycling")}),
        SuffixReplay(budgets=sizes("suffix")),
    ]
    if not rescorer.models:
        return [*drafters, trees("hard", nothing, hard), trees("blend", nothing, calibration)]
    model = rescorer.models[0]
    return [
        *drafters,
        trees("lm_alone", model, alone),
        trees("text", nothing, calibration),
        trees("hard", model, hard),
        trees("blend", model, calibration),
    ]


def sizes(name: str) -> Mapping[str, int]:
    return {f"{name}_{n}": n for n in SIZES}
