"""Oracle block efficiency by number of candidates and of heads (Kim et al., figure 6, tables 4, 9 and 10)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rescore.decode.replay.analyses.efficiency_table import EfficiencyTable
from rescore.decode.replay.replay import OracleReplay
from rescore.decode.replay.run import replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import SplitPart


def oracle_efficiency(
    dump: Dump,
    *,
    widths: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> EfficiencyTable:
    """Returns oracle block efficiency for every k and number of heads; k = 1 is the base draft. Rows give k and heads.

    widths: by default 1, 2, 4, .. and K. heads: by default 3, 6, 9, .. and h. The lattice of h' heads is the first
    h' - 1 slots. ValueError unless 1 <= k <= K and 2 <= heads <= h.
    """
    header, slots = dump.header, dump.slots
    if not slots:
        raise ValueError(f"{dump.path}: expected a dump of a model with heads, got one without, which has no lattices")
    widths, heads = widths or powers_of_two(header.top_k), heads or multiples(3, header.heads)
    if bad := [k for k in widths if not 1 <= k <= header.top_k]:
        raise ValueError(f"oracle: {dump.path}: expected k in 1..{header.top_k}, got {bad[0]}")
    if bad := [n for n in heads if not 2 <= n <= slots + 1]:
        raise ValueError(f"oracle: {dump.path}: expected heads in 2..{header.heads}, got {bad[0]}")
    rows = {f"oracle k={k} heads={n}": {"k": k, "heads": n} for n in heads for k in widths}
    drafters = [OracleReplay(widths={f"oracle k={k} heads={n}": k for k in widths}, slots=n - 1) for n in heads]
    result = replay_dump(dump, drafters, tasks=tasks, split=split, advance=advance)
    return EfficiencyTable(cites="figure 6, tables 4, 9 and 10", rows=rows, result=result)


def powers_of_two(most: int) -> list[int]:
    """Returns 1, 2, 4, .. and `most`."""
    return [*(1 << i for i in range(most.bit_length()) if 1 << i < most), most]


def multiples(step: int, most: int) -> list[int]:
    """Returns step, 2 step, .. and `most`."""
    return [*range(step, most, step), most]
