"""Drafters at equal budget: block efficiency and accepted tokens per verified token against the nodes of a tree.

    python tools/bench/equal_budget.py data/demo/greedy data/demo/sampled --lm data/demo/demo.ngram

Every dump's tasks are split: Medusa's static tree is counted on their first sequences, and all drafters are measured on
the rest. Prints Markdown: means over the tasks.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rescore.decode.replay.drafters.baseline_trees import DynamicTreeReplay, StaticTreeReplay
from rescore.decode.replay.drafters.model_trees import ModelReplay
from rescore.decode.replay.drafters.normalised_trees import NormalisedTreeReplay
from rescore.decode.replay.drafters.oracle_paths import OracleReplay
from rescore.decode.replay.drafters.paths import PathReplay
from rescore.decode.replay.drafters.standard import check_models
from rescore.decode.replay.drafters.trees import TreeReplay
from rescore.decode.replay.run import DumpResult, mean_over_tasks, replay_dump
from rescore.decode.replay.split import Split, SplitPart
from rescore.decode.replay.worth import ReplayDrafter
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.rescoring.static_tree import StaticTree
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

SIZES = (8, 16, 32, 64, 128)


def drafters(dump: Dump, tuning: SplitPart, model: NGram, alpha: float, threads: int) -> list[ReplayDrafter]:
    """Everyone at every size; a budget of n is n // T paths of T tokens, at least one."""
    heads, rescorer = Rescorer(threads=threads), Rescorer(model, alpha=alpha, threads=threads)
    check_models(dump, rescorer)
    static = StaticTree.counted((block for task in dump.tasks for block in tuning.blocks(dump, task)), max(SIZES))

    def sizes(name: str) -> dict[str, int]:
        return {f"{name} {n}": n for n in SIZES}

    paths = {n: max(1, n // (dump.header.heads - 1)) for n in SIZES}
    return [
        PathReplay(rescorer=heads, budgets={"base": 1}),
        PathReplay(rescorer=heads, budgets={f"paths, heads {n}": p for n, p in paths.items()}),
        PathReplay(rescorer=rescorer, budgets={f"paths, heads and LM {n}": p for n, p in paths.items()}),
        StaticTreeReplay(tree=static, budgets=sizes("static tree (Medusa), heads")),
        DynamicTreeReplay(budgets=sizes("dynamic tree (EAGLE-2), heads")),
        TreeReplay(rescorer=heads, budgets=sizes("best tree, heads")),
        ModelReplay(model=model, budgets=sizes("best tree, LM alone"), threads=threads),
        TreeReplay(rescorer=rescorer, budgets=sizes("best tree, heads and LM")),
        NormalisedTreeReplay(rescorer=rescorer, budgets=sizes("best tree of pushed q, heads and LM")),
        OracleReplay(widths={"oracle": None}),
    ]


def table(result: DumpResult) -> list[str]:
    """A line for each drafter: block efficiency (accepted per verified token) at every size."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", nargs="+", type=Path, metavar="DUMP")
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    model = NGram.open(args.lm)
    for path in args.dumps:
        dump = Dump.open(path)
        split = Split.of_dump(dump)
        result = replay_dump(
            dump, drafters(dump, split.part("tune"), model, args.alpha, args.threads), split=split.part("heldout")
        )
        print("\n".join([f"{dump.header.kind}, alpha {args.alpha:g}", "", *table(result), ""]), flush=True)


if __name__ == "__main__":
    main()
