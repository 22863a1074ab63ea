"""Drafters at equal budget: block efficiency and accepted tokens per verified token by the number of nodes.

    python tools/bench/equal_budget.py data/demo/greedy data/demo/sampled --settings data/demo/settings.json

The tasks of every dump are split: Medusa's static tree is counted on their first sequences, and all drafters are
measured on the rest. Prints Markdown: means over tasks; then, by task, the gain of all sources together over each part,
with p-values of a paired bootstrap.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rescore.decode.draft.names import BLEND, EAGLE_TREE, HEADS_TREE, LM_ALONE, TUNED, WITHOUT_HEADS, split
from rescore.decode.draft.registry import SPECS
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.replay import rows
from rescore.decode.replay.figures import Resampled
from rescore.decode.replay.replay import Replay
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.replay.run import DumpResult, mean_over_tasks, replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split, SplitPart

SIZES = (8, 16, 32, 64, 128)
COMPARED = (16, 32, 64)
TOGETHER = BLEND + TUNED
PARTS = (EAGLE_TREE, HEADS_TREE, WITHOUT_HEADS + TUNED, LM_ALONE)


def drafters(dump: Dump, tuning: SplitPart, settings: Settings, alpha: float, threads: int) -> list[Replay]:
    """All drafters at every size; a budget of n is n // T paths of T tokens, at least one."""
    (model,) = settings.open_models()
    rescorer = Rescorer(model, alpha=alpha, threads=threads)
    sources = RecordedSources(dump, rescorer, tuned=[model], counts=tuning)
    only = [name for name in SPECS if not name.startswith("parallel")]
    paths = {n: max(1, n // dump.slots) for n in SIZES}
    return [
        rows.paths(Rescorer(threads=threads), {f"paths, heads {n}": p for n, p in paths.items()}),
        rows.paths(rescorer, {f"paths, heads and LM {n}": p for n, p in paths.items()}),
        *rows_of(sources, Budgets(nodes=SIZES), only=only, settings=settings),
    ]


def table(result: DumpResult) -> list[str]:
    """One line per drafter: block efficiency (accepted per verified token) at every size."""
    tasks = [task.to_json() for task in result.tasks]
    efficiency = mean_over_tasks(tasks, "block_efficiency")
    yields = mean_over_tasks(tasks, "accepted_per_verified")
    lines = [
        f"base {efficiency['base']:.3f}, oracle {efficiency['oracle']:.3f}",
        "",
        f"| drafter | {' | '.join(map(str, SIZES))} |",
        "|---" * (1 + len(SIZES)) + "|",
    ]
    names = dict.fromkeys(stem for stem, n in map(split, result.names) if n is not None)
    for name in names:
        cells = [f"{efficiency[key]:.3f} ({yields[key]:.3f})" for key in (f"{name} {n}" for n in SIZES)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def differences(result: DumpResult) -> list[str]:
    """One line per part and size: the gain of all sources together, by task."""
    resampled = Resampled.of(result)
    lines = [
        f"| {TOGETHER}, minus | nodes | {' | '.join(resampled.tasks)} |",
        "|---" * (2 + len(resampled.tasks)) + "|",
    ]
    for part in PARTS:
        for n in COMPARED:
            cells = []
            for task in resampled.tasks:
                found = resampled.difference(f"{TOGETHER} {n}", f"{part} {n}", task)
                cells.append(f"{found.interval.value:+.2f} (p {found.p_value:.3f})")
            lines.append(f"| {part} | {n} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", nargs="+", type=Path, metavar="DUMP")
    parser.add_argument("--settings", type=Path, required=True)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    settings = Settings.load(args.settings)
    for path in args.dumps:
        dump = Dump.open(path)
        split = Split.of_dump(dump)
        result = replay_dump(
            dump, drafters(dump, split.part("tune"), settings, args.alpha, args.threads), split=split.part("heldout")
        )
        lines = [f"{dump.header.kind}, alpha {args.alpha:g}", "", *table(result), "", *differences(result), ""]
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
