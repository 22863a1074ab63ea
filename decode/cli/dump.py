"""`rescore dump`: dumps themselves."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, model_arguments

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


MAKE = """\
Write down what every head of a model predicts along continuations of prompts.
The continuations do not depend on drafts, so the dump tells exactly what any
drafter is worth on this model (docs/dump-format.md).

prompts  JSON lines with prompt (or text), and maybe task and reference: token
         ids, or text for the tokenizer
kinds    forced   the references are read, one pass a text
         greedy   the model writes its most probable tokens
         sampled  it draws them, each with its position's own random number
"""

MAKE_EXAMPLES = """\
examples:
  rescore dump make --model data/demo/model.safetensors --kind sampled \\
      --prompts prompts.jsonl -o dump.sampled
  rescore dump make --model DIR --heads MEDUSA --kind forced --top-k 16 \\
      --prompts prompts.jsonl --device cuda --dtype bfloat16 -o dump.forced
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    dump = verbs.add_parser("dump", help="make dumps and look at them", description="Make dumps and look at them.")
    actions = dump.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_info(actions, common)
    _add_make(actions, common)


def _add_info(actions: Any, common: argparse.ArgumentParser) -> None:
    info = actions.add_parser("info", parents=[common], help="what a dump holds", description=DESCRIPTION, epilog=EXAMPLES)
    arguments.add_dump(info)
    info.add_argument("--verify", action="store_true", help="read everything: checksums of all shards, every value")
    arguments.add_json(info)
    info.set_defaults(does="dump_info")


def _add_make(actions: Any, common: argparse.ArgumentParser) -> None:
    make = actions.add_parser("make", parents=[common], help="what a model's heads predict", description=MAKE, epilog=MAKE_EXAMPLES)
    model_arguments.add_model(make)
    make.add_argument("--prompts", type=Path, required=True, metavar="FILE")
    make.add_argument("--kind", choices=("forced", "greedy", "sampled"), required=True)
    make.add_argument("--name", help="of the model in dump.json (default: that of its file)")
    make.add_argument("--top-k", type=arguments.whole(1, 64), default=10, metavar="K", help="candidates per head and position (default: 10)")
    make.add_argument("--max-tokens", type=arguments.whole(1, 2**20), default=64, metavar="N", help="tokens of a continuation, at most (default: 64)")
    make.add_argument("--temperature", type=arguments.real(0, above=True), metavar="T", help="of sampled text (default: 0.7)")
    make.add_argument("--top-p", type=arguments.real(0, 1, above=True), metavar="P", help="of sampled text (default: 1.0)")
    make.add_argument("--seed", type=arguments.seed, metavar="N", help="of sampled text (default: 1)")
    make.add_argument("--limit", type=arguments.whole(1, 2**40), metavar="N", help="prompts per task (default: all)")
    make.add_argument("--rows", type=arguments.whole(1, 2**16), default=50, metavar="N", help="texts written at once (default: 50)")
    make.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    arguments.add_json(make)
    make.set_defaults(does="dump_make")
