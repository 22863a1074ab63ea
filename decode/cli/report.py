"""`rescore report`: one page about a dump."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments

DESCRIPTION = """\
Measure everything on a dump and write one HTML page that works from disk,
without network: a verdict, tokens per pass against verified tokens, tables that
sort, a browser that steps through lattices, settings and provenance; plots and
tables can be saved as PNG and CSV. docs/use/report.md says what is on it, and what
is in the JSON.

The browser shows tokens as text if the (first) language model holds its
vocabulary's words, or with --tokenizer.

Of a model without heads the page tells of the blend (docs/how/calibrated-q.md):
tokens per pass beside other drafters, what each source adds, whether its q is
right, how it does as the text grows; options of lattices are not for it.

Weights are tuned on the first sequences of each task, the tuning part, and
everything is reported on the rest.
"""

EXAMPLES = """\
examples:
  rescore report data/demo/greedy --lm data/demo/demo.ngram -o report.html
  rescore report DUMP --lm general.ngram=0.3 --lm domain.ngram=0.7 \\
      --tokenizer tokenizer.json -o report.html --markdown tables.md
  rescore report DUMP --settings settings.json -o report.html --json report.json
  rescore report DUMP --lm LM --model 7b --gpu h100
  rescore report HEADLESS_DUMP --lm LM -o report.html
  rescore report DUMP --lm LM --neural SMALL --neural-paths 4 --latency search.json
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "report", parents=[common], help="write one page about a dump", description=DESCRIPTION, epilog=EXAMPLES
    )
    arguments.add_dump(parser)
    arguments.add_rescoring(parser)
    arguments.add_task(parser)
    trees = parser.add_mutually_exclusive_group()
    trees.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help=(
            "of rescore tune: the model, the calibrations of trees, the split (default: "
            "trees are calibrated on the tuning part)"
        ),
    )
    trees.add_argument(
        "--untuned", action="store_true", help="show open trees with the default calibration, and calibrate nothing"
    )
    parser.add_argument(
        "--neural",
        type=Path,
        metavar="DIR|FILE",
        help=(
            "a small causal model of the same tokenizer that rescores as well, "
            "slot by slot (algorithm 2 of the paper): a folder of Hugging Face, or one of our blockwise models; "
            "it takes some milliseconds a lattice"
        ),
    )
    parser.add_argument(
        "--neural-alpha", type=arguments.real(0, 1000), metavar="A", help="its weight, which nothing tunes (default: 1)"
    )
    parser.add_argument(
        "--neural-paths",
        type=arguments.whole(1, 256),
        metavar="P",
        help="strings of its beam, shown beside the greedy draft (default: 1, no beam)",
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help="the page (default: report.html)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all figures of the page as JSON too; - for standard output"
    )
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the tables as Markdown too; - for standard output"
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help=f"{arguments.TOKENIZER}, that gives the tokens' text",
    )
    parser.add_argument(
        "--sequences",
        type=arguments.whole(0, 1000),
        default=5,
        metavar="N",
        help="of each task in the lattice browser (default: 5)",
    )
    parser.add_argument(
        "--nodes",
        type=arguments.whole(1, 256),
        default=16,
        metavar="N",
        help="of the tree that the browser follows (default: 16)",
    )
    parser.add_argument(
        "--part",
        choices=("heldout", "tune", "all"),
        help=(
            "sequences that are reported on: those held out of the split, its tuning part, all (default: heldout; "
            "all with settings of another dump, and of a dump without heads that no settings were tuned on)"
        ),
    )
    parser.add_argument(
        "--tune-sequences",
        type=arguments.whole(0, 2**40),
        metavar="N",
        help="of each task, the first, are the tuning part (default: 100, at most half)",
    )
    parser.add_argument(
        "--seed", type=arguments.seed, default=0, metavar="N", help="of the bootstrap's intervals (default: 0)"
    )
    parser.add_argument(
        "--model",
        metavar="NAME|PATH",
        help=(
            "tell what drafts would bring a model of this shape, as `rescore cost --model` takes it "
            "(default: 7b with --gpu or --passes; without any of the three the page has no costs)"
        ),
    )
    parser.add_argument(
        "--gpu", metavar="NAME|GB/S,TFLOPS,GB", help="where, as `rescore cost --gpu` (default: h100 with --model)"
    )
    parser.add_argument(
        "--passes", type=Path, metavar="FILE", help="passes measured by `rescore bench passes` instead of --gpu"
    )
    parser.add_argument(
        "--length",
        type=arguments.whole(1, 2**24),
        metavar="L",
        help="tokens in the cache, where costs are told (default: 1024)",
    )
    parser.add_argument(
        "--latency",
        type=Path,
        metavar="FILE",
        help="times of searches, measured by `rescore bench search --json FILE`, to show beside the paper's",
    )
    parser.set_defaults(does="report")
