"""Drafters at equal budget: block efficiency and accepted tokens per verified token by the number of nodes.

    python tools/bench/equal_budget.py data/demo/greedy data/demo/sampled --settings data/demo/settings.json

The tasks of every dump are split: Medusa's static tree is counted on their first sequences, and all drafters are
measured on the rest. Prints Markdown: means over tasks; then, by task, the gain of all sources together over each part,
with p-values of a paired bootstrap.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from rescore.decode.draft.drafter import Drafter
from rescore.decode.draft.dynamic_tree import dynamic_trees
from rescore.decode.draft.lattice_tree_drafter import Grow, LatticeTreeDrafter
from rescore.decode.draft.prompt_lookup import PromptLookupDrafter
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.static_tree import StaticTree
from rescore.decode.draft.suffix_decoding import SuffixDrafter
from rescore.decode.draft.token_recycling import TokenRecyclingDrafter
from rescore.decode.replay import rows
from rescore.decode.replay.bootstrap import Resampled
from rescore.decode.replay.oracle import OracleReplay
from rescore.decode.replay.recorded import RecordedHeads
from rescore.decode.replay.replay import DrafterReplay, Replay
from rescore.decode.replay.run import DumpResult, mean_over_tasks, replay_dump
from rescore.decode.replay.standard import fitted
from rescore.decode.tuning.tuned_drafters import check_dump
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.split import Split, SplitPart

SIZES = (8, 16, 32, 64, 128)
COMPARED = (16, 32, 64)
TOGETHER = "heads, LM and text"
PARTS = ("dynamic tree (EAGLE-2), heads", "best tree, heads", "LM and text", "LM alone")


def drafters(dump: Dump, tuning: SplitPart, settings: Settings, alpha: float, threads: int) -> list[Replay]:
    """All drafters at every size; a budget of n is n // T paths of T tokens, at least one."""
    (model,) = settings.open_models()
    heads, rescorer = Rescorer(threads=threads), Rescorer(model, alpha=alpha, threads=threads)
    check_dump(settings, dump)
    rescorer = fitted(dump, rescorer)
    static = StaticTree.counted((block for task in dump.tasks for block in tuning.blocks(dump, task)), max(SIZES))

    def sizes(name: str) -> dict[str, int]:
        return {f"{name} {n}": n for n in SIZES}

    def calibrated(kind: str, name: str) -> DrafterReplay:
        return rows.trees(settings.calibrated(kind, threads=threads), sizes(name), heads=kind != "alone")

    def shaped(grow: Grow, name: str) -> DrafterReplay:
        def make(block: DumpBlock) -> LatticeTreeDrafter:
            return LatticeTreeDrafter(RecordedHeads(block), grow, nodes=max(SIZES))

        return DrafterReplay(budgets=sizes(name), make=make)

    def each(make: Callable[[int], Drafter], name: str) -> list[DrafterReplay]:
        """One drafter for every size, for drafters whose smaller drafts are no parts of the larger ones."""
        return [DrafterReplay(budgets={one: n}, make=lambda _, n=n: make(n)) for one, n in sizes(name).items()]

    paths = {n: max(1, n // (dump.header.heads - 1)) for n in SIZES}
    return [
        rows.paths(heads, {"base": 1}),
        rows.paths(heads, {f"paths, heads {n}": p for n, p in paths.items()}),
        rows.paths(rescorer, {f"paths, heads and LM {n}": p for n, p in paths.items()}),
        shaped(static.trees, "static tree (Medusa), heads"),
        shaped(dynamic_trees, "dynamic tree (EAGLE-2), heads"),
        rows.trees(heads, sizes("best tree, heads")),
        rows.trees(rescorer, sizes("best tree, heads and LM")),
        rows.trees(rescorer, sizes("best tree of pushed q, heads and LM"), pushed=True),
        calibrated("closed", "calibrated tree, heads and LM"),
        *each(PromptLookupDrafter, "prompt lookup"),
        *each(TokenRecyclingDrafter, "Token Recycling"),
        *each(SuffixDrafter, "suffix decoding"),
        rows.model_trees(model, sizes("LM alone"), threads=threads),
        calibrated("alone", "LM and text"),
        calibrated("open", TOGETHER),
        OracleReplay(widths={"oracle": None}),
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
    names = dict.fromkeys(name.rpartition(" ")[0] for name in result.names if name not in ("base", "oracle"))
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
