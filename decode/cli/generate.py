"""`rescore generate`: continue prompts with a model and drafts."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from rescore.decode.cli import arguments, model_arguments
from rescore.decode.draft.registry import SPECS


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    r"""Continue prompts with a model, verifying several drafted tokens in every pass.
    Decoding is lossless: at temperature 0 the output is the model's greedy text,
    above 0 it is sampled from the model's distribution (docs/how/verification.md).

    The text is printed as it is generated. On a terminal, draft tokens accepted in
    one pass share a colour, and the token that each pass adds has none. Several
    prompts are decoded as a batch and shown one by one.

    drafters:
    {drafters}

    printed below the text:
      passes    forward passes of the model, the prompt's included
      accepted  share of drafts whose first, second, .. token was accepted

    with --compare, which decodes with drafts and plainly in turns, 3 to 7 rounds,
    until the interval is narrow or 20 s have passed:
      verdict   tokens per second in times of plain decoding, its 95% interval, and
                faster, slower, or no difference where the interval contains 1
      why, try  what passes cost and gained, and what to change where drafting does
                not pay; of the round of median ratio
      plain     the first text without drafts

    examples:
      rescore generate --model smollm2 --chat --compare "Why is the sky blue?"
      rescore generate --model smollm2 --chat --heads data/demo/heads \
          --settings data/demo/settings.json "Tom has 3 apples, ..."
      rescore generate --model DIR --heads MEDUSA --lm LM --compare "Once upon"
      rescore generate --model DIR --draft-model SMALL --temperature 0.7 --seed 1 -
      rescore generate --model MODEL --settings settings.json "Once upon"
      rescore generate --model model.gguf --engine llama.cpp --lm LM "Once upon"
      rescore generate --model MODEL --tools tools.json --compare "Weather in Rome?"
      rescore generate --model MODEL --chat --prediction old.py "Rename `x` in ..."
      rescore generate --model MODEL --drafter none --json - "One" "Two"
    """
    parser = verbs.add_parser(
        "generate", parents=[common], help="continue prompts with a model and drafts", doc=add_parser
    )
    parser.description = parser.description.format(drafters=described())
    parser.add_argument("prompts", nargs="+", metavar="PROMPT", help="text to continue; - reads standard input")
    model_arguments.add_model(parser)
    model_arguments.add_engine(parser)
    model_arguments.add_drafting(parser, writes_memory=True)
    parser.add_argument(
        "--drafter",
        choices=tuple(SPECS),
        metavar="NAME",
        help=(
            "the drafter (default: neural with --neural, draft-model with --draft-model, else blend; tree with heads "
            "and --alpha or several --lm; if the model does not support trees, rescored with heads and none without)"
        ),
    )
    parser.add_argument(
        "--layout",
        choices=("tree", "rows"),
        help="tree: one row with a tree mask; rows: one row per path (default: tree if the model supports it)",
    )
    add_decoding(parser)
    model_arguments.add_structure(parser)
    model_arguments.add_prediction(parser)
    parser.add_argument("--compare", action="store_true", help="say whether drafts make decoding faster, and why")
    parser.add_argument(
        "--no-color", action="store_true", help="no colours on a terminal, as with NO_COLOR in the environment"
    )
    arguments.add_threads(parser)
    arguments.add_json(parser)
    parser.set_defaults(does="generate")


def described() -> str:
    """The registry's drafters, a line or more each."""
    margin = 2 + max(map(len, SPECS)) + 2
    blank = " " * margin
    return "\n".join(
        textwrap.fill(spec.title, 80, initial_indent=f"  {name}".ljust(margin), subsequent_indent=blank)
        for name, spec in SPECS.items()
    )


def add_decoding(parser: argparse.ArgumentParser) -> None:
    """--max-tokens, --temperature, --top-p, --sample-top-k, --repetition-penalty, --seed, --stop."""
    parser.add_argument(
        "--max-tokens",
        type=arguments.whole(1, 2**20),
        default=64,
        metavar="N",
        help="greatest length of each text (default: 64)",
    )
    parser.add_argument(
        "--temperature", type=arguments.real(0), default=0.0, metavar="T", help="0 is greedy (default: 0)"
    )
    parser.add_argument(
        "--top-p",
        type=arguments.real(0, 1, above=True),
        metavar="P",
        help="sample from the most probable tokens of total probability P",
    )
    parser.add_argument(
        "--sample-top-k",
        type=arguments.whole(1, 2**31 - 1),
        metavar="K",
        help="sample from the K most probable tokens (--top-k is for lattices)",
    )
    parser.add_argument(
        "--repetition-penalty",
        type=arguments.real(0, above=True),
        default=1.0,
        metavar="R",
        help="divide the logits of tokens that have occurred by R (default: 1)",
    )
    parser.add_argument("--seed", type=arguments.seed, metavar="N", help="seed of sampled text (default: 0)")
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        type=arguments.something,
        metavar="STR",
        help="stop at this string, which is not shown; repeatable",
    )
