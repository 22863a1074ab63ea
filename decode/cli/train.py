"""`rescore train`: heads, or BiTA's tokens, for a model that has none."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, lm_arguments, model_arguments

HEADS = """\
Train heads for a causal language model of Hugging Face, which stays as it is.
The model answers the prompts; its hidden states and next-token probabilities
along its answers are all that the heads are trained on (docs/use/training-heads.md).
Stopped or killed, the same command goes on where it was.

stages   texts   the model's own answers and its states along them, to
                 DIR/states; with --read those along references instead
         heads   each slot learns the model's distribution so many tokens ahead,
                 given the state and the root token, to DIR/heads
prompts  JSON lines with prompt (or text) and maybe task and reference: text, or
         token ids of the model's tokenizer; or chats, messages of role and
         content, whose last answer is the reference; or Spec-Bench's files;
         also .gz
files    DIR/heads        the heads, for --heads and Drafting: those that did
                          best on the texts held out, one in 41
         DIR/curve.jsonl  loss and recall of every slot as training went on
         DIR/texts.npy    the answers, for `rescore lm build`
"""

EXAMPLES = """\
examples:
  rescore train heads smollm2 --chat --prompts prompts.jsonl -o trained
  rescore train heads MODEL --prompts prompts.jsonl --tokens 200k --estimate \\
      -o trained
  rescore train heads MODEL --prompts texts.jsonl --read --slots 3 -o trained
  rescore train heads smollm2 --chat --prompts more.jsonl \
      --start trained/heads -o further
  rescore generate --model smollm2 --chat --heads trained/heads 'Why is ..?'
"""


BITA = """\
Train mask tokens and prompt tokens for a causal language model of Hugging Face,
which stays as it is (BiTA, Lin et al. 2024; docs/use/bita.md). Masks stand behind every
drafted token, so that one pass verifies a draft and makes the next one.
Stopped or killed, the same command goes on where it was.

