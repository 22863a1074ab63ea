"""Runs `rescore lm verify`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.table import Table

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.model_files import arpa_options
from rescore.decode.cli.actions.output import check_stdin
from rescore.decode.cli.arguments import printable
from rescore.lm.verify import verify

WORDS = {True: "pass", False: "FAIL", None: "not checked"}


def call(args: argparse.Namespace) -> int:
    """Returns 1 if a check fails."""
    check_stdin(args.model)
    with output.stages() as stage:
        stage(f"verifying {args.model}")
        checks = verify(args.model, arpa=arpa_options(args), tolerance=args.tolerance)
    passed = all(check.passed for check in checks)
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("check", "result"):
        table.add_column(name, no_wrap=True)
    table.add_column("found", overflow="fold")
    for check in checks:
        table.add_row(
            check.name, WORDS[check.passed], printable(check.found), style=None if check.passed is not False else "bold"
        )
    output.report(
        args, {"model": str(args.model), "passed": passed, "checks": [asdict(check) for check in checks]}, table
    )
    return 0 if passed else 1
