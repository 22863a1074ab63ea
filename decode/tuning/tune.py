"""Tunes weights on one part of a dump, to be reported on the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rescore.decode.draft.settings import Settings
from rescore.decode.draft.settings_parts import ModelFile
from rescore.decode.replay.recorded import fitted_models
from rescore.decode.tuning.trial_replays import TrialReplays
from rescore.decode.tuning.tune_paths import PathTuning, tune_paths
from rescore.decode.tuning.tune_trees import TreeTuning, tune_trees
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split, SplitPart
from rescore.lm.ngram import NGram

OBJECTIVE = "ln of block efficiency, mean over tasks; paths: of the p best strings; trees: mean of 16 and 64 nodes"


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
        scalar = {"paths": self.paths.scalar.best, "trees": self.paths.scalar_trees.best} if self.paths else {}
        return Settings(
            models=models,
            tokenizer_sha256=header.tokenizer_sha256 or None,
            vocab_size=header.vocab_size,
            slots=slots,
            top_k=(replays.top_k or header.top_k) if slots else 0,
            p=replays.paths if slots else 0,
            paths=self.paths.weights if self.paths else None,
            scalar_alpha=scalar,
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
            f"{len(models)}; merge them with `rescore lm merge`"
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
