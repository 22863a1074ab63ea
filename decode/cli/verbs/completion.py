"""`rescore completion`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from rescore.decode.cli.options import Args, argument
from rescore.decode.cli.values import Written


@dataclass(frozen=True, kw_only=True)
class CompletionArgs(Args):
    """Print a script that makes the shell complete verbs, options and file names.

    examples:
      rescore completion bash > ~/.local/share/bash-completion/completions/rescore
      rescore completion zsh > ~/.zfunc/_rescore       # a folder of $fpath
      rescore completion fish > ~/.config/fish/completions/rescore.fish
    """

    shell: str = argument("SHELL", "bash, zsh or fish", choices=("bash", "zsh", "fish"))


def run(args: CompletionArgs) -> None:
    import shtab

    from rescore.decode.cli import parser

    whole = parser()
    _files_by_name(whole)
    print(shtab.complete(whole, args.shell))


def _files_by_name(one: argparse.ArgumentParser) -> None:
    """Makes path arguments complete to file names."""
    import shtab

    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _files_by_name(inner)
        elif action.type is Path or isinstance(action.type, Written):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
