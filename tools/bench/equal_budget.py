"""Drafters at equal budget: block efficiency and accepted tokens per verified token by the number of nodes.

    python tools/bench/equal_budget.py data/demo/greedy data/demo/sampled --settings data/demo/settings.json

The tasks of every dump are split: Medusa's static tree is counted on their first sequences, and all drafters are
measured on the rest. Prints Markdown: means over tasks; then, by task, the gain of all sources together over each part,
with p-values of a paired bootstrap.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rescore.decode.replay.bootstrap import Resampled
from rescore.decode.replay.drafters.baseline_trees import DynamicTreeReplay, StaticTreeReplay
from rescore.decode.replay.drafters.calibrated import CalibratedReplay
from rescore.decode.replay.drafters.model_trees import ModelReplay
from rescore.decode.replay.drafters.normalised_trees import NormalisedTreeReplay
from rescore.decode.replay.drafters.paths import PathReplay
from rescore.decode.replay.drafters.prior_art import PromptLookupReplay, SuffixReplay, TokenRecyclingReplay
from rescore.decode.replay.drafters.trees import TreeReplay
from rescore.decode.replay.oracle import OracleReplay
from rescore.decode.replay.run import DumpResult, mean_over_tasks, replay_dump
from rescore.decode.replay.split import Split, SplitPart
from rescore.decode.replay.standard import fitted
from rescore.decode.replay.worth import ReplayDrafter
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.rescoring.static_tree import StaticTree
from rescore.decode.tuning.settings import Settings
from rescore.decode.tuning.tuned_drafters import check_dump
from rescore.lattice.dump import Dump

SIZES = (8, 16, 32, 64, 128)


COMPARED = (16, 32, 64)
TOGETHER = "heads, LM and text"
PARTS = ("dynamic tree (EAGLE-2), heads", "best tree, heads", "LM and text", "LM alone")


def drafters(dump: Dump, tuning: SplitPart, settings: Settings, alpha: float, threads: int) -> list[ReplayDrafter]:
    """All drafters at every size; a budget of n is n // T paths of T tokens, at least one."""
    (model,) = settings.open_models()
    heads, rescorer = Rescorer(threads=threads), Rescorer(model, alpha=alpha, threads=threads)
    check_dump(settings, dump)
    rescorer = fitted(dump, rescorer)
    static = StaticTree.counted((block for task in dump.tasks for block in tuning.blocks(dump, task)), max(SIZES))

    def sizes(name: str) -> dict[str, int]:
        return {f"{name} {n}": n for n in SIZES}

    def calibrated(kind: str, name: str) -> CalibratedReplay:
        one = settings.calibrated(kind, threads=threads).calibrated
        return CalibratedReplay(rescorer=one, budgets=sizes(name), top_k=1 if kind == "alone" else None)

    paths = {n: max(1, n // (dump.header.heads - 1)) for n in SIZES}
    return [
        PathReplay(rescorer=heads, budgets={"base": 1}),
        PathReplay(rescorer=heads, budgets={f"paths, heads {n}": p for n, p in paths.items()}),
        PathReplay(rescorer=rescorer, budgets={f"paths, heads and LM {n}": p for n, p in paths.items()}),
        StaticTreeReplay(tree=static, budgets=sizes("static tree (Medusa), heads")),
        DynamicTreeReplay(budgets=sizes("dynamic tree (EAGLE-2), heads")),
        TreeReplay(rescorer=heads, budgets=sizes("best tree, heads")),
        TreeReplay(rescorer=rescorer, budgets=sizes("best tree, heads and LM")),
        NormalisedTreeReplay(rescorer=rescorer, budgets=sizes("best tree of pushed q, heads and LM")),
        calibrated("closed", "calibrated tree, heads and LM"),
        PromptLookupReplay(budgets=sizes("prompt lookup")),
        TokenRecyclingReplay(budgets=sizes("Token Recycling")),
        SuffixReplay(budgets=sizes("suffix decoding")),
        ModelReplay(model=model, budgets=sizes("LM alone"), threads=threads),
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
