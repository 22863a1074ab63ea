"""`rescore lm merge`, `verify` and `diff`: operations on existing models."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, lm_arguments


def add_parsers(add: Any) -> None:
    """Adds the actions; `add` takes the function that adds an action's arguments, and its help in a line."""
    add(add_merge, "merge several models into one")
    add(add_verify, "check the invariants of a model")
    add(add_diff, "compare two models")


def add_merge(parser: argparse.ArgumentParser) -> None:
    r"""Merge several models over the same tokens into one. It holds the n-grams of all
    of them, with the probabilities of their mixture, and backoff weights that make
    every context sum to one. Orders, formats and training texts of the models may
    differ.

    linear       p = l1 p1 + l2 p2 + ..; exact for every n-gram in the result; other
                 tokens after a context back off to the mixture of all models
    --log-linear p = p1^l1 p2^l2 .. / Z; exact for every token after every context

    Weights are given by --weights, or are equal, or --tune finds those that make
    held-out text most probable: linear ones by expectation maximisation, log-linear
    ones by Newton's method. A model of weight 0 adds no n-grams. --max-ngrams or
    --theta prunes the result.

    columns  weight      of the model
             n-grams     in the model
             perplexity  of the held-out text: by each model alone; `equal` and
                         `tuned` by the mixture before and after tuning; `merged` by
                         the model that was written
    Memory: about 130 bytes per n-gram of two models, 170 to tune log-linear
    weights.

    examples:
      rescore lm merge wiki.ngram dialogue.ngram --weights 0.7,0.3 -o both.ngram
      rescore lm merge wiki.ngram dialogue.ngram --tune heldout.npy -o both.ngram
      rescore lm merge big.ngram mine.arpa --tune mine.jsonl --tokenizer t.json \
          --log-linear --max-ngrams 10M -o both.ngram
    """
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="two or more .ngram, .arpa or .fst files")
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--weights",
        type=weights,
        metavar="L1,L2,..",
        help="one weight per model; they sum to 1 unless --log-linear (default: equal)",
    )
    group.add_argument(
        "--tune",
        type=arguments.something,
        metavar="FILE",
        help="find the weights on this held-out text or token file, which is read into memory",
    )
    parser.add_argument("--log-linear", action="store_true", help="mix log probabilities instead of probabilities")
    lm_arguments.add_reading(parser)
    lm_arguments.add_pruning(parser, required=False)
    lm_arguments.add_out(parser)
    arguments.add_json(parser)


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Read a whole model and check its invariants.

    checks   file            checksums of an .ngram file
             entries         every entry in range; every id has a unigram; tokens
                             ascend in each state; costs are finite
             states          sorted by the length of their contexts
             contexts        each is an n-gram of the model
             order           within a length, contexts are sorted, last token first
             suffixes        every n-gram without its first token is an n-gram too
             backoff states  the context without its first token
             next states     the longest suffix of the n-gram that is a state
             sums to one     probabilities after each context; names the worst one
             metadata        n-grams of each order, special ids, tokenizer
    Exit status: 0 if all hold, 1 if one fails or the file cannot be read.
    Memory: about 80 bytes per n-gram.

    examples:
      rescore lm verify lm.ngram
      rescore lm verify lm.arpa.gz --json -
    """
    parser.add_argument("model", type=Path, metavar="MODEL", help=lm_arguments.MODEL)
    lm_arguments.add_ids(parser)
    parser.add_argument(
        "--tolerance",
        type=lm_arguments.number(1),
        metavar="X",
        help="tolerance of the sums (default: 1e-4; quantised models: 0.2)",
    )
    arguments.add_json(parser)


def add_diff(parser: argparse.ArgumentParser) -> None:
    """Compare two models: n-grams that only one of them has, costs (-ln p) and backoff
    costs of those in both, and metadata.

    columns  order         of the n-grams; context: tokens of the context
             only A, only B, both
             mean, largest  differences in cost, in nats
    Below the tables: where the largest differences are, with the costs in A and B.
    Exit status: 0 if the models are equal, 1 if they differ or cannot be read.
    Memory: about 80 bytes per n-gram of both.

    examples:
      rescore lm diff lm.ngram pruned.ngram
      rescore lm diff lm.ngram lm.arpa.gz --json -
    """
    parser.add_argument("a", type=Path, metavar="A", help=lm_arguments.MODEL)
    parser.add_argument("b", type=Path, metavar="B", help="the other model")
    lm_arguments.add_ids(parser)
    arguments.add_json(parser)


def weights(text: str) -> tuple[float, ...]:
    """Non-negative numbers, separated by commas."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or not all(math.isfinite(value) and value >= 0 for value in values):
        raise argparse.ArgumentTypeError(f"expected numbers of at least 0, such as 0.7,0.3, got {text!r:.80}")
    return values
