"""Parallel drafts: the p best paths verified together, with and without models (Kim et al., figure 7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay import rows as replays
from rescore.decode.replay.analyses.efficiency_table import EfficiencyTable
from rescore.decode.replay.run import replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import SplitPart

SIZES = (1, 2, 4, 8, 16, 32)


def parallel_drafts(
    dump: Dump,
    rescorer: Rescorer,
    *,
    sizes: Sequence[int] = SIZES,
    top_k: int | None = None,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> EfficiencyTable:
    """Returns block efficiency for every p, of the heads alone and of the rescored lattice.

    Rows give p and whether models are used.
    """
    rows: dict[str, dict[str, Any]] = {}
    drafters = []
    for title, one in (("base", Rescorer(threads=rescorer.threads)), ("rescored", rescorer)):
        budgets = {f"{title} p={p}": p for p in sizes}
        rows |= {name: {"p": p, "rescored": title == "rescored"} for name, p in budgets.items()}
        drafters.append(replays.paths(one, budgets, top_k=top_k))
    result = replay_dump(dump, drafters, tasks=tasks, split=split, advance=advance)
    return EfficiencyTable(cites="figure 7", rows=rows, result=result)
