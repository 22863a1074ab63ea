"""Replaying a dump: how many target passes each drafter would have needed, exactly.

The continuation does not depend on the drafts, so what every row's draft is worth can be found first, for all rows
at once, and the passes counted afterwards by jumping from row to row (DESIGN section 6): the prompt's pass yields one
token; a pass that verifies the draft of row i accepts n tokens, yields n + 1, and row i + n + 1 goes on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft import Drafts, Rescorer, propose_trees
from rescore.lattice.block import Block
from rescore.lattice.oracle import oracle_lengths
from rescore.lattice.tree import accepted_by_size

TREE_SIZES = (16, 32, 64, 128)
MODEL_SIZES = (16, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """paths p, candidates K (None: all of the dump), backoff semantics of the p best drafts."""

    paths: int = 16
    top_k: int | None = None
    semantics: str = "failure"

    def __post_init__(self) -> None:
        if not 1 <= self.paths <= 1024:
            raise ValueError(f"paths: expected 1..1024, got {self.paths}")
        if self.top_k is not None and not 1 <= self.top_k <= 64:
            raise ValueError(f"top_k: expected 1..64, got {self.top_k}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Worth:
    """What the drafts of every row of a block are worth.

    accepted  {drafter: int32 [n]}, tokens of the truth that the row's draft gets accepted
    verified  {drafter: int32 [n]}, draft tokens that the pass verifies
    base, rescored  the best draft of each row, int32 [n, T], without and with the models
    drafts    the p best rescored drafts of each row, [n, p, T]
    seconds   {"paths" | "tree": wall time of rescoring all rows}
    """

    accepted: dict[str, NDArray[np.int32]]
    verified: dict[str, NDArray[np.int32]]
    base: NDArray[np.int32]
    rescored: NDArray[np.int32]
    drafts: Drafts
    seconds: dict[str, float] = field(default_factory=dict)


def accepted_of_drafts(drafts: NDArray[np.int32], truth: NDArray[np.int32]) -> NDArray[np.int32]:
    """Longest prefix of the truth [B, T] among the drafts [B, p, T] of a lattice: int32 [B]. Padding is -1 in both."""
    same = (drafts == truth[:, None, :]) & (truth[:, None, :] >= 0)
    return np.minimum.accumulate(same, axis=-1).sum(axis=-1).max(axis=-1).astype(np.int32)


def evaluate(block: Block, heads: Rescorer, rescorer: Rescorer, options: ReplayOptions) -> Worth:
    """The worth of every drafter's draft in every row. `heads` has no model, `rescorer` the models."""
    sausages, truth = block.sausages(k=options.top_k), block.truth()
    histories = block.histories(slice(None), rescorer.context)
    accepted: dict[str, NDArray[np.int32]] = {}
    verified: dict[str, NDArray[np.int32]] = {}
    rows, slots = truth.shape

    def note_drafts(name: str, drafts: Drafts, p: int) -> None:
        accepted[name] = accepted_of_drafts(drafts.tokens[:, :p], truth)
        verified[name] = np.minimum(drafts.count, p) * np.int32(slots)

    def note_trees(name: str, trees, sizes: Sequence[int]) -> None:
        by_size = accepted_by_size(trees.tokens, trees.parents, truth)
        for n in sizes:
            accepted[f"{name}_{n}"] = by_size[:, min(n, by_size.shape[1]) - 1]
            verified[f"{name}_{n}"] = np.minimum(trees.count, n)

    base = heads.paths(sausages, histories, options.paths)
    note_drafts("base", base, 1)
    note_drafts("parallel_base", base, options.paths)
    began = time.perf_counter()
    drafts = rescorer.paths(sausages, histories, options.paths, semantics=options.semantics)
    seconds = {"paths": time.perf_counter() - began}
    note_drafts("rescored", drafts, 1)
    note_drafts("parallel_rescored", drafts, options.paths)
    note_trees("tree_base", heads.trees(sausages, histories, max(TREE_SIZES)), TREE_SIZES)
    began = time.perf_counter()
    trees = rescorer.trees(sausages, histories, max(TREE_SIZES))
    seconds["tree"] = time.perf_counter() - began
    note_trees("tree", trees, TREE_SIZES)
    if rescorer.models:
        control = propose_trees(rescorer.models[0], histories, slots=slots, n=max(MODEL_SIZES), threads=rescorer.threads)
        note_trees("lm_alone", control, MODEL_SIZES)
    accepted["oracle"] = oracle_lengths(sausages, truth)
    verified["oracle"] = np.full(rows, slots, np.int32)
    return Worth(
        accepted=accepted, verified=verified, base=base.tokens[:, 0], rescored=drafts.tokens[:, 0], drafts=drafts, seconds=seconds
    )


def visited_rows(accepted: NDArray[np.int32], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows whose drafts are verified in a replay, ascending: int64 [steps].

    accepted [n]; offsets [S + 1]. A sequence of L tokens takes 1 + its visited rows passes; the last token leaves
    nothing to draft, so its row is never visited.
    """
    rows = offsets[:-1].copy()
    ends = offsets[1:] - 1
    out = []
    while (open_ := rows < ends).any():
        rows, ends = rows[open_], ends[open_]
        out.append(rows)
        rows = rows + accepted[rows] + 1
    return np.sort(np.concatenate(out)) if out else np.zeros(0, np.int64)
