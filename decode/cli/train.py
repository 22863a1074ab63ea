"""`rescore train`: train heads, or BiTA's tokens, for a model without heads."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, lm_arguments, model_arguments


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    train = verbs.add_parser(
        "train", help="train heads or mask tokens for a model", description="Train heads or mask tokens for a model."
    )
    kinds = train.add_subparsers(dest="action", required=True, metavar="WHAT")
    _add_heads(kinds, common)
    _add_bita(kinds, common)


def _add_heads(kinds: Any, common: argparse.ArgumentParser) -> None:
    r"""Train heads for a frozen causal language model from Hugging Face. The training
    data are the model's own answers to the prompts, with its hidden states and
    next-token probabilities along them (docs/use/training-heads.md). Resumable:
    after an interruption, the same command continues.

    stages   texts   the model's answers and its states along them, to DIR/states;
                     with --read along the references instead
             heads   head t learns the model's distribution t tokens after the root
                     token, given the state and the root token, to DIR/heads
    prompts  JSON lines with prompt or text, optionally task and reference, as text
             or token ids; or chats: messages of role and content, whose last answer
             is the reference; or Spec-Bench's files; also .gz
    files    DIR/heads        the heads, for --heads and Drafting: the best on the
                              held-out texts, one in 41
             DIR/curve.jsonl  loss and recall of every slot during training
             DIR/texts.npy    the answers, for `rescore lm build`

    examples:
      rescore train heads smollm2 --chat --prompts prompts.jsonl -o trained
      rescore train heads MODEL --prompts prompts.jsonl --tokens 200k --estimate \
          -o trained
      rescore train heads MODEL --prompts texts.jsonl --read --slots 3 -o trained
      rescore train heads smollm2 --chat --prompts more.jsonl \
          --start trained/heads -o further
      rescore generate --model smollm2 --chat --heads trained/heads 'Why is ..?'
    """
    parser = kinds.add_parser("heads", parents=[common], help="train heads for a frozen model", doc=_add_heads)
    _add_common(parser, "train_heads")
    _add_training(parser)
    parser.add_argument("--estimate", action="store_true", help="only estimate time and disk space")


def _add_common(parser: argparse.ArgumentParser, does: str) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help=model_arguments.MODEL)
    model_arguments.add_opening(parser)
    _add_texts(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=arguments.Written(folder=True),
        required=True,
        metavar="DIR",
        help="folder for all files, see above",
    )
    parser.add_argument(
        "--threads",
        type=arguments.whole(1, 1024),
        metavar="N",
        help="CPU threads (default: the processors that are idle now)",
    )
    arguments.add_json(parser)
    parser.set_defaults(does=does, heads=None)


def _add_texts(parser: argparse.ArgumentParser) -> None:
    texts = parser.add_argument_group("texts")
    texts.add_argument("--prompts", type=Path, required=True, metavar="FILE", help="prompts, see above")
    texts.add_argument(
        "--read", action="store_true", help="train on the prompts' references instead of the model's answers"
    )
    texts.add_argument(
        "--tokens",
        type=lm_arguments.AMOUNT,
        metavar="N",
        help="train on N tokens of answers, e.g. 1.5M (default: all prompts)",
    )
    texts.add_argument(
        "--max-tokens",
        type=arguments.whole(2, 1 << 16),
        default=256,
        metavar="N",
        help="greatest length of an answer (default: 256)",
    )
    texts.add_argument(
        "--temperature",
        type=temperatures,
        default=(0.0, 0.7),
        metavar="T[,T..]",
        help="temperatures of the answers, used in turn; 0 is greedy (default: 0,0.7)",
    )
    texts.add_argument(
        "--rows",
        type=arguments.whole(1, 1 << 14),
        default=64,
        metavar="N",
        help="answers generated at once (default: 64)",
    )
    texts.add_argument(
        "--seed", type=arguments.seed, default=1, metavar="N", help="seed of texts and training (default: 1)"
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    heads = parser.add_argument_group("heads")
    heads.add_argument(
        "--slots", type=arguments.whole(1, 63), metavar="T", help="number of heads, one per slot (default: 5)"
    )
    heads.add_argument(
        "--layers", type=arguments.whole(0, 16), metavar="N", help="residual blocks per head (default: 1)"
    )
    heads.add_argument(
        "--draft-vocabulary",
        type=lm_arguments.AMOUNT,
        metavar="D",
        help="number of tokens that heads may draft, the model's most frequent ones (default: 16384)",
    )
    heads.add_argument(
        "--start",
        type=Path,
        metavar="HEADS",
        help="continue from these heads, with their slots, layers and draft vocabulary",
    )
    heads.add_argument(
        "--teach",
        type=arguments.real(0, 100, above=True),
        default=0.7,
        metavar="T",
        help="temperature of the model's distributions as training targets (default: 0.7)",
    )
    heads.add_argument(
        "--batch",
        type=arguments.whole(1, 1 << 20),
        default=1024,
        metavar="N",
        help="positions per step (default: 1024)",
    )
    heads.add_argument(
        "--rounds",
        type=arguments.real(0, 1e4, above=True),
        default=3.0,
        metavar="N",
        help="greatest number of epochs (default: 3)",
    )
    heads.add_argument(
        "--rate",
        type=arguments.real(0, 10, above=True),
        default=0.02,
        metavar="R",
        help="learning rate (default: 0.02)",
    )


def _add_bita(kinds: Any, common: argparse.ArgumentParser) -> None:
    r"""Train mask tokens and prompt tokens for a frozen causal language model from
    Hugging Face (BiTA, Lin et al. 2024; docs/use/bita.md). Mask tokens follow every
    drafted token, so that one pass verifies a draft and makes the next one.
    Resumable: after an interruption, the same command continues.

    stages   texts   the model's answers, to DIR/states; those of `rescore train
                     heads -o DIR` are reused
             bita    mask i learns to predict the token i + 1 positions ahead, to
                     DIR/bita
    prompts  as for `rescore train heads`
    files    DIR/bita/tokens       the tokens, for --heads and Drafting: the best on
                                   the held-out texts, one in 41
             DIR/bita/curve.jsonl  loss and recall of every mask during training

    examples:
      rescore train bita smollm2 --chat --prompts prompts.jsonl --temperature 0 \
          --tokens 250k -o trained
      rescore generate --model smollm2 --chat --heads trained/bita/tokens \
          'Why is ..?'
    """
    parser = kinds.add_parser(
        "bita", parents=[common], help="train mask tokens for a frozen model (BiTA)", doc=_add_bita
    )
    _add_common(parser, "train_bita")
    bita = parser.add_argument_group("tokens")
    bita.add_argument(
        "--masks", type=arguments.whole(1, 63), default=3, metavar="M", help="mask tokens after each token (default: 3)"
    )
    bita.add_argument(
        "--prompt-tokens",
        type=arguments.whole(0, 4096),
        default=16,
        metavar="P",
        help="learned keys and values in every layer, visible only to masks (default: 16)",
    )
    bita.add_argument(
        "--batch", type=arguments.whole(1, 1 << 14), default=4, metavar="N", help="texts per step (default: 4)"
    )
    bita.add_argument(
        "--groups",
        type=arguments.whole(1, 1 << 14),
        default=64,
        metavar="G",
        help="groups of masks per text in a step (default: 64)",
    )
    bita.add_argument(
        "--rounds",
        type=arguments.real(0, 1e4, above=True),
        default=2.0,
        metavar="N",
        help="epochs (default: 2)",
    )
    bita.add_argument(
        "--rate",
        type=arguments.real(0, 10, above=True),
        default=0.002,
        metavar="R",
        help="learning rate (default: 0.002)",
    )
    bita.add_argument(
        "--every",
        type=arguments.whole(1, 1 << 20),
        default=100,
        metavar="N",
        help="steps between validations (default: 100)",
    )


def temperatures(text: str) -> tuple[float, ...]:
    """Numbers from 0 to 100, separated by commas."""
    one = arguments.real(0, 100)
    return tuple(one(part) for part in text.split(","))
