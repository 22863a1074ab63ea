"""`rescore run`: what rescoring buys on dumps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments

DESCRIPTION = """\
Replay dumps with every drafter and print the block efficiency of each:
generated tokens per target pass.

rows     base               the first candidate of every head
         parallel base      the p best strings of the lattice, as a batch
         rescored           the best string with the LM
         parallel rescored  the p best strings with the LM
         tree of heads N    the N most probable prefixes without the LM
         tree N             the same with the LM
         LM alone N         such a tree of the (first) LM alone, without any
                            head: the control
         open tree N        trees of open lattices: LM and running text
                            propose tokens that no head lists (one LM)
         LM and text N      LM and running text without heads: the control
         oracle             the best that any choice of candidates can reach
without  prompt lookup 10   what followed the last 2 tokens, else the last one,
heads                       where they came first, as Hugging Face drafts
         Token Recycling N  trees of the model's last predictions after each
                            token; "static Token Recycling 80" in its published
                            shape
         suffix decoding N  continuations of the longest matches, scored by
                            their counts
         LM alone N         trees of the LM alone
         blend N            trees of the LM, the running text and what the model
                            predicted along it, under one q; "blend without
                            LM N" and "blend without soft counts N" (of those
                            predictions) lack a source
with     parallel tuned     the p best strings with tuned weights
settings calibrated tree N  trees under the calibrated q; open trees have tuned
                            weights then
         tuned blend N      without heads: tuned weights, and the same without
                            a source
         Of the dump that was tuned on, the held-out part alone is replayed.
columns  verified           draft tokens that one target pass verifies
         one column a task  block efficiency
         mean               over the tasks
         ±                  half of its 95% interval (bootstrap over sequences)
         headroom           (B - B_base) / (B_oracle - B_base), mean of tasks
below    loops              sequences with fewer than 8 distinct tokens in
                            their last 24
         repeats            neighbouring draft tokens that are equal
         max run            mean length of the longest run in a draft
         wins, ties, losses steps at which the rescored draft is accepted
                            further than the base draft, as far, less far
         differences        what the LM adds to the heads, and the heads to the
                            LM, on the same sequences; p: two-sided
"""

EXAMPLES = """\
examples:
  rescore run data/demo/sampled --lm data/demo/demo.ngram
  rescore run data/demo/greedy data/demo/sampled --lm data/demo/demo.ngram \\
      --json run.json
  rescore run DUMP --lm general.ngram=0.3 --lm domain.ngram=0.7 --alpha 0.5 \\
      --paths 8 --drafts drafts.parquet
  rescore run DUMP --settings settings.json
  rescore run DUMP --lm LM --alpha 0.6,0.5,0.5,0.4,0.4,0.3,0.3,0.2 --json -
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "run", parents=[common], help="rescore dumps and print what it buys", description=DESCRIPTION, epilog=EXAMPLES
    )
    arguments.add_dump(parser, several=True)
    arguments.add_rescoring(parser)
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="of rescore tune: what it found is replayed as well, with its models unless --lm names others",
    )
    parser.add_argument(
        "--memory",
        type=Path,
        metavar="FILE",
        help="for models without heads: an .npy of earlier texts (generate --memory), with which the blend is replayed",
    )
    arguments.add_task(parser)
    parser.add_argument(
        "--part",
        choices=("tune", "heldout", "all"),
        help=(
            "of each task: the first sequences, which settings are tuned on, or those after them (default: all; "
            "with --settings of this dump: heldout)"
        ),
    )
    parser.add_argument(
        "--tune-sequences",
        type=arguments.whole(0, 2**48),
        metavar="N",
        help="how many sequences of each task are the tuning part (default: 100, at most half of them)",
    )
    parser.add_argument(
        "--seed", type=arguments.seed, default=0, help="of the resamples that intervals are made of (default: 0)"
    )
    parser.add_argument(
        "--drafts",
        type=Path,
        metavar="FILE",
        help="write every step's drafts, costs and accepted lengths (.parquet or .jsonl)",
    )
    arguments.add_json(parser)
    parser.set_defaults(does="run")
