"""`rescore tune`: fit the weights of drafters to a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Fit the weights of drafters on the first sequences of every task of a dump,
    report the gain on the rest, and write a settings file for --settings of `run`
    and `generate` (docs/use/tuning.md).

    tuned    alpha of the p best paths: one for all slots (grid 0.1 .. 10, then
             golden-section search), or one per slot and model with the heads'
             temperatures (fitted); the better of the two
             calibration of closed and open trees: temperature, alpha, prior and
             floor of each slot, and the shares of the running text (all fitted)
             for a dump without heads: the shares of the running text (fitted)
    rows     drafters of `rescore run` with default weights (the default alpha), and
             tuned: the p best paths, closed trees (tree), trees with all sources
             (blend), also for each task
    columns  tuning     mean over tasks on the tuning part; not a result
             then       block efficiency on the held-out part, mean and half of its
                        95% interval
             change     difference to the default (for "by task": to the calibration
                        on all tasks), with its interval and p-value

    examples:
      rescore tune data/demo/greedy --lm data/demo/demo.ngram -o settings.json
      rescore run data/demo/greedy --settings settings.json
      rescore tune DUMP --lm general.ngram --lm domain.ngram -o settings.json
      rescore tune HEADLESS_DUMP --lm general.ngram -o settings.json
      rescore tune DUMP --lm LM --per-task --tune-sequences 50 --json tuned.json
    """
    parser = verbs.add_parser(
        "tune",
        parents=[common],
        help="fit the weights of drafters on part of a dump, report on the rest",
        doc=add_parser,
    )
    arguments.add_dump(parser)
    parser.add_argument(
        "--lm",
        action="append",
        type=Path,
        default=[],
        metavar="LM",
        help=(
            "an .ngram file; repeatable, but then only the p best paths are tuned, with a weight for each model (for "
            "trees, merge them with `rescore lm merge`); a dump without heads takes at most one"
        ),
    )
    parser.add_argument("-o", "--out", type=arguments.Written(), metavar="FILE", help="settings file to write")
    parser.add_argument(
        "--tune-sequences",
        type=arguments.whole(1, 2**48),
        metavar="N",
        help="first sequences of each task that form the tuning part (default: 100, at most half)",
    )
    parser.add_argument("--per-task", action="store_true", help="also calibrate trees for each task")
    parser.add_argument(
        "--paths",
        type=arguments.whole(1, 1024),
        default=16,
        metavar="P",
        help="paths verified in parallel (default: 16)",
    )
    parser.add_argument(
        "--top-k", type=arguments.whole(1, 64), metavar="K", help="candidates per slot (default: all in the dump)"
    )
    parser.add_argument("--seed", type=arguments.seed, default=0, help="seed of the bootstrap (default: 0)")
    arguments.add_threads(parser)
    arguments.add_json(parser)
    parser.set_defaults(does="tune", task=None)
