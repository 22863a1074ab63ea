"""`rescore dump`: make and inspect dumps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, model_arguments
from rescore.decode.draft import DEFAULT_TOP_K


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    dump = verbs.add_parser("dump", help="make and inspect dumps", description="Make and inspect dumps.")
    actions = dump.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_info(actions, common)
    _add_make(actions, common)
    _add_reduce(actions, common)


def _add_info(actions: Any, common: argparse.ArgumentParser) -> None:
    """Print the model, tokenizer, kind and provenance of a dump, and its tasks:

    columns  sequences   continuations
             rows        tokens of the continuations, each with its predictions
             bytes       size of the task's files
             loops       sequences with fewer than 8 distinct tokens in their last
                         24

    examples:
      rescore dump info data/demo/greedy
      rescore dump info DUMP --verify --json -
    """
    info = actions.add_parser("info", parents=[common], help="describe a dump", doc=_add_info)
    arguments.add_dump(info)
    info.add_argument("--verify", action="store_true", help="read every shard and check its checksum and values")
    arguments.add_json(info)
    info.set_defaults(does="dump_info")


def _add_make(actions: Any, common: argparse.ArgumentParser) -> None:
    r"""Record what every head of a model predicts along continuations of prompts. The
    continuations do not depend on drafts, so replaying the dump gives the exact
    block efficiency of any drafter (docs/reference/dump-format.md). Resumable: each
    batch of --rows texts is kept in DIR.work, and after an interruption the same
    command continues.

    prompts  JSON lines with prompt or text, optionally task and reference, as text
             or token ids; or chats: messages of role and content, whose last answer
             is the reference; or Spec-Bench's files; also .gz
    kinds    forced   the model reads the references, one pass per text
             greedy   the model's most probable tokens
             sampled  tokens sampled with one random number per position

    examples:
      rescore dump make --model smollm2 --chat --heads data/demo/heads \
          --prompts prompts.jsonl --kind greedy -o dump.greedy
      rescore dump make --model DIR --heads MEDUSA --kind forced \
          --prompts prompts.jsonl --device cuda --dtype bfloat16 -o dump.forced
    """
    make = actions.add_parser(
        "make",
        parents=[common],
        help="record the predictions of a model's heads",
        doc=_add_make,
    )
    model_arguments.add_model(make)
    make.add_argument("--prompts", type=Path, required=True, metavar="FILE", help="prompts, see above")
    make.add_argument(
        "--kind", choices=("forced", "greedy", "sampled"), required=True, help="kind of continuation, see above"
    )
    make.add_argument("--name", help="name of the model in dump.json (default: that of its file)")
    _add_top_k(make)
    make.add_argument(
        "--max-tokens",
        type=arguments.whole(1, 2**20),
        default=64,
        metavar="N",
        help="greatest length of a continuation (default: 64)",
    )
    make.add_argument(
        "--temperature",
        type=arguments.real(0, above=True),
        metavar="T",
        help="temperature of sampled text (default: 0.7)",
    )
    make.add_argument(
        "--top-p", type=arguments.real(0, 1, above=True), metavar="P", help="top-p of sampled text (default: 1.0)"
    )
    make.add_argument("--seed", type=arguments.seed, metavar="N", help="seed of sampled text (default: 1)")
    make.add_argument("--limit", type=arguments.whole(1, 2**40), metavar="N", help="prompts per task (default: all)")
    make.add_argument(
        "--rows",
        type=arguments.whole(1, 2**16),
        default=50,
        metavar="N",
        help="texts generated at once, a batch (default: 50)",
    )
    _add_out(make)
    make.set_defaults(does="dump_make")


def _add_reduce(actions: Any, common: argparse.ArgumentParser) -> None:
    r"""Make a dump from your own full-vocabulary logits. Each file of logits is a task.
    Files are read in blocks and may exceed memory (docs/reference/dump-format.md).

    LOGITS   .npy, .npz or .safetensors with the array logits [n, h, V], or with one
             array: float32, float16 or bfloat16. Row i of a sequence was predicted
             after its prompt and its first i tokens; head 1 is the model's own
    texts    integer arrays tokens [n] and offsets [S + 1], prompt_tokens [m] and
             prompt_offsets [S + 1], and seeds [n] of sampled text, in the file of
             the logits or in another .npz or .safetensors file (--tokens)
    kinds    greedy   every token has the largest logit of head 1
             sampled  each token was sampled with its position's own seed
             forced   any text

    examples:
      rescore dump reduce logits.safetensors --kind forced -o DUMP
      rescore dump reduce gsm8k.npy code.npy --tokens gsm8k.npz --tokens code.npz \
          --kind greedy --tokenizer tokenizer.json --top-k 16 -o DUMP
      rescore run DUMP --lm LM
    """
    reduce = actions.add_parser(
        "reduce",
        parents=[common],
        help="make a dump from full-vocabulary logits",
        doc=_add_reduce,
    )
    reduce.add_argument("logits", nargs="+", type=Path, metavar="LOGITS", help="files of logits, see above")
    reduce.add_argument(
        "--tokens",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="texts of the logits, one file for each LOGITS, in order (default: in the file of the logits)",
    )
    reduce.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="NAME",
        help="task of the logits, one for each LOGITS, in order (default: the names of the files)",
    )
    reduce.add_argument(
        "--kind", choices=("forced", "greedy", "sampled"), required=True, help="kind of continuation, see above"
    )
    reduce.add_argument("--name", help="name of the model in dump.json (default: that of the first file)")
    _add_top_k(reduce)
    reduce.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help=f"the model's tokenizer, to match n-gram models: {arguments.TOKENIZER} (default: unknown)",
    )
    reduce.add_argument(
        "--end-of-text",
        metavar="TOKEN",
        help="end-of-text token (default: the tokenizer's, such as <|endoftext|>)",
    )
    reduce.add_argument(
        "--temperature", type=arguments.real(0, above=True), metavar="T", help="temperature of sampled text"
    )
    reduce.add_argument(
        "--top-p", type=arguments.real(0, 1, above=True), metavar="P", help="top-p of sampled text (default: 1.0)"
    )
    reduce.add_argument(
        "--seed", type=arguments.seed, metavar="N", help="seed from which the seeds of sampled text were made"
    )
    _add_out(reduce)
    reduce.set_defaults(does="dump_reduce")


def _add_top_k(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--top-k",
        type=arguments.whole(1, 64),
        default=DEFAULT_TOP_K,
        metavar="K",
        help=f"candidates per head and position (default: {DEFAULT_TOP_K})",
    )


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--out", type=arguments.Written(folder=True), required=True, metavar="DIR", help="folder of the dump"
    )
    arguments.add_json(parser)
