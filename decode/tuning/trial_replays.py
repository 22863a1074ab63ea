"""Replays the tuning part of a dump with one set of weights after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import cached_property

import numpy as np

from rescore.decode.draft.blended_drafter import blended
from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.registry import sized
from rescore.decode.draft.settings import HEADLESS_KINDS, PathWeights
from rescore.decode.replay import rows
from rescore.decode.replay.replay import OracleReplay, Replay
from rescore.decode.replay.run import DumpResult, replay_blocks
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.split import SplitPart, chosen_blocks
from rescore.lm.model.ngram import NGram

SIZES = (16, 64)  # node budgets that trees are tuned for


class TrialReplays:
    """Replays of one part of a dump. The part is read once and stays mapped, its blocks are replayed concurrently, and
    results are cached by weights.

    paths: p; top_k: candidates per slot (None: all).
    """

    def __init__(
        self,
        dump: Dump,
        models: Sequence[NGram],
        part: SplitPart,
        *,
        paths: int = 16,
        top_k: int | None = None,
        threads: int = 1,
    ):
        self.dump, self.models, self.part, self.paths, self.top_k = dump, tuple(models), part, paths, top_k
        self.threads = threads
        self._known: dict[Hashable, DumpResult] = {}

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The tasks with a sequence in the part."""
        return tuple(task for task in self.dump.tasks if self.part.sequences(self.dump, task))

    def blocks(self, tasks: Collection[str]) -> list[DumpBlock]:
        return [block for block in self._blocks if block.task in tasks]

    @cached_property
    def _blocks(self) -> list[DumpBlock]:
        return list(chosen_blocks(self.dump, self.tasks, self.part))

    @property
    def bounds(self) -> DumpResult:
        """The replay of base and oracle."""
        return self._once("bounds", self.tasks, lambda threads: OracleReplay(widths={"base": 1, "oracle": self.top_k}))

    def of_paths(self, weights: PathWeights) -> DumpResult:
        """Replays "rescored" and "parallel-rescored"."""
        budgets = {"rescored": 1, "parallel-rescored": self.paths}
        return self._once(
            ("paths", weights),
            self.tasks,
            lambda threads: rows.paths(weights.rescorer(self.models, threads), budgets, top_k=self.top_k),
        )

    def of_trees(self, weights: PathWeights) -> DumpResult:
        """Replays "tree", uncalibrated, with all SIZES."""
        budgets = {sized("tree", n): n for n in SIZES}
        return self._once(
            ("trees", weights),
            self.tasks,
            lambda threads: rows.trees(weights.rescorer(self.models, threads), budgets, top_k=self.top_k),
        )

    def of_calibration(self, kind: str, calibration: Calibration, tasks: Sequence[str]) -> DumpResult:
        """Replays trees of a kind with all SIZES, named by size, with the one model, or none."""
        model, vocab_size = next(iter(self.models), None), self.dump.header.vocab_size
        return self._once(
            (kind, calibration, tuple(tasks)),
            tasks,
            lambda threads: rows.trees(
                blended(vocab_size, model, calibration, threads=threads),
                {str(n): n for n in SIZES},
                heads=kind not in HEADLESS_KINDS,
                top_k=self.top_k,
            ),
        )

    def replay(self, make: Callable[[int], Replay], tasks: Collection[str] | None = None) -> DumpResult:
        """Replays the drafter that make(threads) makes."""
        blocks = self.blocks(self.tasks if tasks is None else tasks)
        workers = min(self.threads, len(blocks))
        return replay_blocks(blocks, [make(self.threads // workers)], kind=self.dump.header.kind, workers=workers)

    def _once(self, key: Hashable, tasks: Collection[str], make: Callable[[int], Replay]) -> DumpResult:
        if key not in self._known:
            self._known[key] = self.replay(make, tasks)
        return self._known[key]


def log_efficiency(result: DumpResult, names: Sequence[str]) -> float:
    """Returns the objective of tuning, ln of block efficiency, averaged over tasks and drafters. The logarithm keeps
    easy tasks from dominating.
    """
    return float(np.mean([math.log(task.tallies[name].block_efficiency) for task in result.tasks for name in names]))


def mean_efficiency(result: DumpResult) -> dict[str, float]:
    """Returns every drafter's block efficiency, averaged over tasks."""
    return {
        name: float(np.mean([task.tallies[name].block_efficiency for task in result.tasks])) for name in result.names
    }
