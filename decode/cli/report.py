"""`rescore report`: an HTML report on a dump."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    r"""Evaluate all drafters on a dump and write one self-contained HTML page: a
    verdict, how much faster, tokens per pass against verified tokens, sortable
    tables, a browser that steps through lattices, settings and provenance.
    Plots can be saved as PNG, plots and tables as CSV. docs/use/report.md describes
    the page and the JSON.

    The browser shows tokens as text if the (first) n-gram model holds the words of
    its vocabulary, or with --tokenizer.

    Weights are tuned on the first sequences of each task, the tuning part; all
    results are on the rest, the held-out part.

    examples:
      rescore report data/demo/greedy --lm data/demo/demo.ngram -o report.html
      rescore report DUMP --lm general.ngram=0.3 --lm domain.ngram=0.7 \
          --tokenizer tokenizer.json -o report.html --markdown tables.md
      rescore report DUMP --settings settings.json -o report.html --json report.json
      rescore report DUMP --lm LM --model 7b --gpu h100
      rescore report HEADLESS_DUMP --lm LM --bench rounds.parquet -o report.html
      rescore report DUMP --lm LM --neural SMALL --neural-paths 4 -o report.html
    """
    parser = verbs.add_parser("report", parents=[common], help="write an HTML report on a dump", doc=add_parser)
    arguments.add_dump(parser)
    arguments.add_rescoring(parser)
    arguments.add_task(parser)
    trees = parser.add_mutually_exclusive_group()
    trees.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help=(
            "written by `rescore tune`: n-gram models, weights, split (default: tune on the tuning part, given heads "
            "and one --lm)"
        ),
    )
    trees.add_argument("--untuned", action="store_true", help="tune nothing")
    parser.add_argument(
        "--neural",
        type=Path,
        metavar="DIR|FILE",
        help=(
            "also rescore with a small causal model with the same tokenizer, slot by slot (algorithm 2 of the paper): "
            "a Hugging Face folder or a blockwise transformer; takes some milliseconds per lattice"
        ),
    )
    parser.add_argument(
        "--neural-alpha", type=arguments.real(0, 1000), metavar="A", help="weight of --neural, not tuned (default: 1)"
    )
    parser.add_argument(
        "--neural-paths",
        type=arguments.whole(1, 256),
        metavar="P",
        help="paths of its beam, reported besides the greedy draft (default: 1, no beam)",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=arguments.Written((".html", ".htm"), stream=True),
        default=Path("report.html"),
        metavar="FILE",
        help="HTML file to write (default: report.html)",
    )
    parser.add_argument(
        "--json",
        type=arguments.Written(stream=True),
        metavar="FILE",
        help="also write all figures as JSON; - for standard output",
    )
    parser.add_argument(
        "--markdown",
        type=arguments.Written(stream=True),
        metavar="FILE",
        help="also write the tables as Markdown; - for standard output",
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help=f"{arguments.TOKENIZER}, to show tokens as text",
    )
    parser.add_argument(
        "--sequences",
        type=arguments.whole(0, 1000),
        default=5,
        metavar="N",
        help="sequences per task in the lattice browser (default: 5)",
    )
    parser.add_argument(
        "--nodes",
        type=arguments.whole(1, 256),
        default=16,
        metavar="N",
        help="nodes of the trees in the browser (default: 16)",
    )
    parser.add_argument(
        "--part",
        choices=("heldout", "tune", "all"),
        help=(
            "sequences to report on: held-out part, tuning part or all (default: heldout; all with the settings of "
            "another dump, and for a dump without heads that no settings were tuned on)"
        ),
    )
    parser.add_argument(
        "--tune-sequences",
        type=arguments.whole(0, 2**40),
        metavar="N",
        help="first sequences of each task that form the tuning part (default: 100, at most half)",
    )
    parser.add_argument(
        "--seed", type=arguments.seed, default=0, metavar="N", help="seed of the bootstrap (default: 0)"
    )
    parser.add_argument(
        "--model",
        metavar="NAME|PATH",
        help=(
            "add the predicted speed of a model of this shape, see `rescore cost --model` (default: 7b with --gpu or "
            "--passes; without any of the three the page has no costs)"
        ),
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME|GB/S,TFLOPS,GB",
        help="the accelerator, see `rescore cost --gpu` (default: h100 with --model)",
    )
    parser.add_argument(
        "--passes",
        type=Path,
        metavar="FILE",
        help="passes measured by `rescore bench passes --json FILE`, instead of --gpu",
    )
    parser.add_argument(
        "--bench",
        type=Path,
        metavar="FILE",
        help="lines of `rescore bench decode -o FILE`: the page begins with the measured speed",
    )
    parser.add_argument(
        "--length",
        type=arguments.whole(1, 2**24),
        metavar="L",
        help="tokens in the cache, for the predicted speed (default: 1024)",
    )
    parser.set_defaults(does="report")
