"""`rescore run`: the block efficiency of every drafter on dumps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    r"""Replay dumps with every drafter and print the block efficiency of the main ones,
    generated tokens per target pass; with --all, of every drafter on every task.

    rows     the drafters of `rescore generate`, each with its number of nodes, as
             far as the dump has what they need: heads, an n-gram model (--lm).
             Published ones that need no heads are replayed where there are none
             base, parallel-base     the best path of the heads' lattice; the p best
             heads-tree N, tree N    its N most probable prefixes, without and with
                                     the n-gram model
             blend N                 under one q of all sources; blend-without-heads
                                     and blend-without-lm lack one: controls
             oracle                  the best that any choice of candidates reaches
             "tuned": with the weights of --settings; "by task": its weights for
             each task; "with memory": with --memory as a further source.
             On the dump that was tuned on, only the held-out part is replayed.
    columns  verified           draft tokens verified per target pass
             one per task       block efficiency
             mean               over the tasks
             ±                  half of its 95% interval (bootstrap over sequences)
             headroom           (B - B_base) / (B_oracle - B_base), mean over tasks,
                                of drafts of the heads' candidates: the oracle is
                                the best of these. Blends also draft other tokens
    below    loops              sequences with fewer than 8 distinct tokens in
                                their last 24
             repeats            share of neighbouring draft tokens that are equal
             max run            mean length of the longest run in a draft
             wins, ties, losses steps at which the rescored draft is accepted
                                further than the base draft, equally far, less far
             differences        of drafters at equal nodes, on the same sequences;
                                p-values are two-sided

    examples:
      rescore run data/demo/sampled --lm data/demo/demo.ngram
      rescore run data/demo/sampled --lm data/demo/demo.ngram --all
      rescore run data/demo/sampled --lm data/demo/demo.ngram -o passes.parquet
      rescore run data/demo/greedy data/demo/sampled --lm data/demo/demo.ngram \
          --json run.json
      rescore run DUMP --lm general.ngram=0.3 --lm domain.ngram=0.7 --alpha 0.5 \
          --paths 8 --drafts drafts.parquet
      rescore run DUMP --settings settings.json
      rescore run DUMP --lm LM --alpha 0.6,0.5,0.5,0.4,0.4,0.3,0.3,0.2 --json -
    """
    parser = verbs.add_parser("run", parents=[common], help="replay dumps with every drafter", doc=add_parser)
    arguments.add_dump(parser, several=True)
    arguments.add_rescoring(parser)
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="written by `rescore tune`: also replay its tuned drafters, with its models unless --lm is given",
    )
    parser.add_argument(
        "--memory",
        type=Path,
        metavar="FILE",
        help=".npy file of earlier texts (from generate --memory), a further source of the blend",
    )
    arguments.add_task(parser)
    parser.add_argument(
        "--part",
        choices=("tune", "heldout", "all"),
        help=(
            "sequences of each task to replay: the first ones, which settings are tuned on, the rest, or all (default: "
            "all; with --settings of this dump: heldout)"
        ),
    )
    parser.add_argument(
        "--tune-sequences",
        type=arguments.whole(0, 2**48),
        metavar="N",
        help="first sequences of each task that form the tuning part (default: 100, at most half)",
    )
    parser.add_argument("--seed", type=arguments.seed, default=0, help="seed of the bootstrap (default: 0)")
    parser.add_argument(
        "--drafts",
        type=arguments.Written(arguments.LINES),
        metavar="FILE",
        help="write the p best paths, their costs and accepted lengths, of every step (.parquet or .jsonl)",
    )
    parser.add_argument(
        "--all", action="store_true", help="print every drafter, task and difference, not the main drafters' means"
    )
    parser.add_argument(
        "-o",
        "--out",
        type=arguments.Written(arguments.LINES),
        metavar="FILE",
        help="write a line for each pass of every drafter, for DuckDB, Polars and the like (.parquet or .jsonl)",
    )
    arguments.add_json(parser)
    parser.set_defaults(does="run")
