"""Tuning on one part of a dump what is to be reported on the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rescore.decode.replay.drafters.standard import check_models
from rescore.decode.replay.split import Split, SplitPart
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.tuning.trial_replays import TrialReplays
from rescore.decode.tuning.tune_paths import PathTuning, tune_paths
from rescore.decode.tuning.tune_trees import TreeTuning, tune_trees
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

OBJECTIVE = "ln of block efficiency, mean over tasks; paths: of the p best strings; trees: mean of 16 and 64 nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """trees: None of several models, since a calibration weighs one: `rescore lm merge` makes one of several.

    replays: of all that was tried.
    """

    paths: PathTuning
    trees: TreeTuning | None
    split: Split
    replays: TrialReplays = field(compare=False, repr=False)


def tune(
    dump: Dump,
    models: NGram | Sequence[NGram],
    *,
    split: Split | None = None,
    paths: int = 16,
    top_k: int | None = None,
    per_task: bool = False,
    threads: int = 1,
    advance: Callable[[str], None] = lambda trial: None,
) -> Tuned:
    """Weights that serve the tuning part of a dump best; nothing of the rest is read.

    split: None divides the dump as `Split.of_dump` does. paths p, top_k candidates of a slot (None: all). per_task: a
    calibration for each task as well. advance: told what is tried next.
    ValueError if there is no model, if the dump has no heads (`tune_blend` serves those), if a model is not of the
    dump's vocabulary and tokenizer, or the tuning part is empty.
    """
    models = (models,) if isinstance(models, NGram) else tuple(models)
    if not models:
        raise ValueError("tune: expected at least one language model, got none")
    if dump.header.heads == 1:
        raise ValueError(f"tune: expected a dump of a model with heads, got {dump.path} without: use tune_blend")
    check_models(dump, Rescorer(models))
    part = tuning_part(dump, split)
    replays = TrialReplays(dump, models, part, paths=paths, top_k=top_k, threads=threads)
    of_paths = tune_paths(replays, advance=advance)
    of_trees = tune_trees(replays, per_task=per_task, advance=advance) if len(models) == 1 else None
    return Tuned(paths=of_paths, trees=of_trees, split=part.split, replays=replays)


def tuning_part(dump: Dump, split: Split | None) -> SplitPart:
    """That of a split (None: of `Split.of_dump`). ValueError if it is empty, or the split is of another dump."""
    split = split or Split.of_dump(dump)
    split.check(dump)
    if not any(split.tune.values()):
        raise ValueError(
            f"tune: expected at least one sequence to tune on, got none of {dump.path}: a task needs two, "
            "one of which is reported on"
        )
    return split.part("tune")
