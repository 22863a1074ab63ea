"""Runs `rescore lm prune`."""

from __future__ import annotations

import argparse

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.lm_info import tables
from rescore.decode.cli.actions.model_files import check_out, read_model, write_model
from rescore.decode.cli.actions.output import check_stdin
from rescore.lm.build import prune_model
from rescore.lm.prune import PruneOptions


def call(args: argparse.Namespace) -> None:
    check_out(args)
    check_stdin(args.model)
    with output.stages() as stage:
        stage(f"reading {args.model}")
        model = read_model(args)
        stage("pruning")
        model = prune_model(model, PruneOptions(theta=args.theta, max_ngrams=args.max_ngrams))
        stage(f"writing {args.out}")
        info = write_model(model, args)
    output.report(args, info, *tables(info, output.width()))
