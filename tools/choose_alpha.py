"""The weight of the language model that serves the trees best on validation dumps.

    python tools/choose_alpha.py DUMP [DUMP ..] --lm LM

prints, for the paper's grid of weights and for each dump, the mean over tasks of the block efficiency of the best
rescored draft, of the p best drafts and of the trees; the last line names the weight with the best mean of the trees of
16 and 64 nodes. Use dumps of valid splits, never those that are reported.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.table import Table

from rescore.decode.cli.actions.output import console, progress_bar
from rescore.decode.draft import Rescorer
from rescore.decode.replays.standard import standard_drafters
from rescore.decode.run import mean_over_tasks, replay_dump
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0)
SHOWN = ("rescored", "parallel_rescored", "tree_16", "tree_64")
JUDGED = ("tree_16", "tree_64")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    lm = NGram.open(args.lm)
    dumps = [Dump.open(path) for path in args.dumps]
    table = Table("alpha", *(f"{dump.header.kind} {name}" for dump in dumps for name in SHOWN), box=None)
    judged = {}
    with progress_bar() as bar:
        for alpha in bar.track(GRID, description="alpha"):
            rescorer = Rescorer(lm, alpha=alpha, threads=args.threads)
            means = [mean_over_tasks([task.to_json() for task in replay_dump(dump, standard_drafters(dump, rescorer)).tasks], "block_efficiency") for dump in dumps]
            table.add_row(f"{alpha:g}", *(f"{mean[name]:.3f}" for mean in means for name in SHOWN))
            judged[alpha] = sum(mean[name] for mean in means for name in JUDGED)
    console().print(table)
    print(f"best for the trees: alpha {max(judged, key=judged.__getitem__):g}")


if __name__ == "__main__":
    main()