stages   texts   the model's own answers, to DIR/states: those of `rescore train
                 heads -o DIR`, if they are there
         bita    mask i learns the token i + 1 places on, to DIR/bita
prompts  as of `rescore train heads`
files    DIR/bita/tokens  the tokens, for --heads and Drafting: those that did best
                          on the texts held out, one in 41
         DIR/bita/curve.jsonl  loss and recall of every mask as training went on
"""

BITA_EXAMPLES = """\
examples:
  rescore train bita smollm2 --chat --prompts prompts.jsonl --temperature 0 \
      --tokens 250k -o trained
  rescore generate --model smollm2 --chat --heads trained/bita/tokens 'Why is ..?'
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    train = verbs.add_parser(
        "train", help="train heads for a model", description="Train heads, or mask tokens, for a model."
    )
    kinds = train.add_subparsers(dest="action", required=True, metavar="WHAT")
    heads = kinds.add_parser(
        "heads", parents=[common], help="heads for a frozen model", description=HEADS, epilog=EXAMPLES
    )
    _add_common(heads, "train_heads")
    _add_training(heads)
    heads.add_argument("--estimate", action="store_true", help="say what it would take, and stop")
    bita = kinds.add_parser(
        "bita",
        parents=[common],
        help="mask tokens for a frozen model",
        description=BITA,
        epilog=BITA_EXAMPLES,
    )
    _add_common(bita, "train_bita")
    _add_bita(bita)


def _add_common(parser: argparse.ArgumentParser, does: str) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help=model_arguments.MODEL)
    model_arguments.add_opening(parser)
    _add_texts(parser)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--threads",
        type=arguments.whole(1, 1024),
        metavar="N",
        help="default: the processors that nothing else keeps busy now",
    )
    arguments.add_json(parser)
    parser.set_defaults(does=does, heads=None)


def _add_texts(parser: argparse.ArgumentParser) -> None:
    texts = parser.add_argument_group("texts")
    texts.add_argument("--prompts", type=Path, required=True, metavar="FILE")
    texts.add_argument("--read", action="store_true", help="read references, of every prompt, instead of answering")
    texts.add_argument(
        "--tokens", type=lm_arguments.AMOUNT, metavar="N", help="of answers, such as 1.5M (default: all prompts)"
    )
    texts.add_argument(
        "--max-tokens", type=arguments.whole(2, 1 << 16), default=256, metavar="N", help="of one (default: 256)"
    )
    texts.add_argument(
        "--temperature",
        type=temperatures,
        default=(0.0, 0.7),
        metavar="T[,T..]",
        help="of answers, which prompts take in turn; 0 is greedy (default: 0,0.7)",
    )
    texts.add_argument(
        "--rows", type=arguments.whole(1, 1 << 14), default=64, metavar="N", help="written at once (default: 64)"
    )
    texts.add_argument("--seed", type=arguments.seed, default=1, metavar="N", help="default: 1")


def _add_training(parser: argparse.ArgumentParser) -> None:
    heads = parser.add_argument_group("heads")
    heads.add_argument(
        "--slots", type=arguments.whole(1, 63), metavar="T", help="heads, one for each slot (default: 5)"
    )
    heads.add_argument(
        "--layers", type=arguments.whole(0, 16), metavar="N", help="residual blocks of each (default: 1)"
    )
    heads.add_argument(
        "--draft-vocabulary",
        type=lm_arguments.AMOUNT,
        metavar="D",
        help="tokens that heads may draft, the model's most frequent (default: 16384)",
    )
    heads.add_argument(
        "--start",
        type=Path,
        metavar="HEADS",
        help="train these heads further, with the slots, layers and draft vocabulary that they have",
    )
    heads.add_argument(
        "--teach",
        type=arguments.real(0, 100, above=True),
        default=0.7,
        metavar="T",
        help="temperature of the distributions that are taught (default: 0.7)",
    )
    heads.add_argument(
        "--batch", type=arguments.whole(1, 1 << 20), default=1024, metavar="N", help="positions a step (default: 1024)"
    )
    heads.add_argument(
        "--rounds",
        type=arguments.real(0, 1e4, above=True),
        default=3.0,
        metavar="N",
        help="through all positions, at most (default: 3)",
    )
    heads.add_argument(
        "--rate", type=arguments.real(0, 10, above=True), default=0.02, metavar="R", help="of learning (default: 0.02)"
    )


def _add_bita(parser: argparse.ArgumentParser) -> None:
    bita = parser.add_argument_group("tokens")
    bita.add_argument(
        "--masks", type=arguments.whole(1, 63), default=3, metavar="M", help="behind each token (default: 3)"
    )
    bita.add_argument(
        "--prompt-tokens",
        type=arguments.whole(0, 4096),
        default=16,
        metavar="P",
        help="learned keys and values of every layer, which masks alone see (default: 16)",
    )
    bita.add_argument(
        "--batch", type=arguments.whole(1, 1 << 14), default=4, metavar="N", help="texts a step (default: 4)"
    )
    bita.add_argument(
        "--groups",
        type=arguments.whole(1, 1 << 14),
        default=64,
        metavar="G",
        help="of masks in a text of a step (default: 64)",
    )
    bita.add_argument(
        "--rounds",
        type=arguments.real(0, 1e4, above=True),
        default=2.0,
        metavar="N",
        help="through all texts (default: 2)",
    )
    bita.add_argument(
        "--rate",
        type=arguments.real(0, 10, above=True),
        default=0.002,
        metavar="R",
        help="of learning (default: 0.002)",
    )
    bita.add_argument(
        "--every", type=arguments.whole(1, 1 << 20), default=100, metavar="N", help="steps between validations"
    )


def temperatures(text: str) -> tuple[float, ...]:
    """Numbers from 0 to 100 separated by commas."""
    one = arguments.real(0, 100)
    return tuple(one(part) for part in text.split(","))
