"""The drafters of a settings file for `rescore run --settings`, `rescore tune` and `rescore report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rescore.decode.replay.drafters.calibrated import CalibratedReplay
from rescore.decode.replay.drafters.headless import headless_drafters
from rescore.decode.replay.drafters.names import (
    CALIBRATED_TREE,
    LM_AND_TEXT,
    OPEN_TREE,
    PARALLEL_TUNED,
    by_task,
    of_sizes,
)
from rescore.decode.replay.drafters.paths import PathReplay
from rescore.decode.replay.drafters.standard import (
    MODEL_SIZES,
    TREE_SIZES,
    ReplayOptions,
    fitted,
    fitted_models,
    standard_drafters,
)
from rescore.decode.replay.split import digest
from rescore.decode.replay.worth import ReplayDrafter, Worth
from rescore.decode.rescoring.calibrated import CalibratedTrees
from rescore.decode.rescoring.calibration import DEFAULT, HEADLESS
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.rescoring.text_memory import TextMemory
from rescore.decode.tuning.settings import Settings
from rescore.decode.tuning.tune_blend import BLEND
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lm.ngram import NGram

ROWS = {"closed": CALIBRATED_TREE, "open": OPEN_TREE, "alone": LM_AND_TEXT}  # row names of the kinds of trees


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReplay:
    """A separate drafter for each task, all with the same names."""

    of: Mapping[str, ReplayDrafter]

    @property
    def names(self) -> tuple[str, ...]:
        return next(iter(self.of.values())).names

    def worth(self, block: DumpBlock) -> Mapping[str, Worth]:
        return self.of[block.task].worth(block)


def tuned_drafters(
    settings: Settings,
    dump: Dump,
    *,
    models: Sequence[NGram] | None = None,
    sizes: Sequence[int] = TREE_SIZES,
    threads: int = 1,
) -> list[ReplayDrafter]:
    """Returns PARALLEL_TUNED and, with one model, CALIBRATED_TREE (closed trees), OPEN_TREE and LM_AND_TEXT (a control
    without heads), the trees also `by_task` if tasks were tuned separately.

    models: the settings' models, already open (None: opens them). ValueError if the settings do not fit the dump.
    """
    check_dump(settings, dump)
    models = settings.open_models() if models is None else models
    models = fitted_models(dump, models)
    assert settings.paths is not None, "settings for a model with heads have weights of paths"
    of_paths = settings.paths.rescorer(models, threads)
    drafters: list[ReplayDrafter] = [
        PathReplay(rescorer=of_paths, budgets={PARALLEL_TUNED: settings.p}, top_k=settings.top_k)
    ]
    for kind, row in ROWS.items() if settings.trees else ():
        trees = {
            task: tree_replay(settings, models[0], kind, row, sizes, threads, task) for task in (None, *dump.tasks)
        }
        drafters.append(trees.pop(None))
        if settings.trees and settings.trees[kind].by_task:
            drafters.append(TaskReplay(of={task: one for task, one in trees.items() if task is not None}))
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
) -> list[ReplayDrafter]:
    """Returns the drafters of `rescore run`: the standard ones, calibrated trees (of the settings; otherwise untuned,
    given one model), and the oracle. For a dump without heads: `headless_drafters`, with settings and memory.
    """
    rescorer = fitted(dump, rescorer)
    if dump.header.heads == 1:
        if settings is not None:
            check_dump(settings, dump)
        return headless_drafters(dump, rescorer, settings.calibration(BLEND) if settings else None, memory)
    *standard, oracle = standard_drafters(dump, rescorer, options)
    trees: list[ReplayDrafter] = []
    if settings:
        trees = tuned_drafters(settings, dump, threads=rescorer.threads)
    elif len(rescorer.models) == 1:
        trees = untuned_drafters(rescorer.models[0], top_k=options.top_k, threads=rescorer.threads)
    return [*standard, *trees, oracle]


def untuned_drafters(model: NGram, *, top_k: int | None = None, threads: int = 1) -> list[ReplayDrafter]:
    """Returns OPEN_TREE and LM_AND_TEXT with default calibrations."""
    forms = {OPEN_TREE: (DEFAULT, top_k, TREE_SIZES), LM_AND_TEXT: (HEADLESS, 1, MODEL_SIZES)}
    return [
        CalibratedReplay(rescorer=CalibratedTrees(model, one, threads=threads), budgets=of_sizes(row, sizes), top_k=k)
        for row, (one, k, sizes) in forms.items()
    ]


def tree_replay(
    settings: Settings, model: NGram, kind: str, row: str, sizes: Sequence[int], threads: int, task: str | None
) -> ReplayDrafter:
    rescorer = CalibratedTrees(model, settings.calibration(kind, task), threads=threads)
    name = row if task is None else by_task(row)
    return CalibratedReplay(
        rescorer=rescorer, budgets=of_sizes(name, sizes), top_k=1 if kind == "alone" else settings.top_k
    )


def is_tuned_on(settings: Settings, dump: Dump) -> bool:
    """Whether the settings were tuned on this dump, so that only its held-out part may be reported."""
    return digest(dump.header) == settings.split.dump_sha256
