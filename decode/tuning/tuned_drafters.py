"""The drafters of a settings file for `rescore run --settings`, `rescore tune` and `rescore report`."""

from __future__ import annotations

from collections.abc import Sequence

from rescore.decode.draft.calibration import DEFAULT, HEADLESS
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.settings_parts import BLEND
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.replay import rows
from rescore.decode.replay.headless import headless_drafters
from rescore.decode.replay.names import (
    CALIBRATED_TREE,
    LM_AND_TEXT,
    OPEN_TREE,
    PARALLEL_TUNED,
    by_task,
    of_sizes,
)
from rescore.decode.replay.replay import DrafterReplay, Replay
from rescore.decode.replay.standard import (
    MODEL_SIZES,
    TREE_SIZES,
    ReplayOptions,
    fitted,
    fitted_models,
    standard_drafters,
)
from rescore.lattice.dump import Dump
from rescore.lattice.split import digest
from rescore.lm.ngram import NGram

ROWS = {"closed": CALIBRATED_TREE, "open": OPEN_TREE, "alone": LM_AND_TEXT}  # row names of the kinds of trees


def tuned_drafters(
    settings: Settings,
    dump: Dump,
    *,
    models: Sequence[NGram] | None = None,
    sizes: Sequence[int] = TREE_SIZES,
    threads: int = 1,
) -> list[Replay]:
    """Returns PARALLEL_TUNED and, with one model, CALIBRATED_TREE (closed trees), OPEN_TREE and LM_AND_TEXT (a control
    without heads), the trees also `by_task` if tasks were tuned separately.

    models: the settings' models, already open (None: opens them). ValueError if the settings do not fit the dump.
    """
    check_dump(settings, dump)
    models = settings.open_models() if models is None else models
    models = fitted_models(dump, models)
    assert settings.paths is not None, "settings for a model with heads have weights of paths"
    of_paths = settings.paths.rescorer(models, threads)
    drafters: list[Replay] = [rows.paths(of_paths, {PARALLEL_TUNED: settings.p}, top_k=settings.top_k)]

    def trees(kind: str, name: str, tasks: Sequence[str] | None = None) -> DrafterReplay:
        def own(task: str | None = None) -> Rescorer:
            return Rescorer(models[0], calibration=settings.calibration(kind, task), threads=threads)

        rescorer = own() if tasks is None else {task: own(task) for task in tasks}
        return rows.trees(rescorer, of_sizes(name, sizes), heads=kind != "alone", top_k=settings.top_k)

    for kind, row in ROWS.items() if settings.trees else ():
        drafters.append(trees(kind, row))
        if settings.trees and settings.trees[kind].by_task:
            drafters.append(trees(kind, by_task(row), dump.tasks))
    return drafters


def check_dump(settings: Settings, dump: Dump) -> None:
    """Raises ValueError unless the settings fit the dump."""
    header = dump.header
    settings.check(vocab_size=header.vocab_size, slots=header.heads - 1, tokenizer_sha256=header.tokenizer_sha256)


def run_drafters(
    dump: Dump,
    rescorer: Rescorer,
    options: ReplayOptions,
    settings: Settings | None = None,
    memory: TextMemory | None = None,
) -> list[Replay]:
    """Returns the drafters of `rescore run`: the standard ones, calibrated trees (of the settings; otherwise untuned,
    given one model), and the oracle. For a dump without heads: `headless_drafters`, with settings and memory.
    """
    rescorer = fitted(dump, rescorer)
    if dump.header.heads == 1:
        if settings is not None:
            check_dump(settings, dump)
        return headless_drafters(dump, rescorer, settings.calibration(BLEND) if settings else None, memory)
    *standard, oracle = standard_drafters(dump, rescorer, options)
    trees: list[Replay] = []
    if settings:
        trees = tuned_drafters(settings, dump, threads=rescorer.threads)
    elif len(rescorer.models) == 1:
        trees = untuned_drafters(rescorer.models[0], top_k=options.top_k, threads=rescorer.threads)
    return [*standard, *trees, oracle]


def untuned_drafters(model: NGram, *, top_k: int | None = None, threads: int = 1) -> list[Replay]:
    """Returns OPEN_TREE and LM_AND_TEXT with default calibrations."""
    blend, alone = (Rescorer(model, calibration=one, threads=threads) for one in (DEFAULT, HEADLESS))
    return [
        rows.trees(blend, of_sizes(OPEN_TREE, TREE_SIZES), top_k=top_k),
        rows.trees(alone, of_sizes(LM_AND_TEXT, MODEL_SIZES), heads=False),
    ]


def is_tuned_on(settings: Settings, dump: Dump) -> bool:
    """Whether the settings were tuned on this dump, so that only its held-out part may be reported."""
    return digest(dump.header) == settings.split.dump_sha256
