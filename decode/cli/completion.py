"""`rescore completion`: shell completion of verbs and options."""

from __future__ import annotations

import argparse
from typing import Any

SHELLS = ("bash", "zsh", "fish")


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Print a script that makes the shell complete verbs, options and file names.

    examples:
      rescore completion bash > ~/.local/share/bash-completion/completions/rescore
      rescore completion zsh > ~/.zfunc/_rescore       # a folder of $fpath
      rescore completion fish > ~/.config/fish/completions/rescore.fish
    """
    parser = verbs.add_parser(
        "completion",
        parents=[common],
        help="print a completion script for bash, zsh or fish",
        doc=add_parser,
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(does="completion")
