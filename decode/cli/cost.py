"""`rescore cost`: predicted cost of decoding on an accelerator, and the gain of drafts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments


def way(text: str) -> tuple[str, float, float, int]:
    """NAME=TOKENS,VERIFIED[,ROWS]."""
    name, sign, rest = text.rpartition("=")
    parts = rest.split(",")
    try:
        if not sign or not name or len(parts) not in (2, 3):
            raise ValueError
        return name, float(parts[0]), float(parts[1]), int(parts[2]) if len(parts) == 3 else 1
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80}: expected NAME=TOKENS,VERIFIED or NAME=TOKENS,VERIFIED,ROWS, with numbers after the ="
        ) from None


def rescorer(text: str) -> tuple[str, float]:
    """NAME|PATH=TOKENS."""
    name, sign, tokens = text.rpartition("=")
    try:
        if not sign or not name:
            raise ValueError
        return name, float(tokens)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r:.80}: expected NAME=TOKENS or PATH=TOKENS, with a number of tokens per pass"
        ) from None


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    r"""Predict the bytes moved and the operations per decoded token, the time of a step
    on an accelerator, and the fastest way of drafting there, from a model's shape
    and the measured block efficiency of drafters (docs/use/cost-model.md).

    first table   GB parameters   read per decoded token, one text at a time
                  GB cache, L     keys and values of a text of L tokens
                  GFLOP           after --length tokens; a multiply-add is two
    then, for every --batch
                  ms/step         the target's pass, its heads and the search
                  drafting        share of the step spent on the search on the CPU
                  tokens/s        of all texts together
                  x plain         ratio to autoregressive decoding
                  bound           what limits the target's pass
                  GB              parameters and cache in memory; ! does not fit
                  pays below      smallest batch at which drafts are no faster than
                                  plain decoding; - if none up to 1024

    Times come from a roofline model: the longer of memory time and compute time, at
    an assumed share of the data sheet's figures. --passes FILE uses passes measured
    on your machine instead (`rescore bench passes --json FILE`), without heads.

    examples:
      rescore cost --model llama-3-8b --run run.json --gpu h100
      rescore cost --model DIR --run run.json --dump data/demo/sampled \
          --gpu l4 --batch 1 --batch 32 --length 2048 --json cost.json
      rescore cost --model 7b --way 'mine=2.4,64' --gpu 1008,165,24
      rescore cost --model 7b --run run.json --neural SMALL=1.5
      rescore cost --model model.safetensors --run run.json --passes passes.json \
          --length 512
      rescore cost --paper
    """
    parser = verbs.add_parser(
        "cost",
        parents=[common],
        help="predict the gain of drafts on an accelerator",
        doc=add_parser,
    )
    parser.add_argument(
        "--model",
        metavar="NAME|PATH",
        help=(
            "tiny, 1.5b, 7b, llama-3-8b, llama-3-70b, paper-1.5b; a config.json, the .safetensors file of a blockwise "
            "transformer, or a folder with one of them"
        ),
    )
    parser.add_argument(
        "--run",
        type=Path,
        metavar="FILE",
        help="block efficiencies, verified tokens and times, written by `rescore run --json`",
    )
    parser.add_argument("--dump", metavar="DUMP", help="which dump of --run, if it has several")
    parser.add_argument(
        "--way",
        type=way,
        action="append",
        default=[],
        metavar="NAME=TOKENS,VERIFIED[,ROWS]",
        help="a drafter given by its tokens per pass, verified tokens and rows; repeatable",
    )
    parser.add_argument(
        "--neural",
        type=rescorer,
        metavar="NAME|PATH=TOKENS",
        help="add greedy rescoring by a small model of this shape, T of its passes per step",
    )
    parser.add_argument(
        "--slots",
        type=arguments.whole(0, 1024),
        metavar="T",
        help="slots: heads besides the model's own (default: those of --run)",
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME|GB/S,TFLOPS,GB",
        help=(
            "h200, h100, h100-pcie, a100, a100-40gb, l40s, l4, a10, rtx-4090, rtx-3090, mi300x, "
            "or its three figures (default: h100)"
        ),
    )
    parser.add_argument("--passes", type=Path, metavar="FILE", help="measured passes instead of --gpu")
    parser.add_argument(
        "--batch",
        type=arguments.whole(1, 2**16),
        action="append",
        metavar="B",
        help="texts per batch; repeatable (default: 1, 8 and 64; with --passes all that were measured)",
    )
    parser.add_argument(
        "--length",
        type=arguments.whole(1, 2**24),
        default=1024,
        metavar="L",
        help="tokens in the cache (default: 1024)",
    )
    parser.add_argument(
        "--parameter-bytes",
        type=arguments.real(0, 8, above=True),
        default=2.0,
        metavar="N",
        help="bytes per parameter (default: 2)",
    )
    parser.add_argument(
        "--cache-bytes",
        type=arguments.real(0, 8, above=True),
        default=2.0,
        metavar="N",
        help="bytes per number in the cache (default: 2)",
    )
    parser.add_argument(
        "--bandwidth-share",
        type=arguments.real(0, 1, above=True),
        default=0.8,
        metavar="S",
        help="share of the data sheet's bandwidth that is reached (default: 0.8)",
    )
    parser.add_argument(
        "--compute-share",
        type=arguments.real(0, 1, above=True),
        default=0.6,
        metavar="S",
        help="share of its operations per second that is reached (default: 0.6)",
    )
    parser.add_argument(
        "--overhead-us",
        type=arguments.real(0, 1e9),
        default=0.0,
        metavar="US",
        help="fixed overhead per step in microseconds (default: 0)",
    )
    parser.add_argument(
        "--paper", action="store_true", help="recompute the paper's table 11 and compare it with the printed one"
    )
    arguments.add_json(parser)
    parser.set_defaults(does="cost")
