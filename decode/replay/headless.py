"""The drafters of `rescore run` for dumps without heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rescore.decode.draft.calibration import HEADLESS, Calibration
from rescore.decode.draft.prompt_lookup import PromptLookupDrafter
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.suffix_decoding import SuffixDrafter
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.draft.token_recycling import TokenRecyclingDrafter
from rescore.decode.replay import rows
from rescore.decode.replay.names import (
    BLENDED,
    LM_ALONE,
    PROMPT_LOOKUP,
    RECYCLING,
    STATIC_RECYCLING,
    SUFFIX_DECODING,
    TUNED_BLEND,
    TUNED_WITHOUT_LM,
    WITH_MEMORY,
    WITHOUT_LM,
    of_sizes,
    sized,
)
from rescore.decode.replay.replay import DrafterReplay, Replay
from rescore.decode.replay.standard import fitted
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

SIZES = (16, 32, 64)
LOOKED_UP = 10  # tokens, the usual setting
STATIC = sized(STATIC_RECYCLING, 80)
# The blend without the n-gram model, and complete.
ABLATIONS = (WITHOUT_LM, BLENDED)
TUNED_ABLATIONS = (TUNED_WITHOUT_LM, TUNED_BLEND)
ALONE = replace(HEADLESS, text=None)
# The blend against published drafters, and against itself without one of its sources.
COMPARED = (
    (sized(BLENDED, 16), sized(PROMPT_LOOKUP, LOOKED_UP)),
    (sized(BLENDED, 16), STATIC),
    *(
        (sized(BLENDED, n), sized(other, n))
        for other in (RECYCLING, SUFFIX_DECODING, LM_ALONE, WITHOUT_LM)
        for n in SIZES
    ),
    (sized(WITH_MEMORY, 16), sized(PROMPT_LOOKUP, LOOKED_UP)),
    *((sized(WITH_MEMORY, n), sized(BLENDED, n)) for n in SIZES),
)
COMPARED_TUNED = tuple((sized(TUNED_BLEND, n), sized(other, n)) for other in (BLENDED, TUNED_WITHOUT_LM) for n in SIZES)


def headless_drafters(
    dump: Dump, rescorer: Rescorer, tuned: Calibration | None = None, memory: TextMemory | None = None
) -> list[Replay]:
    """Returns the drafters, in this order: PROMPT_LOOKUP, STATIC_RECYCLING, RECYCLING, SUFFIX_DECODING, LM_ALONE and
    WITHOUT_LM (given a model) and BLENDED; the last two also with the tuned calibration, if given;
    WITH_MEMORY, the blend with the memory, if given. The memory is not modified.

    ValueError if a model's vocabulary or tokenizer is not the dump's, or if there are several models.
    """
    rescorer = fitted(dump, rescorer)
    if len(rescorer.models) > 1:
        raise ValueError(
            f"models: expected at most one for a dump without heads, got {len(rescorer.models)}; "
            "merge them with `rescore lm merge`"
        )
    model = rescorer.models[0] if rescorer.models else None
    drafters: list[Replay] = [
        DrafterReplay(
            budgets={sized(PROMPT_LOOKUP, LOOKED_UP): LOOKED_UP}, make=lambda _: PromptLookupDrafter(LOOKED_UP)
        ),
        DrafterReplay(budgets={STATIC: None}, make=lambda _: TokenRecyclingDrafter()),
        DrafterReplay(budgets=of_sizes(RECYCLING, SIZES), make=lambda _: TokenRecyclingDrafter(max(SIZES))),
        # The match that it follows depends on the size.
        *(DrafterReplay(budgets={sized(SUFFIX_DECODING, n): n}, make=lambda _: SuffixDrafter()) for n in SIZES),
    ]
    if model:
        drafters.append(blend(dump, model, ALONE, of_sizes(LM_ALONE, SIZES), rescorer.threads))
    for calibration, names in ((HEADLESS, ABLATIONS), (tuned, TUNED_ABLATIONS)):
        if calibration:
            for name, one in zip(names, (None, model)) if model else ((names[-1], None),):
                drafters.append(blend(dump, one, calibration, of_sizes(name, SIZES), rescorer.threads))
    if memory is not None:
        drafters.append(blend(dump, model, tuned or HEADLESS, of_sizes(WITH_MEMORY, SIZES), rescorer.threads, memory))
    return drafters


def blend(
    dump: Dump,
    model: NGram | None,
    calibration: Calibration,
    budgets: Mapping[str, int],
    threads: int = 1,
    memory: TextMemory | None = None,
) -> DrafterReplay:
    """Makes a drafter of trees from an n-gram model, the running text as the calibration weighs it, and a memory."""
    model = model or NGram.uniform(dump.header.vocab_size)
    rescorer = Rescorer(model, calibration=calibration, memory=memory, threads=threads)
    return rows.trees(rescorer, budgets, heads=False)
