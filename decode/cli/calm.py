"""`rescore calm`: LOSSY decoding by early exits."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, lm_arguments, model_arguments

THRESHOLDS = (0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)

TOP = """\
LOSSY decoding by early exits (CALM): a token leaves the model's layers early
when one of them is confident. Texts are not the model's own; calibrate says how
far they are from it. All other verbs of rescore lose nothing, and so does
rescore generate --early-layers, where early layers only draft.
"""

TRAIN = """\
Train exits for a causal language model of Hugging Face, which stays as it is:
for each layer of --layers a translation of its states into the last layer's,
and a classifier that says whether its token will be the model's own. The model
answers the prompts; the fits take seconds (docs/use/early-exit.md).

columns  layers     run before the exit
         plain      share of held-out tokens that are the model's own with the
                    state as it is
         agreement  the same, translated
         accuracy   of the classifier
         area       under its curve: how often it ranks a right token first
"""

CALIBRATE = """\
Find the least threshold that keeps a promise: with confidence 1 - EPSILON, the
mean dissimilarity of LOSSY texts and the model's own is at most DELTA, for
prompts drawn as these are. Thresholds are tested from the greatest down, and
the first that fails ends the tests (Learn then Test).

columns  threshold  of the confidence
         risk       mean dissimilarity on these prompts
         p-value    of "the risk exceeds DELTA"
         layers     of the model that a token took, mean
         valid      whether the promise is kept
"""

GENERATE = """\
Continue prompts LOSSILY: tokens leave layers early, and the text is not the
model's own. The threshold is that of rescore calm calibrate, or --threshold,
of which nothing is known.
"""

EXAMPLES = """\
examples:
  rescore calm train smollm2 --chat --prompts prompts.jsonl -o exits
  rescore calm calibrate smollm2 --chat --prompts others.jsonl --exits exits \\
      --confidence classifier --delta 0.2 --epsilon 0.1 -o calm.json
  rescore calm generate smollm2 --chat --exits exits --calibration calm.json \\
      --compare "Why is the sky blue?"
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    calm = verbs.add_parser("calm", help="LOSSY decoding by early exits, calibrated", description=TOP)
    actions = calm.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add(name: str, help: str, description: str) -> argparse.ArgumentParser:
        parser = actions.add_parser(name, parents=[common], help=help, description=description, epilog=EXAMPLES)
        parser.add_argument("model", type=Path, metavar="MODEL", help=model_arguments.MODEL)
        model_arguments.add_opening(parser)
        arguments.add_threads(parser)
        arguments.add_json(parser)
        parser.set_defaults(does=f"calm_{name}", heads=None)
        return parser

    add_train(add("train", "translations and classifiers of layers", TRAIN))
    add_calibrate(add("calibrate", "the least threshold that keeps a promise", CALIBRATE))
    add_generate(add("generate", "LOSSY text from a model", GENERATE))


def add_train(parser: argparse.ArgumentParser) -> None:
    _add_prompts(parser)
    _add_layers(parser)
    parser.add_argument("--tokens", type=lm_arguments.AMOUNT, metavar="N", help="of answers (default: all prompts)")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    _add_prompts(parser)
    _add_exits(parser)
    parser.add_argument("--risk", choices=("rouge-l", "tokens"), default="rouge-l", help="default: rouge-l")
    open_interval = dict(type=arguments.real(0, 1, above=True), metavar="P")
    parser.add_argument("--delta", default=0.1, help="the greatest mean risk (default: 0.1)", **open_interval)
    parser.add_argument("--epsilon", default=0.05, help="how often it may be greater (default: 0.05)", **open_interval)
    parser.add_argument(
        "--thresholds",
        type=thresholds,
        default=THRESHOLDS,
        metavar="C,C,..",
        help=f"falling, from 1 to 0 (default: {','.join(map(str, THRESHOLDS))})",
    )
    parser.add_argument("--every", action="store_true", help="measure thresholds behind the first that fails, too")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE")


def add_generate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompts", nargs="+", metavar="PROMPT", help="text to continue; - is standard input")
    _add_exits(parser)
    parser.add_argument("--calibration", type=Path, metavar="FILE", help="of rescore calm calibrate")
    parser.add_argument("--threshold", type=arguments.real(0, 1), metavar="C", help="uncalibrated")
    parser.add_argument(
        "--max-tokens", type=arguments.whole(1, 2**20), default=64, metavar="N", help="of each text (default: 64)"
    )
    parser.add_argument("--compare", action="store_true", help="show the model's own text too, and both times")


def thresholds(text: str) -> tuple[float, ...]:
    """Numbers from 0 to 1 separated by commas, falling."""
    one = arguments.real(0, 1)
    found = tuple(one(part) for part in text.split(","))
    if any(later >= earlier for earlier, later in zip(found, found[1:])):
        raise argparse.ArgumentTypeError(f"expected falling numbers, got {text:.80}")
    return found


def layers(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas, rising."""
    one = arguments.whole(1, 1 << 12)
    found = tuple(one(part) for part in text.split(","))
    if any(later <= earlier for earlier, later in zip(found, found[1:])):
        raise argparse.ArgumentTypeError(f"expected rising layers, got {text:.80}")
    return found


def _add_prompts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompts", type=Path, required=True, metavar="FILE", help="JSON lines, as of `rescore train heads`"
    )
    parser.add_argument("--limit", type=arguments.whole(1, 2**31), metavar="N", help="the first N of each task")
    parser.add_argument("--skip", type=arguments.whole(0, 2**31), default=0, metavar="N", help="but not the first N")
    parser.add_argument(
        "--max-tokens", type=arguments.whole(2, 1 << 16), default=64, metavar="N", help="of a text (default: 64)"
    )
    parser.add_argument(
        "--rows", type=arguments.whole(1, 1 << 14), default=16, metavar="N", help="decoded at once (default: 16)"
    )


def _add_layers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--layers",
        type=layers,
        metavar="L,L,..",
        help="behind which tokens may leave (default: those of --exits, else some five of the last third)",
    )


def _add_exits(parser: argparse.ArgumentParser) -> None:
    _add_layers(parser)
    parser.add_argument(
        "--exits", type=Path, metavar="DIR", help="of rescore calm train (default: states are read as they are)"
    )
    parser.add_argument(
        "--confidence",
        choices=("softmax", "saturation", "classifier"),
        help="softmax response, state saturation, or the classifier of --exits (default: softmax)",
    )
    parser.add_argument(
        "--decay", type=arguments.real(0), metavar="TAU", help="the threshold falls along a text (default: it does not)"
    )
