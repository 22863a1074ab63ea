"""`rescore dump`: dumps themselves."""

from __future__ import annotations

import argparse
from typing import Any

from rescore.decode.cli import arguments

DESCRIPTION = """\
Model, tokenizer, kind and provenance of a dump, and of each task:

columns  sequences   continuations
         rows        tokens of the continuations, each with its predictions
         bytes       of the task's files
         loops       sequences that loop: fewer than 8 distinct tokens in
                     their last 24
"""

EXAMPLES = """\
examples:
  rescore dump info data/demo/sampled
  rescore dump info DUMP --verify --json -
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    dump = verbs.add_parser("dump", help="look at dumps", description="Look at dumps; tools/dump_logits.py makes them.")
    actions = dump.add_subparsers(dest="action", required=True, metavar="ACTION")
    info = actions.add_parser("info", parents=[common], help="what a dump holds", description=DESCRIPTION, epilog=EXAMPLES)
    arguments.add_dump(info)
    info.add_argument("--verify", action="store_true", help="read everything: checksums of all shards, every value")
    arguments.add_json(info)
    info.set_defaults(does="dump_info")
