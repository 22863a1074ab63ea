"""Tunes weights on one part of a dump, and compares them with the default ones on it and on the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from msgspec import structs

from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.calibration import SHARES, Calibration, Share
from rescore.decode.draft.registry import row_name, split
from rescore.decode.draft.rescorer import MERGE, Rescorer
from rescore.decode.draft.settings import BLEND, HEADLESS_KINDS, KINDS, ModelFile, Settings, TreeWeights
from rescore.decode.replay.figures import Figures, pair
from rescore.decode.replay.recorded import fitted_models
from rescore.decode.replay.rows import Budgets, rows_of
from rescore.decode.replay.run import DumpResult, replay_dump
from rescore.decode.tuning.fit import fit_calibration
from rescore.decode.tuning.fit_shares import fit_shares
from rescore.decode.tuning.tune_paths import SIZES, PathTuning, TrialReplays, log_efficiency, tune_paths
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split, SplitPart
from rescore.lm.model.ngram import NGram

OBJECTIVE = "ln of block efficiency, mean over tasks; paths: of the p best strings; trees: mean of 16 and 64 nodes"
COMPARED = ("base", "rescored", "parallel-rescored", "tree", "blend-without-heads", "blend")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTuning:
    """weights  calibrations by kind: of closed and of open lattices and, as a control, of the n-grams without heads
                ("alone"); for a model without heads "blend"
    tried    for each kind, `log_efficiency` at 16 and 64 nodes of the calibrations that were tried
    """

    weights: dict[str, TreeWeights]
    tried: dict[str, dict[Calibration, float]]


def tune_trees(replays: TrialReplays, *, per_task: bool = False, advance: Callable[[str], None]) -> TreeTuning:
    """Tunes the calibrations of trees with the one model of the replays, or none. per_task: also one per task and kind,
    from the task's sequences only.
    """
    tasks, search = replays.tasks, _Search(replays, advance)
    kinds = KINDS if replays.dump.slots else (BLEND,)
    overall = {kind: search.tried(kind, tasks) for kind in kinds}
    by_task = {kind: {task: best(search.tried(kind, (task,))) for task in tasks} if per_task else {} for kind in kinds}
    weights = {kind: TreeWeights(overall=best(overall[kind]), by_task=by_task[kind]) for kind in kinds}
    return TreeTuning(weights=weights, tried=overall)


def best(tried: dict[Calibration, float]) -> Calibration:
    """The first of equal ones."""
    return max(tried, key=lambda one: tried[one])


class _Search:
    """Fits and replays. Closed and open lattices share each fit."""

    def __init__(self, replays: TrialReplays, advance: Callable[[str], None]):
        self.replays, self.advance = replays, advance
        self._model = next(iter(replays.models), None) or NGram.uniform(replays.dump.header.vocab_size)
        self._shares, self._fit = cache(self._fitted_shares), cache(self._fitted)
        self.tried = cache(self._tried)  # with one task, the whole part and the task are the same

    def _tried(self, kind: str, tasks: tuple[str, ...]) -> dict[Calibration, float]:
        of = f" of {', '.join(tasks)}" if len(tasks) < len(self.replays.dump.tasks) else ""
        found = {}
        # Without heads there is no draft without the text: the default shares, or fitted ones.
        for told, text in (
            ("default shares" if kind == BLEND else "without the running text", SHARES if kind == BLEND else None),
            ("fitted shares", self._shares(tasks)),
        ):
            self.advance(f"{kind} trees{of}, {told}")
            calibration = self._calibration(kind, tasks, text)
            result = self.replays.of_calibration(kind, calibration, tasks)
            found[calibration] = log_efficiency(result, result.names)
        return found

    def _calibration(self, kind: str, tasks: tuple[str, ...], text: tuple[Share, ...] | None) -> Calibration:
        if kind in HEADLESS_KINDS:
            return Calibration(text=text).without_heads()
        return structs.replace(self._fit(tasks, text), open=kind == "open")

    def _fitted_shares(self, tasks: Sequence[str]) -> tuple[Share, ...]:
        return fit_shares(self.replays.blocks(tasks), self._model)

    def _fitted(self, tasks: Sequence[str], text: tuple[Share, ...] | None) -> Calibration:
        replays = self.replays
        return fit_calibration(
            replays.blocks(tasks), replays.models[0], text=text, top_k=replays.top_k, workers=replays.threads
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The result of `tune`.

    paths    None without heads
    trees    None with several models: a calibration weighs one. `rescore lm merge` merges them
    replays  the replays of all trials
    """

    paths: PathTuning | None
    trees: TreeTuning | None
    split: Split
    replays: TrialReplays = field(compare=False, repr=False)

    def settings(self, models: tuple[ModelFile, ...], *, values: dict[str, float], seed: int = 0) -> Settings:
        """Settings with these weights. models: those that were tuned; values, seed: as in `Settings`."""
        replays = self.replays
        header, slots = replays.dump.header, replays.dump.slots
        scalar = {"paths": self.paths.scalar, "trees": self.paths.scalar_trees} if self.paths else {}
        return Settings(
            models=models,
            tokenizer_sha256=header.tokenizer_sha256 or None,
            vocab_size=header.vocab_size,
            slots=slots,
            top_k=(replays.top_k or header.top_k) if slots else 0,
            p=replays.paths if slots else 0,
            paths=self.paths.weights if self.paths else None,
            scalar_alpha={drafts: tuning.best for drafts, tuning in scalar.items() if tuning},
            trees=self.trees.weights if self.trees else None,
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
    per_task: bool = False,
    threads: int = 1,
    advance: Callable[[str], None] = lambda trial: None,
) -> Tuned:
    """Finds the weights that maximise block efficiency on the tuning part of a dump. The held-out part is not read.

    models: at least one for a model with heads, at most one for a model without. split: None uses `Split.of_dump`.
    paths: p; top_k: candidates per slot (None: all). per_task: also fit a calibration for each task. advance: called
    with a description of each trial before it runs.
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
    replays = TrialReplays(dump, models, part, paths=paths, top_k=top_k, threads=threads)
    of_paths = tune_paths(replays, advance=advance) if dump.slots else None
    of_trees = tune_trees(replays, per_task=per_task, advance=advance) if len(models) <= 1 else None
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
    """The drafter to compare a tuned one with: the default one or, for weights per task, the tuned one."""
    stem, budget = split(name)
    for variant, other in ((" tuned by task", " tuned"), (" tuned", "")):
        if stem.endswith(variant):
            return row_name(stem.removesuffix(variant) + other, budget)
    return None


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
