"""`rescore env`: hardware and packages of this installation."""

from __future__ import annotations

import argparse
from typing import Any

from rescore.decode.cli import arguments

DESCRIPTION = """\
Describe this installation for a bug report: the processor and the build of the
core chosen for it, threads, optional packages, each missing one with the
command that installs it, and GPUs.
"""

EXAMPLES = """\
examples:
  rescore env
  rescore env --json env.json
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "env",
        parents=[common],
        help="describe this installation: processor, threads, packages, GPUs",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    arguments.add_json(parser)
    parser.set_defaults(does="env")
