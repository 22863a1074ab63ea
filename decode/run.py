"""Rescoring whole dumps: every drafter's block efficiency, task by task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft import Rescorer
from rescore.decode.measures import Duel, Repetition, Tally, headroom_recovered
from rescore.decode.replay import MODEL_SIZES, TREE_SIZES, ReplayOptions, Worth, evaluate, visited_rows
from rescore.lattice.block import Block
from rescore.lattice.dump import Dump

# In the order of the table; `lm_alone` is absent when there is no model.
DRAFTERS = (
    "base",
    "rescored",
    "parallel_base",
    "parallel_rescored",
    *(f"tree_base_{n}" for n in TREE_SIZES),
    *(f"tree_{n}" for n in TREE_SIZES),
    *(f"lm_alone_{n}" for n in MODEL_SIZES),
    "oracle",
)

# What is called for each block: the block, its worth, and the rows that the p rescored drafts visit.
Listener = Callable[[Block, Worth, NDArray[np.int64]], None]


@dataclass(slots=True)
class TaskResult:
    """Everything measured on one task of one dump."""

    task: str
    sequences: int = 0
    tokens: int = 0
    loop_share: float = 0.0
    tallies: dict[str, Tally] = field(default_factory=dict)
    repetition: dict[str, Repetition] = field(default_factory=lambda: {"base": Repetition(), "rescored": Repetition()})
    duel: Duel = field(default_factory=Duel)

    def add(self, block: Block, worth: Worth, visited: dict[str, NDArray[np.int64]]) -> None:
        self.sequences += block.sequences
        self.tokens += block.rows
        for name, accepted in worth.accepted.items():
            tally = self.tallies.setdefault(name, Tally())
            tally.add(accepted, worth.verified[name], visited[name], block.rows, block.sequences)
        self.repetition["base"].add(worth.base[visited["base"]])
        self.repetition["rescored"].add(worth.rescored[visited["rescored"]])
        steps = visited["base"]
        self.duel.add(worth.accepted["base"][steps], worth.accepted["rescored"][steps], worth.base[steps], worth.rescored[steps])

    def to_json(self) -> dict[str, Any]:
        names = [name for name in DRAFTERS if name in self.tallies]
        efficiency = {name: self.tallies[name].block_efficiency for name in names}
        base, oracle = efficiency["base"], efficiency["oracle"]
        return {
            "task": self.task,
            "sequences": self.sequences,
            "tokens": self.tokens,
            "loop_share": self.loop_share,
            "block_efficiency": efficiency,
            "headroom_recovered": {name: headroom_recovered(efficiency[name], base, oracle) for name in names if name not in ("base", "oracle")},
            "verified_per_pass": {name: self.tallies[name].verified_per_pass for name in names},
            "acceptance_length": {name: self.tallies[name].acceptance_length for name in names},
            "repetition": {name: {"consecutive": value.consecutive, "max_run": value.max_run} for name, value in self.repetition.items()},
            "rescored_against_base": {name: getattr(self.duel, name) for name in ("wins", "ties", "losses", "repairs", "regressions")},
        }


@dataclass(slots=True)
class DumpResult:
    """All tasks of one dump, and the time that rescoring took."""

    kind: str
    tasks: list[TaskResult]
    lattices: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def ms_per_lattice(self) -> dict[str, float]:
        """Wall milliseconds per lattice of the p best drafts and of the largest tree."""
        return {name: 1000 * value / max(self.lattices, 1) for name, value in self.seconds.items()}


def rescore_dump(dump: Dump, rescorer: Rescorer, options: ReplayOptions | None = None, *, tasks: Sequence[str] | None = None,
                 advance: Callable[[int], None] = lambda rows: None, listeners: Iterable[Listener] = ()) -> DumpResult:
    """Replay (some tasks of) a dump with every drafter; one block of it is in memory at a time.

    advance: called with the number of rows done, for a progress bar. ValueError if a model's vocabulary is not that
    of the dump.
    """
    options = options or ReplayOptions()
    check_models(dump, rescorer)
    heads = Rescorer(threads=rescorer.threads)
    result = DumpResult(dump.header.kind, [])
    for info in dump.header.tasks:
        if tasks is not None and info.name not in tasks:
            continue
        task = TaskResult(info.name, loop_share=info.loop_share)
        result.tasks.append(task)
        for block in dump.blocks(info.name):
            worth = evaluate(block, heads, rescorer, options)
            visited = {name: visited_rows(accepted, block.offsets) for name, accepted in worth.accepted.items()}
            task.add(block, worth, visited)
            result.lattices += block.rows
            for name, value in worth.seconds.items():
                result.seconds[name] = result.seconds.get(name, 0.0) + value
            for listener in listeners:
                listener(block, worth, visited["parallel_rescored"])
            advance(block.rows)
    return result


def check_models(dump: Dump, rescorer: Rescorer) -> None:
    """ValueError unless every model has the dump's vocabulary and, where both name one, its tokenizer."""
    for model in rescorer.models:
        if model.vocab_size != dump.header.vocab_size:
            raise ValueError(
                f"the model has {model.vocab_size} tokens, the dump {dump.path} has {dump.header.vocab_size}: "
                "build the model with the tokenizer that the dump was made with"
            )
        if dump.header.tokenizer_sha256:
            model.require_tokenizer(dump.header.tokenizer_sha256)


def mean_over_tasks(tasks: Sequence[dict[str, Any]], measure: str) -> dict[str, float]:
    """The mean over tasks of every drafter's value; tasks in which it is undefined (None) are left out."""
    names = [name for name in DRAFTERS if any(name in task[measure] for task in tasks)]
    values = {name: [task[measure][name] for task in tasks if task[measure].get(name) is not None] for name in names}
    return {name: float(np.mean(value)) for name, value in values.items() if value}
