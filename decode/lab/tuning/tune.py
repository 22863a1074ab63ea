"""Tunes weights on one part of a dump, and compares them with the default ones on it and on the other.

Each set of weights is tried in a replay of the tuning part, and the best one is kept. Of the p best paths: the default
weights, and those of maximum likelihood, per slot and model, with a common factor of all alpha, by hill climbing from
1. Of trees: a calibration with and without the running text, whose shares and weights are those of maximum likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import structs

from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.blended_drafter import blend_rescorer
from rescore.decode.draft.calibration import HEADLESS, Calibration
from rescore.decode.draft.registry import row_name, split
from rescore.decode.draft.rescorer import MERGE, Rescorer
from rescore.decode.draft.settings import ModelFile, PathWeights, Settings
from rescore.decode.lab.replay.figures import Figures, pair
from rescore.decode.lab.replay.recorded import fitted_models
from rescore.decode.lab.replay.replay import Replay
from rescore.decode.lab.replay.rows import Budgets, path_replay, rows_of, tree_replay
from rescore.decode.lab.replay.run import DumpResult, replay_blocks, replay_dump
from rescore.decode.lab.tuning.fit import fit_calibration, fit_weights
from rescore.decode.lab.tuning.fit_shares import fit_shares
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.split import Split, SplitPart, chosen_blocks
from rescore.lm.model.ngram import NGram

SIZES = (16, 64)  # node budgets that trees are tuned for
FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)  # of fitted alpha
OBJECTIVE = "ln of block efficiency, mean over tasks; paths: of the p best strings; trees: mean of 16 and 64 nodes"
COMPARED = ("base", "rescored", "parallel-rescored", "tree", "blend-without-heads", "blend")

Weights = TypeVar("Weights")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Generic[Weights]):
    """The weights that were tried, in order, and what they reached."""

    values: Mapping[Weights, float]

    @property
    def best(self) -> Weights:
        """The first of equal ones."""
        return max(self.values, key=self.values.__getitem__)


class TrialReplays:
    """Replays of one part of a dump, which is read once and stays mapped.

    paths    p
    top_k    candidates per slot (None: all)
    advance  called with a description of each replay before it runs
    """

    def __init__(
        self,
        dump: Dump,
        models: Sequence[NGram],
        part: SplitPart,
        *,
        paths: int,
        top_k: int | None,
        threads: int,
        advance: Callable[[str], None],
    ):
        self.dump, self.models, self.part, self.paths, self.top_k = dump, tuple(models), part, paths, top_k
        self.threads, self.advance = threads, advance

    @cached_property
    def blocks(self) -> list[DumpBlock]:
        return list(chosen_blocks(self.dump, None, self.part))

    def of_paths(self, trial: str, weights: PathWeights) -> float:
        """`log_efficiency` of the p best paths."""
        rescorer = weights.rescorer(self.models, self.threads)
        return self._value(trial, path_replay(rescorer, {"paths": self.paths}, top_k=self.top_k))

    def of_trees(self, trial: str, calibration: Calibration) -> float:
        """`log_efficiency` of trees at 16 and 64 nodes, with the one model, or none."""
        model, vocab_size = next(iter(self.models), None), self.dump.header.vocab_size
        rescorer = blend_rescorer(vocab_size, model, calibration, threads=self.threads)
        return self._value(trial, tree_replay(rescorer, {str(n): n for n in SIZES}, top_k=self.top_k))

    def _value(self, trial: str, drafter: Replay) -> float:
        self.advance(trial)
        return log_efficiency(replay_blocks(self.blocks, [drafter], kind=self.dump.header.kind))


def log_efficiency(result: DumpResult) -> float:
    """Returns the objective of tuning, ln of block efficiency, averaged over tasks and drafters. The logarithm keeps
    easy tasks from dominating.
    """
    return float(
        np.mean([math.log(task.tallies[name].block_efficiency) for task in result.tasks for name in result.names])
    )


def mean_efficiency(result: DumpResult) -> dict[str, float]:
    """Returns every drafter's block efficiency, averaged over tasks."""
    return {
        name: float(np.mean([task.tallies[name].block_efficiency for task in result.tasks])) for name in result.names
    }


def tune_paths(replays: TrialReplays) -> Tried[PathWeights]:
    """Tunes the weights of heads and models for the p best paths."""
    models = len(replays.models)
    default = PathWeights(head=(1.0,), alpha=((DEFAULT_ALPHA / models,),) * models)
    values = {default: replays.of_paths("paths, default weights", default)}
    replays.advance("fit of the paths' weights")
    head, alpha = fit_weights(replays.blocks, replays.models, top_k=replays.top_k, workers=replays.threads)
    reached: dict[float, float] = {}

    def value(factor: float) -> float:
        if factor not in reached:
            weights = PathWeights(head=tuple(head.tolist()), alpha=tuple(map(tuple, (factor * alpha).tolist())))
            values[weights] = reached[factor] = replays.of_paths(f"paths, fitted alpha times {factor:g}", weights)
        return reached[factor]

    at, before = FACTORS.index(1.0), -1
    while at != before:
        before = at
        at = max((i for i in (at, at + 1, at - 1) if 0 <= i < len(FACTORS)), key=lambda i: value(FACTORS[i]))
    return Tried(values=values)


