"""`rescore lm merge`, `verify` and `diff`: what is done with models that are there."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, lm_arguments

MERGE = """\
Make one model of several over the same tokens: it holds the n-grams of all of
them, with the probabilities of their mixture, and backoff weights that make
every context sum to one. Models of other orders, formats and texts may be mixed.

linear       p = l1 p1 + l2 p2 + ..; exact for every n-gram in the result, while
             what no model holds after a context is backed off to all together
--log-linear p = p1^l1 p2^l2 .. / Z; exact for every token after every context

Models come with --weights, else equally, or --tune finds the weights that make
held-out text most probable: linear ones by expectation maximisation, log-linear
ones by Newton's method. A model of weight 0 adds no n-grams. With --max-ngrams
or --theta the result is pruned.

columns  weight      of the model
         n-grams     that it holds
         perplexity  of the held-out text by the model alone; `equal` and
                     `tuned` are those of the mixture before and after tuning,
                     `merged` that of the model that was written
Memory: some 130 bytes for each n-gram of two models, 170 to tune log-linear
weights.
"""

MERGE_EXAMPLES = """\
examples:
  rescore lm merge wiki.ngram dialogue.ngram --weights 0.7,0.3 -o both.ngram
  rescore lm merge wiki.ngram dialogue.ngram --tune heldout.npy -o both.ngram
  rescore lm merge big.ngram mine.arpa --tune mine.jsonl --tokenizer t.json \\
      --log-linear --max-ngrams 10M -o both.ngram
"""

VERIFY = """\
Read a model wholly and check all that is true of one.

checks   file            checksums of an .ngram file
         entries         every entry in range; every id has a unigram; tokens
                         ascend in each state; costs are finite
         states          ordered by the length of their contexts
         contexts        each is an n-gram of the model
         order           within a length by the context read backwards
         suffixes        for each n-gram, that without its first token is one
         backoff states  a context without its first token
         next states     the longest suffix of an n-gram that is a state
         sums to one     probabilities after each context; the worst is named
         metadata        n-grams of each order, special ids, tokenizer
Exit status: 0 if all hold, 1 if one does not or the file cannot be read.
Memory: some 80 bytes for each n-gram.
"""

VERIFY_EXAMPLES = """\
examples:
  rescore lm verify lm.ngram
  rescore lm verify lm.arpa.gz --json -
"""

DIFF = """\
How two models differ: n-grams that only one of them has, costs (-ln p) and
backoff costs of those that both have, metadata.

columns  order         of the n-grams, or tokens of the contexts
         only A, only B, both
         mean, largest  of the differences in cost, in nats
Below the tables: where the largest are, with the costs in A and B.
Exit status: 0 if the models are the same, 1 if they differ or cannot be read.
Memory: some 80 bytes for each n-gram of both.
"""

DIFF_EXAMPLES = """\
examples:
  rescore lm diff lm.ngram pruned.ngram
  rescore lm diff lm.ngram lm.arpa.gz --json -
"""


def add_parsers(add: Any) -> None:
    """The actions; add(name, help, description, examples) makes the parser of one."""
    add_merge(add("merge", "make one model of several", MERGE, MERGE_EXAMPLES))
    add_verify(add("verify", "check all that is true of a model", VERIFY, VERIFY_EXAMPLES))
    add_diff(add("diff", "how two models differ", DIFF, DIFF_EXAMPLES))


def add_merge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--weights",
        type=weights,
        metavar="L1,L2,..",
        help="one for each model; they sum to 1 unless --log-linear (default: equal ones)",
    )
    group.add_argument(
        "--tune",
        metavar="FILE",
        help="held-out text or tokens to find the weights on, as of `rescore lm build`; held in memory",
    )
    parser.add_argument(
        "--log-linear", action="store_true", help="multiply powers of the probabilities instead of adding them"
    )
    lm_arguments.add_reading(parser)
    lm_arguments.add_pruning(parser, required=False)
    lm_arguments.add_out(parser)
    arguments.add_json(parser)


def add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL")
    lm_arguments.add_ids(parser)
    parser.add_argument(
        "--tolerance",
        type=lm_arguments.number(1),
        metavar="X",
        help="how far sums may be from one (default: 1e-4, of quantised models 0.2)",
    )
    arguments.add_json(parser)


def add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", type=Path, metavar="A")
    parser.add_argument("b", type=Path, metavar="B")
    lm_arguments.add_ids(parser)
    arguments.add_json(parser)


def weights(text: str) -> tuple[float, ...]:
    """Numbers of at least 0."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or not all(math.isfinite(value) and value >= 0 for value in values):
        raise argparse.ArgumentTypeError(f"expected numbers of at least 0 such as 0.7,0.3, got {text!r:.80}")
    return values
