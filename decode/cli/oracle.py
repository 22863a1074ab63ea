"""`rescore oracle`: the upper bound of rescoring on a dump."""

from __future__ import annotations

import argparse
from typing import Any

from rescore.decode.cli import arguments


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Print the block efficiency of the oracle, which drafts the longest prefix of the
    true continuation that the first k candidates of each slot contain. k = 1 is the
    base draft; the largest k bounds what any rescoring of these candidates can
    gain.

    columns  k=1, k=2, ..   block efficiency: generated tokens per target pass
             head 2, ..     share of positions at which the true token is among the
                            head's K candidates

    examples:
      rescore oracle data/demo/sampled
      rescore oracle DUMP --task gsm8k --json oracle.json
    """
    parser = verbs.add_parser(
        "oracle",
        parents=[common],
        help="print the upper bound of rescoring, for every k",
        doc=add_parser,
    )
    arguments.add_dump(parser)
    arguments.add_task(parser)
    arguments.add_json(parser)
    parser.set_defaults(does="oracle")
