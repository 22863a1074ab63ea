"""`rescore draw`: pictures of rescored lattices."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments

DESCRIPTION = """\
Draw lattices of a dump: candidates by rank, the true continuation, the base
draft and the best rescored drafts, and of each the token tree and, with one
language model, the open tree, in which tokens that no head lists are dashed.
With --settings they are what the settings draft. Tokens are shown as text if
the (first) language model holds its vocabulary's words, or with --tokenizer.

By default the steps are drawn at which rescoring gains the most accepted
tokens; --position picks one. The names of the files are printed:
KIND-TASK-SEQUENCE-POSITION-lattice.svg, -tree.svg and -open-tree.svg; with
--wide one file a step, KIND-TASK-SEQUENCE-POSITION.svg, a sheet of 16:9 with
the lattice at the left and the trees at the right. -o FILE.svg or FILE.png
makes one picture of one step. PNG needs pip install 'rescore[png]'.
"""

EXAMPLES = """\
examples:
  rescore draw data/demo/sampled --lm data/demo/demo.ngram -o pictures
  rescore draw DUMP --lm LM --task gsm8k --sequence 3 --position 17 -o pictures
  rescore draw DUMP --settings settings.json --wide -o slide.png
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "draw", parents=[common], help="draw rescored lattices and trees", description=DESCRIPTION, epilog=EXAMPLES
    )
    arguments.add_dump(parser)
    arguments.add_rescoring(parser)
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="of rescore tune: its models, its weights of the drafts, its calibrated and open trees",
    )
    parser.add_argument(
        "--nodes", type=arguments.whole(1, 4096), default=16, metavar="N", help="of the token tree (default: 16)"
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help=f"{arguments.TOKENIZER}, that gives the tokens' text",
    )
    arguments.add_task(parser)
    parser.add_argument(
        "--best", type=arguments.whole(1, 1000), metavar="N", help="draw the N steps that gain most (default: 4)"
    )
    parser.add_argument(
        "--sequence",
        type=arguments.whole(0, 2**40),
        metavar="S",
        help="with --position: the sequence of the task, from 0 (default: 0)",
    )
    parser.add_argument(
        "--position",
        type=arguments.whole(0, 2**40),
        metavar="P",
        help="draw the lattice predicted at this position, from 0",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("."),
        metavar="DIR|FILE",
        help="where to write (default: here), or a name that ends in .svg or .png: one picture of the best step, or "
        "that of --position",
    )
    parser.add_argument("--format", choices=("svg", "png"), help="of files in a folder (default: svg)")
    parser.add_argument(
        "--wide", action="store_true", help="lattice and trees side by side on a sheet of 16:9, for slides"
    )
    arguments.add_json(parser)
    parser.set_defaults(does="draw")
