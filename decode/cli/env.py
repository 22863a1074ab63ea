"""`rescore env`: hardware and packages of this installation."""

from __future__ import annotations

import argparse
from typing import Any

from rescore.decode.cli import arguments


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Describe this installation for a bug report: the processor and the build of the
    core chosen for it, threads, optional packages, each missing one with the
    command that installs it, and GPUs.

    examples:
      rescore env
      rescore env --json env.json
    """
    parser = verbs.add_parser(
        "env",
        parents=[common],
        help="describe this installation: processor, threads, packages, GPUs",
        doc=add_parser,
    )
    arguments.add_json(parser)
    parser.set_defaults(does="env")
