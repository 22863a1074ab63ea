"""`rescore oracle`: how much is left to gain in a dump."""

from __future__ import annotations

import argparse
from typing import Any

from rescore.decode.cli import arguments

DESCRIPTION = """\
The block efficiency of the oracle: of the longest prefix of the true
continuation that the first k candidates of each slot allow. k = 1 is the base
draft; the rest is what any rescoring of these candidates could gain at best.

columns  k=1, k=2, ..   block efficiency, generated tokens per target pass
         head 2, ..     share of positions whose true token is among the
                        head's K candidates
"""

EXAMPLES = """\
examples:
  rescore oracle data/demo/sampled
  rescore oracle DUMP --task gsm8k --json oracle.json
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "oracle",
        parents=[common],
        help="the ceiling of rescoring, for every k",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    arguments.add_dump(parser)
    arguments.add_task(parser)
    arguments.add_json(parser)
    parser.set_defaults(does="oracle")
