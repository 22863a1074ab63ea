"""Why drafts are rejected, and how many tokens each cause loses.

At a step of a replay let T' <= T be the number of slots for which the text has a token, and a the accepted length. If
a < T', slot t = a + 1 is the first rejected one. Its cause is the first of these that holds:

    absent  the true token is not among the candidates of slot t, so the oracle stops at a as well
    lm      the heads alone, with the same budget, are accepted at slot t: the models misrank the token
    budget  the same drafter with the larger budget is accepted at slot t: the token ranks just below this budget
    heads   otherwise: the token is a candidate, but heads and models together rank it too low

Each such step has one cause, so the shares of the four causes sum to 1. The lost tokens of a step, T' - a, are
attributed to the same cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.lab.replay.replay import OracleReplay, Replay
from rescore.decode.lab.replay.rows import tree_replay
from rescore.decode.lab.replay.run import replay_dump
from rescore.decode.lab.replay.table import Lines
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock

CAUSES = ("absent", "lm", "budget", "heads")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LostTokens:
    """Lost tokens of one task.

    steps     number of steps
    whole     steps that lose nothing
    by_cause  int64 [4], steps of each cause
    tokens    int64 [4], tokens lost to each cause
    """

    task: str
    steps: int
    whole: int
    by_cause: NDArray[np.int64]
    tokens: NDArray[np.int64]

    def to_json(self) -> dict[str, Any]:
        """Returns each cause's share of the steps that lose tokens and of the tokens lost; None if there are none."""
        out: dict[str, Any] = {
            "task": self.task,
            "steps": self.steps,
            "whole": self.whole,
            "lost_tokens": int(self.tokens.sum()),
        }
        for name, counts in (("steps_share", self.by_cause), ("tokens_share", self.tokens)):
            total = int(counts.sum())
            out[name] = {cause: int(count) / total for cause, count in zip(CAUSES, counts)} if total else None
        return out


def lost_tokens(
    dump: Dump,
    rescorer: Rescorer,
    *,
    budget: int = 16,
    larger: int = 128,
    top_k: int | None = None,
    **options: Any,
) -> list[LostTokens]:
    """Returns the lost tokens of each task for trees of `budget` nodes. options: of `replay_dump`.

    ValueError unless 1 <= budget < larger.
    """
    if not 1 <= budget < larger:
        raise ValueError(f"budget: expected at least 1 and less than the larger budget {larger}, got {budget}")
    rescorer, heads = rescorer.widened(dump.header.vocab_size), Rescorer(threads=rescorer.threads)
    drafters: list[Replay] = [
        tree_replay(rescorer, {"draft": budget, "larger": larger}, top_k=top_k, everywhere=True),
        tree_replay(heads, {"heads": budget}, top_k=top_k, everywhere=True),
        OracleReplay(widths={"oracle": top_k}, everywhere=True),
    ]
    counts = LostCounts(draft="draft", larger="larger", heads="heads", oracle="oracle")
    replay_dump(dump, drafters, listeners=[counts.add], **options)
    return counts.result()


class LostCounts:
    """Collects lost tokens during a replay; `add` is the listener.

    Takes the names of the drafters, replayed everywhere. heads: heads alone, with the draft's budget.
    """

    def __init__(self, *, draft: str, larger: str, heads: str, oracle: str):
        self._names = {"draft": draft, "larger": larger, "heads": heads, "oracle": oracle}
        self._found: dict[str, NDArray[np.int64]] = {}

    def add(self, block: DumpBlock, lines: Mapping[str, Lines]) -> None:
        draft = lines[self._names["draft"]]
        possible = (block.truth(draft.rows(block)[draft.made]) >= 0).sum(axis=1)
        parts = {part: lines[name] for part, name in self._names.items()}
        accepted = {part: own.accepted[own.position >= 0][draft.made] for part, own in parts.items()}
        self._found[block.task] = self._found.get(block.task, 0) + count_causes(possible, **accepted)

    def result(self) -> list[LostTokens]:
        """Returns the lost tokens of each task."""
        return [
            LostTokens(
                task=task,
                steps=int(counts[0].sum()),
                whole=int(counts[0, -1]),
                by_cause=counts[0, :-1],
                tokens=counts[1, :-1],
            )
            for task, counts in self._found.items()
        ]


def count_causes(
    possible: NDArray, *, draft: NDArray, larger: NDArray, heads: NDArray, oracle: NDArray
) -> NDArray[np.int64]:
    """Returns the steps of each cause and, last, of none, and the tokens that they lose, int64 [2, 5]; from T' and
    accepted lengths, [n] each.
    """
    conditions = [draft == possible, oracle == draft, heads > draft, larger > draft]
    cause = np.select(conditions, [len(CAUSES), 0, 1, 2], default=3)
    steps = np.bincount(cause, minlength=len(CAUSES) + 1)
    tokens = np.bincount(cause, weights=possible - draft, minlength=len(CAUSES) + 1)
    return np.array([steps, tokens.astype(np.int64)])
