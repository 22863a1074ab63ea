"""The report on a dump of a model without heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rescore.decode.draft.calibration import HEADLESS, Calibration
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.analyses.acceptance import AcceptanceCounts
from rescore.decode.replay.analyses.along_text import AlongTexts
from rescore.decode.replay.analyses.reliability import reliability
from rescore.decode.replay.headless import LOOKED_UP, STATIC, blend, headless_drafters
from rescore.decode.replay.names import (
    BLENDED,
    LM_ALONE,
    PROMPT_LOOKUP,
    RECYCLING,
    SUFFIX_DECODING,
    TUNED_BLEND,
    sized,
)
from rescore.decode.replay.run import replay_dump
from rescore.decode.report.content import Report
from rescore.decode.report.figures import Figures
from rescore.decode.report.report import ReportSources, texts_of
from rescore.decode.report.sections import (
    acceptance,
    along_text,
    differences,
    efficiency,
    provenance,
    sources,
    summary,
)
from rescore.decode.report.sections import reliability as reliability_section
from rescore.decode.report.verdict import verdict
from rescore.lattice.dump import Dump
from rescore.lattice.split import SplitPart

NODES = 64  # of the tree whose q is checked against acceptance
SLOTS = 16  # in the plot of acceptance by position
SHOWN = (
    sized(BLENDED, 16),
    sized(BLENDED, 64),
    sized(TUNED_BLEND, 16),
    sized(TUNED_BLEND, 64),
    sized(LM_ALONE, 16),
    sized(SUFFIX_DECODING, 16),
    sized(RECYCLING, 16),
    STATIC,
    sized(PROMPT_LOOKUP, LOOKED_UP),
)  # drafters in the plots of acceptance by position and of tokens per pass along the text


def headless_report(
    dump: Dump,
    rescorer: Rescorer,
    part: SplitPart,
    told: ReportSources,
    *,
    tuned: Calibration | None = None,
    tasks: Sequence[str] | None = None,
    seed: int = 0,
    advance: Callable[[int], None] = lambda rows: None,
) -> Report:
    """The report on a part of a dump.

    tuned    a calibration to report on besides the default
    tasks    None for all
    advance  called with numbers of rows, twice the part's rows in total

    ValueError for a model with another vocabulary or tokenizer, or for several models.
    """
    common: dict[str, Any] = {"tasks": tasks, "split": part, "advance": advance}
    depths, texts = AcceptanceCounts(SLOTS), AlongTexts()
    drafters = headless_drafters(dump, rescorer, tuned)
    result = replay_dump(dump, drafters, listeners=[depths.add, texts.add], **common)
    name = sized(TUNED_BLEND, NODES) if tuned else sized(BLENDED, NODES)
    model = rescorer.models[0] if rescorer.models else None
    q = reliability(dump, blend(dump, model, tuned or HEADLESS, {name: NODES}, rescorer.threads), **common)
    figures = Figures.of(result, seed=seed)
    models = f"with {told.names}" if told.models else "without an n-gram model"
    facts = [(path, one.info()) for path, one in zip(told.models, rescorer.models)]
    return Report(
        title=f"Drafts for {dump.header.model}, without heads",
        subtitle=f"{texts_of(dump, result, part.name)}, {models}",
        verdict=verdict(figures.overall),
        figures=figures.to_json(),
        tiles=efficiency.tiles(figures.overall),
        sections=[
            summary.of_blend(figures),
            efficiency.of_blend(figures),
            sources.section(figures),
            differences.section(figures, lambda *pair: not sources.of_sources(*pair)),
            reliability_section.section(q, name),
            acceptance.section([one for one in depths.result() if one.drafter in SHOWN]),
            along_text.section([one for one in texts.result() if one.drafter in SHOWN]),
            provenance.section(dump, facts, told.settings),
        ],
    )
