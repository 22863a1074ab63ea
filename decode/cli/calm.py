"""`rescore calm`: LOSSY decoding with early exits."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, lm_arguments, model_arguments

THRESHOLDS = (0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)


EXAMPLES = """\
examples:
  rescore calm train smollm2 --chat --prompts prompts.jsonl -o exits
  rescore calm calibrate smollm2 --chat --prompts others.jsonl --exits exits \\
      --confidence classifier --delta 0.2 --epsilon 0.1 -o calm.json
  rescore calm generate smollm2 --chat --exits exits --calibration calm.json \\
      --compare "Why is the sky blue?"
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    """LOSSY decoding with early exits (CALM): a token skips the remaining layers of
    the model once an early layer is confident enough. The text may differ from the
    model's own; `calibrate` bounds by how much. All other verbs of rescore are
    lossless, including `rescore generate --heads early:L`, where early layers only
    draft.
    """
    calm = verbs.add_parser("calm", help="LOSSY decoding with calibrated early exits", doc=add_parser)
    actions = calm.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add(arguments_of: Callable[[argparse.ArgumentParser], None], help: str) -> None:
        name = arguments_of.__name__.removeprefix("add_")
        parser = actions.add_parser(name, parents=[common], help=help, doc=arguments_of, epilog=EXAMPLES)
        parser.add_argument("model", type=Path, metavar="MODEL", help=model_arguments.MODEL)
        model_arguments.add_opening(parser)
        arguments.add_threads(parser)
        arguments.add_json(parser)
        parser.set_defaults(does=f"calm_{name}", heads=None)
        arguments_of(parser)

    add(add_train, "train the exits of layers")
    add(add_calibrate, "find a threshold with a bound on the loss")
    add(add_generate, "continue prompts, LOSSY")


def add_train(parser: argparse.ArgumentParser) -> None:
    """Train exits for a frozen causal language model from Hugging Face. For each layer
    of --layers: a linear map of its states to the last layer's, and a classifier
    that predicts whether the early token is the model's own. The training texts are
    the model's answers to the prompts. Each fit takes seconds
    (docs/use/early-exit.md).

    columns  layers     layers run before the exit
             plain      share of held-out tokens that equal the model's own, from
                        the layer's state without the map
             agreement  the same with the map
             accuracy   of the classifier
             area       area under the classifier's ROC curve
    """
    _add_prompts(parser)
    _add_layers(parser)
    parser.add_argument(
        "--tokens", type=lm_arguments.AMOUNT, metavar="N", help="train on N tokens of answers (default: all prompts)"
    )
    parser.add_argument(
        "-o", "--out", type=arguments.Written(folder=True), required=True, metavar="DIR", help="folder for the exits"
    )


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    """Find the smallest safe threshold: with probability 1 - EPSILON or more, the mean
    dissimilarity between the LOSSY texts and the model's own is at most DELTA, for
    prompts from the same distribution as these. Thresholds are tested from the
    largest down, and the first that fails ends the tests (Learn then Test).

    columns  threshold  confidence at which a token exits
             risk       mean dissimilarity on these prompts
             p-value    of the hypothesis that the risk exceeds DELTA
             layers     mean number of layers run per token
             valid      whether the bound holds
    """
    _add_prompts(parser)
    _add_exits(parser)
    parser.add_argument(
        "--risk",
        choices=("rouge-l", "tokens"),
        default="rouge-l",
        help="dissimilarity of texts: 1 - ROUGE-L, or the share of tokens that differ (default: rouge-l)",
    )
    open_interval = dict(type=arguments.real(0, 1, above=True), metavar="P")
    parser.add_argument("--delta", default=0.1, help="largest acceptable mean risk (default: 0.1)", **open_interval)
    parser.add_argument(
        "--epsilon", default=0.05, help="probability that it is exceeded (default: 0.05)", **open_interval
    )
    parser.add_argument(
        "--thresholds",
        type=thresholds,
        default=THRESHOLDS,
        metavar="C,C,..",
        help=f"thresholds to test, decreasing, within 0..1 (default: {','.join(map(str, THRESHOLDS))})",
    )
    parser.add_argument("--every", action="store_true", help="also measure the thresholds after the first that fails")
    parser.add_argument(
        "-o", "--out", type=arguments.Written(), required=True, metavar="FILE", help="calibration file to write"
    )


def add_generate(parser: argparse.ArgumentParser) -> None:
    """Continue prompts LOSSILY: tokens exit the model early, so the text may differ
    from the model's own. The threshold comes from `rescore calm calibrate`, or from
    --threshold, for which no bound is known.
    """
    parser.add_argument("prompts", nargs="+", metavar="PROMPT", help="text to continue; - is standard input")
    _add_exits(parser)
    parser.add_argument("--calibration", type=Path, metavar="FILE", help="written by `rescore calm calibrate`")
    parser.add_argument("--threshold", type=arguments.real(0, 1), metavar="C", help="a threshold without calibration")
    parser.add_argument(
        "--max-tokens",
        type=arguments.whole(1, 2**20),
        default=64,
        metavar="N",
        help="greatest length of each text (default: 64)",
    )
    parser.add_argument("--compare", action="store_true", help="also show the model's own text, and both times")


def thresholds(text: str) -> tuple[float, ...]:
    """Decreasing numbers from 0 to 1, separated by commas."""
    one = arguments.real(0, 1)
    found = tuple(one(part) for part in text.split(","))
    if any(later >= earlier for earlier, later in zip(found, found[1:])):
        raise argparse.ArgumentTypeError(f"expected decreasing numbers, got {text:.80}")
    return found


def layers(text: str) -> tuple[int, ...]:
    """Increasing whole numbers, separated by commas."""
    one = arguments.whole(1, 1 << 12)
    found = tuple(one(part) for part in text.split(","))
    if any(later <= earlier for earlier, later in zip(found, found[1:])):
        raise argparse.ArgumentTypeError(f"expected increasing layers, got {text:.80}")
    return found


def _add_prompts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompts", type=Path, required=True, metavar="FILE", help="JSON lines, as for `rescore train heads`"
    )
    parser.add_argument(
        "--limit",
        type=arguments.whole(1, 2**31),
        metavar="N",
        help="use the first N prompts of each task (default: all)",
    )
    parser.add_argument(
        "--skip",
        type=arguments.whole(0, 2**31),
        default=0,
        metavar="N",
        help="of these, leave out the first N (default: 0)",
    )
    parser.add_argument(
        "--max-tokens",
        type=arguments.whole(2, 1 << 16),
        default=64,
        metavar="N",
        help="greatest length of a text (default: 64)",
    )
    parser.add_argument(
        "--rows", type=arguments.whole(1, 1 << 14), default=16, metavar="N", help="texts decoded at once (default: 16)"
    )


def _add_layers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--layers",
        type=layers,
        metavar="L,L,..",
        help="layers after which tokens may exit (default: those of --exits, else about five in the last third)",
    )


def _add_exits(parser: argparse.ArgumentParser) -> None:
    _add_layers(parser)
    parser.add_argument(
        "--exits",
        type=Path,
        metavar="DIR",
        help="folder of `rescore calm train` (default: states are used without a map)",
    )
    parser.add_argument(
        "--confidence",
        choices=("softmax", "saturation", "classifier"),
        help="confidence: softmax response, state saturation, or the classifier of --exits (default: softmax)",
    )
    parser.add_argument(
        "--decay",
        type=arguments.real(0),
        metavar="TAU",
        help="let the threshold fall along the text at this rate (default: constant)",
    )
