"""`rescore completion`: shell completion of verbs and options."""

from __future__ import annotations

import argparse
from typing import Any

SHELLS = ("bash", "zsh", "fish")

DESCRIPTION = """\
Print a script that makes the shell complete verbs, options and file names.
"""

EXAMPLES = """\
examples:
  rescore completion bash > ~/.local/share/bash-completion/completions/rescore
  rescore completion zsh > ~/.zfunc/_rescore       # a folder of $fpath
  rescore completion fish > ~/.config/fish/completions/rescore.fish
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "completion",
        parents=[common],
        help="print a completion script for bash, zsh or fish",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(does="completion")
