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
  rescore dump info data/demo/greedy
  rescore dump info DUMP --verify --json -
"""


MAKE = """\
Write down what every head of a model predicts along continuations of prompts.
The continuations do not depend on drafts, so the dump tells exactly what any
drafter is worth on this model (docs/reference/dump-format.md).

prompts  JSON lines with prompt (or text), and maybe task and reference: token
         ids, or text for the tokenizer; or chats, messages of role and content,
         whose last answer is the reference; or Spec-Bench's files; also .gz
kinds    forced   the references are read, one pass a text
         greedy   the model writes its most probable tokens
         sampled  it draws them, each with its position's own random number
"""

MAKE_EXAMPLES = """\
examples:
  rescore dump make --model smollm2 --chat --heads data/demo/heads \\
      --prompts prompts.jsonl --kind greedy -o dump.greedy
  rescore dump make --model DIR --heads MEDUSA --kind forced \\
      --prompts prompts.jsonl --device cuda --dtype bfloat16 -o dump.forced
"""


REDUCE = """\
Make a dump of full-vocabulary logits of your own. Each file of logits is a
task; it is read in blocks, so it may exceed memory (docs/reference/dump-format.md).

LOGITS   .npy, .npz or .safetensors with the array logits [n, h, V], or only
         one: float32, float16 or bfloat16. Row i of a sequence was predicted
         after its prompt and its first i tokens; head 1 is the model's own
texts    tokens [n] and offsets [S + 1], prompt_tokens [m] and prompt_offsets
         [S + 1], for sampled text seeds [n]: integers, beside the logits in
         the same file or in another one, .npz or .safetensors (--tokens)
kinds    greedy   every token has the greatest logit of head 1
         sampled  each was drawn with its position's own random number
         forced   any text
"""

REDUCE_EXAMPLES = """\
examples:
  rescore dump reduce logits.safetensors --kind forced -o DUMP
  rescore dump reduce gsm8k.npy code.npy --tokens gsm8k.npz --tokens code.npz \\
      --kind greedy --tokenizer tokenizer.json --top-k 16 -o DUMP
  rescore run DUMP --lm LM
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    dump = verbs.add_parser("dump", help="make dumps and look at them", description="Make dumps and look at them.")
    actions = dump.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_info(actions, common)
    _add_make(actions, common)
    _add_reduce(actions, common)


def _add_info(actions: Any, common: argparse.ArgumentParser) -> None:
    info = actions.add_parser(
        "info", parents=[common], help="what a dump holds", description=DESCRIPTION, epilog=EXAMPLES
    )
    arguments.add_dump(info)
    info.add_argument("--verify", action="store_true", help="read everything: checksums of all shards, every value")
    arguments.add_json(info)
    info.set_defaults(does="dump_info")


def _add_make(actions: Any, common: argparse.ArgumentParser) -> None:
    make = actions.add_parser(
        "make", parents=[common], help="what a model's heads predict", description=MAKE, epilog=MAKE_EXAMPLES
    )
    model_arguments.add_model(make)
    make.add_argument("--prompts", type=Path, required=True, metavar="FILE")
    make.add_argument("--kind", choices=("forced", "greedy", "sampled"), required=True)
    make.add_argument("--name", help="of the model in dump.json (default: that of its file)")
    _add_top_k(make)
    make.add_argument(
        "--max-tokens",
        type=arguments.whole(1, 2**20),
        default=64,
        metavar="N",
        help="tokens of a continuation, at most (default: 64)",
    )
    make.add_argument(
        "--temperature", type=arguments.real(0, above=True), metavar="T", help="of sampled text (default: 0.7)"
    )
    make.add_argument(
        "--top-p", type=arguments.real(0, 1, above=True), metavar="P", help="of sampled text (default: 1.0)"
    )
    make.add_argument("--seed", type=arguments.seed, metavar="N", help="of sampled text (default: 1)")
    make.add_argument("--limit", type=arguments.whole(1, 2**40), metavar="N", help="prompts per task (default: all)")
    make.add_argument(
        "--rows", type=arguments.whole(1, 2**16), default=50, metavar="N", help="texts written at once (default: 50)"
    )
    _add_out(make)
    make.set_defaults(does="dump_make")


def _add_reduce(actions: Any, common: argparse.ArgumentParser) -> None:
    reduce = actions.add_parser(
        "reduce",
        parents=[common],
        help="full-vocabulary logits on file as a dump",
        description=REDUCE,
        epilog=REDUCE_EXAMPLES,
    )
    reduce.add_argument("logits", nargs="+", type=Path, metavar="LOGITS")
    reduce.add_argument(
        "--tokens",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="the texts of the logits, a file for each in their order (default: they stand beside the logits)",
    )
    reduce.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="NAME",
        help="of the logits, one for each in their order (default: their files' names)",
    )
    reduce.add_argument("--kind", choices=("forced", "greedy", "sampled"), required=True)
    reduce.add_argument("--name", help="of the model in dump.json (default: that of the first file)")
    _add_top_k(reduce)
    reduce.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help=f"{arguments.TOKENIZER}, the model's, by which language models are matched (default: unknown)",
    )
    reduce.add_argument(
        "--end-of-text",
        metavar="TOKEN",
        help="the token that ends texts (default: the tokenizer's one of the usual names)",
    )
    reduce.add_argument(
        "--temperature", type=arguments.real(0, above=True), metavar="T", help="at which sampled text was drawn"
    )
    reduce.add_argument(
        "--top-p", type=arguments.real(0, 1, above=True), metavar="P", help="of sampled text (default: 1.0)"
    )
    reduce.add_argument(
        "--seed", type=arguments.seed, metavar="N", help="that the seeds of sampled text were made from"
    )
    _add_out(reduce)
    reduce.set_defaults(does="dump_reduce")


def _add_top_k(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--top-k",
        type=arguments.whole(1, 64),
        default=arguments.DEFAULT_TOP_K,
        metavar="K",
        help=f"candidates per head and position (default: {arguments.DEFAULT_TOP_K})",
    )


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    arguments.add_json(parser)
