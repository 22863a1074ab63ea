"""Arguments that say how drafts are made."""

from __future__ import annotations

import argparse
from pathlib import Path

from rescore.decode.cli import arguments

DRAFTERS = (
    "blend",
    "blend-without-heads",
    "tree",
    "calibrated-tree",
    "open-tree",
    "rescored",
    "parallel-rescored",
    "base",
    "neural",
    "drawn",
    "draft-model",
    "lm-alone",
    "none",
)


def nodes(text: str) -> int | str:
    return text if text == "auto" else arguments.whole(1, 1024)(text)


def add_drafting(parser: argparse.ArgumentParser) -> None:
    """--lm, --alpha, --settings, --memory, --draft-model, --neural, --nodes, --paths, --top-k, --ahead."""
    parser.add_argument(
        "--lm",
        action="append",
        default=[],
        type=arguments.weighted_path,
        metavar="LM[=WEIGHT]",
        help="an .ngram (or .arpa, .fst) file; several may be given, each with a weight (default weight: 1)",
    )
    parser.add_argument(
        "--alpha",
        type=arguments.alpha,
        metavar="A[,A..]",
        help=(
            "weight of the language models' costs, one for all slots or one per slot (default: "
            f"{arguments.DEFAULT_ALPHA})"
        ),
    )
    parser.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="of rescore tune: the model, its calibration and the candidates of tuned and open trees; or of the blend",
    )
    parser.add_argument(
        "--memory",
        type=Path,
        metavar="FILE",
        help="an .npy of earlier texts, which the blend drafts from too; generate adds what it writes, or begins one",
    )
    parser.add_argument(
        "--draft-model", type=Path, metavar="DIR|FILE", help="a small model of the same tokenizer that writes ahead"
    )
    parser.add_argument(
        "--neural", type=Path, metavar="DIR|FILE", help="a small model of the same tokenizer that rescores the lattice"
    )
    parser.add_argument(
        "--nodes",
        type=nodes,
        metavar="N|auto",
        help=(
            "of a tree; auto takes, step by step, what brings the most tokens per second here, and none where drafts "
            "do not pay (default: auto; 16 of an n-gram model alone)"
        ),
    )
    parser.add_argument(
        "--paths",
        type=arguments.whole(1, 1024),
        metavar="P",
        help="drafts verified in parallel (default: 16; neural and drawn: 1)",
    )
    parser.add_argument(
        "--top-k",
        type=arguments.whole(1, 64),
        metavar="K",
        help="candidates of each head (default: 16, or as the settings say)",
    )
    parser.add_argument(
        "--ahead",
        type=arguments.whole(1, 256),
        metavar="N",
        help=(
            "tokens ahead: that a draft model (default: 4) or an n-gram model alone (default: 8) writes, or that a "
            "blended tree is deep at most (default: 16)"
        ),
    )
