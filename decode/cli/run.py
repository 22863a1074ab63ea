"""`rescore run`: the block efficiency of every drafter on dumps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments

DRAFTS = (".parquet", ".jsonl")  # formats of drafts

DESCRIPTION = """\
Replay dumps with every drafter and print the block efficiency of the main ones,
generated tokens per target pass; with --tables, of every drafter on every task.

rows     base               the first candidate of every head
         parallel base      the p best paths of the lattice, as a batch
         rescored           the best path with the LM
         parallel rescored  the p best paths with the LM
         tree of heads N    the N most probable prefixes without the LM
         tree N             the same with the LM
         LM alone N         the tree of the (first) LM without heads: a control
         open tree N        trees of open lattices: LM and running text also
                            propose tokens that no head lists (one LM)
         LM and text N      LM and running text without heads: a control
         oracle             the best that any choice of candidates can reach
without  prompt lookup 10   the continuation of the first earlier occurrence of
heads                       the last 2 tokens, else of the last one, as in
                            Hugging Face
         Token Recycling N  trees of the model's last predictions after each
                            token; "static Token Recycling 80" has the published
                            tree shape
         suffix decoding N  continuations of the longest matches, scored by
                            their counts
         LM alone N         trees of the LM alone
         blend N            trees under one q of the LM and the running text;
                            "blend without LM N": of the text alone
with     parallel tuned     the p best paths with tuned weights
settings calibrated tree N  trees under the calibrated q; open trees then have
                            tuned weights too
         tuned blend N      without heads: tuned weights, also with a source
                            left out
         On the dump that was tuned on, only the held-out part is replayed.
columns  verified           draft tokens verified per target pass
         one per task       block efficiency
         mean               over the tasks
         ±                  half of its 95% interval (bootstrap over sequences)
         headroom           (B - B_base) / (B_oracle - B_base), mean over tasks
below    loops              sequences with fewer than 8 distinct tokens in
                            their last 24
         repeats            share of neighbouring draft tokens that are equal
         max run            mean length of the longest run in a draft
         wins, ties, losses steps at which the rescored draft is accepted
                            further than the base draft, equally far, less far
         differences        gain of the LM over heads alone, and of the heads
                            over the LM alone, on the same sequences; p-values
                            are two-sided
"""

EXAMPLES = """\
examples:
  rescore run data/demo/sampled --lm data/demo/demo.ngram
  rescore run data/demo/sampled --lm data/demo/demo.ngram --tables -
  rescore run data/demo/greedy data/demo/sampled --lm data/demo/demo.ngram \\
      --json run.json
  rescore run DUMP --lm general.ngram=0.3 --lm domain.ngram=0.7 --alpha 0.5 \\
      --paths 8 --drafts drafts.parquet
  rescore run DUMP --settings settings.json
  rescore run DUMP --lm LM --alpha 0.6,0.5,0.5,0.4,0.4,0.3,0.3,0.2 --json -
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "run", parents=[common], help="replay dumps with every drafter", description=DESCRIPTION, epilog=EXAMPLES
    )
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
        help="without heads: .npy file of earlier texts (from generate --memory), a further source of the blend",
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
        type=arguments.Written(DRAFTS),
        metavar="FILE",
        help="write drafts, costs and accepted lengths of every step (.parquet or .jsonl)",
    )
    parser.add_argument(
        "--tables",
        type=arguments.Written(stream=True),
        metavar="FILE",
        help="write every drafter, task and difference as tables; - prints them (default: the main drafters' means)",
    )
    arguments.add_json(parser)
    parser.set_defaults(does="run")
