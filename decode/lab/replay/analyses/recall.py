"""Recall@k of every head, and path-conditional recall after rescoring (docs/reference/measures.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.rescorer import Rescorer, alpha_of_slots
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import ranks
from rescore.lattice.split import SplitPart, chosen_blocks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recall:
    """How often the true token is among the first k candidates.

    hits   int64 [R, K], entry k - 1 counts the first k candidates; non-decreasing in k
    total  int64 [R], positions counted
    first  the head of row 0
    """

    hits: NDArray[np.int64]
    total: NDArray[np.int64]
    first: int

    def to_json(self) -> dict[str, list[float] | None]:
        """Returns {head: recall@1..K}, None for heads without positions."""
        rows = zip(self.hits.tolist(), self.total.tolist())
        return {
            str(head): [hit / total for hit in hits] if total else None
            for head, (hits, total) in enumerate(rows, self.first)
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskRecall:
    """Recall on one task.

    heads     heads 1..h, over all rows
    on_path   heads 2..h, over all lattices and slots t where the text has a token and its tokens in the earlier slots
              are all candidates; the true token is ranked by head cost
    rescored  the same, ranked by head cost + sum_j alpha_j,t * LM cost in the context of the text

    The draft of first candidates is accepted up to slot t exactly if the true tokens rank first in slots 1..t.
    """

    task: str
    heads: Recall
    on_path: Recall
    rescored: Recall

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "heads": self.heads.to_json(),
            "on_path": self.on_path.to_json(),
            "rescored": self.rescored.to_json(),
        }


def recall(
    dump: Dump,
    rescorer: Rescorer,
    *,
    top_k: int | None = None,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> list[TaskRecall]:
    """Returns the recall of each task. Without models `rescored` equals `on_path`."""
    counts = RecallCounts(rescorer, top_k)
    for block in chosen_blocks(dump, tasks, split, advance):
        counts.add(block)
    return counts.result()


class RecallCounts:
    """Collects recall block by block; `add` also listens to a replay."""

    def __init__(self, rescorer: Rescorer, top_k: int | None = None):
        self._rescorer, self._top_k = rescorer, top_k
        self._found: dict[str, list[NDArray[np.int64]]] = {}

    def add(self, block: DumpBlock, lines: object = None) -> None:
        counts, before = count_block(block, self._rescorer, self._top_k), self._found.get(block.task)
        self._found[block.task] = [a + b for a, b in zip(before, counts)] if before else counts

    def result(self) -> list[TaskRecall]:
        """The recall of each task."""
        return [
            TaskRecall(
                task=task,
                heads=Recall(hits=hits, total=total, first=1),
                on_path=Recall(hits=path_hits, total=path_total, first=2),
                rescored=Recall(hits=rescored_hits, total=path_total, first=2),
            )
            for task, (hits, total, path_hits, rescored_hits, path_total) in self._found.items()
        ]


def count_block(block: DumpBlock, rescorer: Rescorer, top_k: int | None) -> list[NDArray[np.int64]]:
    """Returns one block's hits [h, K] and totals [h]; on-path hits by head cost and rescored, [T, K] each; and their
    totals [T].
    """
    sausages, truth = block.sausages(k=top_k), block.truth()
    width = sausages.width
    rank = ranks(sausages, truth)
    root = block.topk_ids[:, 0, :top_k] == block.tokens[:, None]
    first = np.where(root.any(-1), root.argmax(-1), -1)[:, None]
    counted = (truth >= 0) & np.logical_and.accumulate(
        np.column_stack([np.ones(block.rows, bool), rank[:, :-1] >= 0]), axis=1
    )
    on_path = np.where(counted, rank, -1)
    return [
        hits(np.column_stack([first, rank]), width),
        np.append(block.rows, (truth >= 0).sum(0)).astype(np.int64),
        hits(on_path, width),
        hits(rescored_ranks(block, rescorer, on_path, sausages.ids, sausages.cost), width),
        counted.sum(0).astype(np.int64),
    ]


def hits(rank: NDArray, width: int) -> NDArray[np.int64]:
    """Counts ranks [n, R] (-1: absent) below 1..K, int64 [R, K]."""
    return np.array([np.bincount(column[column >= 0], minlength=width).cumsum() for column in rank.T], np.int64)


def rescored_ranks(
    block: DumpBlock, rescorer: Rescorer, rank: NDArray, ids: NDArray[np.int32], cost: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Returns the ranks [n, T] of the true tokens after adding LM costs; rank: their ranks by head cost (-1: not
    counted).

    Ties go to the better rank by head cost, as in a search.
    """
    row, slot = np.nonzero(rank >= 0)
    total = cost[row, slot].astype(np.float64)  # [m, K]
    alpha = alpha_of_slots(rescorer.alpha, block.slots)
    # The context of slot t of row i ends with the token of row i + t, and so does the history of that row.
    states = rescorer.states(block.histories(slice(None), rescorer.context))[:, row + slot]
    width = total.shape[1]
    tokens, offsets = ids[row, slot].ravel(), np.arange(total.size + 1, dtype=np.int64)
    for j, model in enumerate(rescorer.models):
        costs, _ = model.core.score(tokens, offsets, np.repeat(states[j], width))
        total += alpha[j, slot][:, None] * costs.reshape(total.shape)
    mine = rank[row, slot]
    true = np.take_along_axis(total, mine[:, None], axis=1)
    better = (total < true) | ((total == true) & (np.arange(width) < mine[:, None]))
    out = np.full(rank.shape, -1, np.int64)
    out[row, slot] = better.sum(axis=1)
    return out
