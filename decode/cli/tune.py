"""`rescore tune`: the weights that serve a model best."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments

DESCRIPTION = """\
Choose the weights of language models on the first sequences of every task of a
dump, tell what they bring on the rest, and write a settings file for --settings
of `run` and `generate` (docs/use/tuning.md).

tuned    alpha of the p best strings: one for all (the grid 0.1 .. 10 and a
         golden-section search), or one per slot and model with the heads'
         temperatures (fitted); the better of both
         the calibration of trees, closed and open: temperature, alpha, prior
         and floor of each slot (fitted), and how much the running text counts
         of a dump without heads: the strengths of the running text, and how much
         of it is what the model predicted (some 60 replays of the tuning part)
rows     rescored, parallel rescored, tree N   with the default alpha
         parallel tuned           the p best strings, tuned
         calibrated tree N        closed trees; open tree N: open ones
         .. by task N             calibrated for each task
         LM and text N            without any head
         blend N, tuned blend N   of a model without heads: default, tuned
columns  tuning     mean of tasks on what was tuned on: no result
         then       block efficiency on the held-out part, mean and half of its
                    95% interval; change: from the default (of
                    "by task": from the same of all tasks), with its interval and p-value
"""

EXAMPLES = """\
examples:
  rescore tune data/demo/greedy --lm data/demo/demo.ngram -o settings.json
  rescore run data/demo/greedy --settings settings.json
  rescore tune DUMP --lm general.ngram --lm domain.ngram -o settings.json
  rescore tune HEADLESS_DUMP --lm general.ngram -o settings.json
  rescore tune DUMP --lm LM --per-task --tune-sequences 50 --json tuned.json
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "tune",
        parents=[common],
        help="choose weights on one part of a dump, report on the rest",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    arguments.add_dump(parser)
    parser.add_argument(
        "--lm",
        action="append",
        type=Path,
        default=[],
        metavar="LM",
        help=(
            "an .ngram file; with several, the p best strings alone are tuned, with a weight of each (trees take one: "
            "`rescore lm merge`); of a dump without heads one or none"
        ),
    )
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="the settings file to write")
    parser.add_argument(
        "--tune-sequences",
        type=arguments.whole(1, 2**48),
        metavar="N",
        help="of each task, to tune on (default: 100, at most half of them)",
    )
    parser.add_argument("--per-task", action="store_true", help="calibrate trees for each task as well")
    parser.add_argument(
        "--paths",
        type=arguments.whole(1, 1024),
        metavar="P",
        help="drafts verified in parallel (default: 16)",
    )
    parser.add_argument(
        "--top-k", type=arguments.whole(1, 64), metavar="K", help="candidates per slot (default: all in the dump)"
    )
    parser.add_argument(
        "--seed", type=arguments.seed, default=0, help="of the resamples that intervals are made of (default: 0)"
    )
    arguments.add_threads(parser)
    arguments.add_json(parser)
    parser.set_defaults(does="tune", task=None)
