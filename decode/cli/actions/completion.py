"""Runs `rescore completion`."""

from __future__ import annotations

import argparse
from pathlib import Path

import shtab

from rescore.decode.cli import parser
from rescore.decode.cli.arguments import Written


def call(args: argparse.Namespace) -> None:
    whole = parser()
    _files_by_name(whole)
    print(shtab.complete(whole, args.shell))


def _files_by_name(one: argparse.ArgumentParser) -> None:
    """Makes path arguments complete to file names."""
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _files_by_name(inner)
        elif action.type is Path or isinstance(action.type, Written):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