def tune_trees(replays: TrialReplays) -> Tried[Calibration]:
    """Tunes the calibration of trees with the one model of the replays, or none."""
    model = next(iter(replays.models), None) or NGram.uniform(replays.dump.header.vocab_size)
    replays.advance("fit of the running text's shares")
    shares = fit_shares(replays.blocks, model)
    # Without heads there is no draft without the text: the default shares, or fitted ones.
    tried = {"default shares": HEADLESS.text, "fitted shares": shares}
    if replays.dump.slots:
        tried = {"without the running text": None, "fitted shares": shares}
    values = {}
    for told, text in tried.items():
        calibration = structs.replace(HEADLESS, text=text)
        if replays.dump.slots:
            replays.advance(f"fit of the trees' weights, {told}")
            how: dict[str, Any] = {"top_k": replays.top_k, "workers": replays.threads}
            calibration = fit_calibration(replays.blocks, model, text=text, **how)
        values[calibration] = replays.of_trees(f"trees, {told}", calibration)
    return Tried(values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The result of `tune`.

    paths    weights of the p best paths and their `log_efficiency`; None without heads
    trees    calibrations of trees and theirs, at 16 and 64 nodes; None with several models: a calibration weighs one.
             `rescore lm merge` merges them
    replays  the replays of all trials
    """

    paths: Tried[PathWeights] | None
    trees: Tried[Calibration] | None
    split: Split
    replays: TrialReplays = field(compare=False, repr=False)

    def settings(self, models: tuple[ModelFile, ...], *, values: dict[str, float], seed: int = 0) -> Settings:
        """Settings with the best weights. models: those that were tuned; values, seed: as in `Settings`."""
        replays = self.replays
        header, slots = replays.dump.header, replays.dump.slots
        return Settings(
            models=models,
            tokenizer_sha256=header.tokenizer_sha256 or None,
            vocab_size=header.vocab_size,
            slots=slots,
            top_k=(replays.top_k or header.top_k) if slots else 0,
            p=replays.paths if slots else 0,
            paths=self.paths.best if self.paths else None,
            trees=self.trees.best if self.trees else None,
            split=self.split,
            objective=OBJECTIVE,
            seed=seed,
            values=values,
        )


def tune(
    dump: Dump,
    models: NGram | Sequence[NGram] = (),
    *,
    split: Split | None = None,
    paths: int = 16,
    top_k: int | None = None,
    threads: int = 1,
    advance: Callable[[str], None] = lambda trial: None,
) -> Tuned:
    """Finds the weights that maximise block efficiency on the tuning part of a dump. The held-out part is not read.

    models: at least one for a model with heads, at most one for a model without. split: None uses `Split.of_dump`.
    paths: p; top_k: candidates per slot (None: all). advance: called with a description of each
    trial before it runs.
    ValueError for another number of models, if a model's vocabulary or tokenizer is not the dump's, or if the tuning
    part is empty.
    """
    models = (models,) if isinstance(models, NGram) else tuple(models)
    if dump.slots and not models:
        raise ValueError(f"tune: expected at least one n-gram model, since {dump.path} is of a model with heads")
    if not dump.slots and len(models) > 1:
        raise ValueError(
            f"tune: expected at most one n-gram model, since {dump.path} is of a model without heads, got "
            f"{len(models)}; {MERGE}"
        )
    models = fitted_models(dump, models)
    part = tuning_part(dump, split)
    replays = TrialReplays(dump, models, part, paths=paths, top_k=top_k, threads=threads, advance=advance)
    of_paths = tune_paths(replays) if dump.slots else None
    of_trees = tune_trees(replays) if len(models) <= 1 else None
    return Tuned(paths=of_paths, trees=of_trees, split=part.split, replays=replays)


def tuning_part(dump: Dump, split: Split | None) -> SplitPart:
    """Returns the tuning part of a split (None: of `Split.of_dump`). ValueError if it is empty, or if the split belongs
    to another dump.
    """
    split = split or Split.of_dump(dump)
    split.check(dump)
    if not any(split.tune.values()):
        raise ValueError(
            f"tune: expected at least one sequence to tune on, got none of {dump.path}: a task needs two sequences, "
            "one of them held out"
        )
    return split.part("tune")


def evaluate(
    dump: Dump,
    settings: Settings,
    models: Sequence[NGram],
    part: str,
    *,
    threads: int = 1,
) -> DumpResult:
    """Replays the part "tune" or "heldout": base, drafters with default weights (alpha 0.3) and with tuned ones, the
    oracle.
    """
    weights = [DEFAULT_ALPHA / len(models)] * len(models) if models else None
    rescorer, tuned = Rescorer(models, alpha=weights, threads=threads), fitted_models(dump, models)
    budgets = Budgets(nodes=SIZES, p=settings.p or 1, top_k=settings.top_k or None)
    drafters = rows_of(dump, rescorer, budgets, only=COMPARED, settings=settings, tuned=tuned)
    return replay_dump(dump, drafters, split=settings.split.part(part))


def compared(name: str) -> str | None:
    """The drafter with default weights to compare a tuned one with."""
    stem, budget = split(name)
    return row_name(stem.removesuffix(" tuned"), budget) if stem.endswith(" tuned") else None


def heldout_json(result: DumpResult, seed: int) -> dict[str, Any]:
    """Returns the block efficiency of all drafters on the held-out part, by task and as mean, with intervals, and their
    differences from the drafters in `compared`.
    """
    figures = Figures.of(result, seed=seed)
    tasks = figures.task_names
    rows = {}
    for name in result.names:
        mean = figures.efficiency(name)
        rows[name] = {
            "tasks": {task: figures.efficiency(name, task).value for task in tasks},
            "intervals": {task: pair(figures.efficiency(name, task)) for task in tasks},
            "mean": mean.value,
            "interval": pair(mean),
        }
        if against := compared(name):
            difference = figures.difference(name, against)
            rows[name]["difference"] = {
                "against": against,
                "value": difference.interval.value,
                "interval": pair(difference.interval),
                "p_value": difference.p_value,
            }
    return {
        "tasks": tasks,
        "drafters": rows,
        "bootstrap": figures.bootstrap,
    }
