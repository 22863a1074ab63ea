"""`rescore draw`: pictures of rescored lattices."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments

FORMATS = ("svg", "png")
OUT = arguments.Written(tuple(f".{form}" for form in FORMATS), folder=True)


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Draw lattices of a dump: the candidates by rank, the true continuation, the base
    draft and the best rescored paths. For each lattice also its token tree and,
    with one n-gram model, its open tree, whose tokens outside the lattice are
    dashed. With --settings, the drafts are those of the settings. Tokens are shown
    as text if the (first) n-gram model holds the words of its vocabulary, or with
    --tokenizer.

    By default the steps are drawn at which rescoring gains the most accepted
    tokens; --position picks one. The files' names are printed:
    KIND-TASK-SEQUENCE-POSITION-lattice.svg, -tree.svg and -open-tree.svg. With
    --wide there is one file per step, KIND-TASK-SEQUENCE-POSITION.svg, a 16:9 sheet
    with the lattice on the left and the trees on the right. -o FILE.svg or FILE.png
    draws one step into one file. PNG needs the extra png.

    examples:
      rescore draw data/demo/sampled --lm data/demo/demo.ngram -o pictures
      rescore draw DUMP --lm LM --task gsm8k --sequence 3 --position 17 -o pictures
      rescore draw DUMP --settings settings.json --wide -o slide.png
    """
    parser = verbs.add_parser("draw", parents=[common], help="draw rescored lattices and trees", doc=add_parser)
    arguments.add_dump(parser)
    arguments.add_rescoring(parser)
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="written by `rescore tune`: models, weights of the paths, calibration of the trees",
    )
    parser.add_argument(
        "--nodes", type=arguments.whole(1, 4096), default=16, metavar="N", help="nodes of the token tree (default: 16)"
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="PATH",
        help=f"{arguments.TOKENIZER}, to show tokens as text",
    )
    arguments.add_task(parser)
    parser.add_argument(
        "--best", type=arguments.whole(1, 1000), metavar="N", help="draw the N steps with the largest gain (default: 4)"
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
        type=OUT,
        default=Path("."),
        metavar="DIR|FILE",
        help="folder to write to (default: the current one); or an .svg or .png file for a single picture, of the best "
        "step or that of --position",
    )
    parser.add_argument("--format", choices=FORMATS, help="format of the files in a folder (default: svg)")
    parser.add_argument(
        "--wide", action="store_true", help="lattice and trees side by side on a 16:9 sheet, for slides"
    )
    arguments.add_json(parser)
    parser.set_defaults(does="draw")
