"""`rescore env`: what this installation has."""

from __future__ import annotations

import argparse
from typing import Any

from rescore.decode.cli import arguments

DESCRIPTION = """\
What this installation runs on and with: the processor and the core that was
chosen for it, threads, optional packages with the command for each that is
missing, and GPUs. Add it to a bug report.
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
        help="processor, threads, packages and GPUs of this installation",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    arguments.add_json(parser)
    parser.set_defaults(does="env")
