"""Block efficiency of a small neural rescorer on dumps, compared with an n-gram model, by task.

    python tools/bench/neural_replay.py DUMP [DUMP ..] --model MODEL [--lm LM] [--neural-alpha A ..] [--beam P ..]
    [--json FILE]

MODEL is the folder of a Hugging Face causal model, or a blockwise transformer, whose head 1 is used. Columns:

    base, oracle         the base draft, and the upper bound of any choice of candidates
    rescored, parallel   the best path and the p best with the n-gram model, exact search (Kim et al., section 7.2)
    neural A             greedy, slot by slot with the neural model at weight A (section 7.1); "x P": the tree of all
                         prefixes in a beam of P

Every weight and beam is a separate replay of the rows that decoding would visit. The last lines have the milliseconds
per lattice. Choose weights on validation splits, never on the reported ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress
from rich.table import Table

from rescore.decode.cli.actions.output import console, progress_bar
from rescore.decode.models.open import open_model
from rescore.decode.models.target import Target
from rescore.decode.replay.run import replay_dump
from rescore.decode.replay.standard import ReplayOptions, standard_drafters
from rescore.decode.report.open_neural import neural_replay
from rescore.decode.rescoring import DEFAULT_ALPHA
from rescore.decode.rescoring.neural_rescorer import NeuralRescorer
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

SHOWN = ("base", "rescored", "parallel rescored", "oracle")


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    model = open_model(args.model, dtype=torch.float32, device=args.device).target
    lm = NGram.open(args.lm) if args.lm else None
    rescorer = Rescorer(lm or (), alpha=args.alpha, threads=args.threads)
    report = []
    for path in args.dumps:
        dump = Dump.open(path)
        with progress_bar() as bar:
            measured = measure(dump, model, rescorer, args, bar)
        report.append({"dump": str(path), "kind": dump.header.kind, **measured})
        show(report[-1], with_lm=lm is not None)
    if args.json:
        settings = {name: getattr(args, name) for name in ("alpha", "neural_alpha", "beam", "paths", "top_k")}
        args.json.write_text(
            json.dumps({"model": str(args.model), "lm": str(args.lm), "settings": settings, "dumps": report}, indent=2)
            + "\n"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="the neural rescorer")
    parser.add_argument("--neural-alpha", type=float, nargs="+", default=[1.0], help="its weights (default: 1)")
    parser.add_argument("--beam", type=int, nargs="+", default=[1], help="the width of its beam (default: 1, greedy)")
    parser.add_argument("--lm", type=Path, help="an n-gram model to compare with")
    parser.add_argument("--alpha", type=float, default=DEFAULT_ALPHA, help=f"its weight (default: {DEFAULT_ALPHA})")
    parser.add_argument("--paths", type=int, default=16, help="its drafts in `parallel` (default: 16)")
    parser.add_argument("--top-k", type=int, help="candidates per slot (default: all in the dump)")
    parser.add_argument("--tasks", nargs="+", help="these alone")
    parser.add_argument("--rows", type=int, default=256, help="batch size of the neural model (default: 256)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures as JSON")
    return parser.parse_args()


def measure(dump: Dump, model: Target, rescorer: Rescorer, args: argparse.Namespace, bar: Progress) -> dict[str, Any]:
    """Figures of every task, of the neural drafters and those of `rescore run`; milliseconds per lattice."""
    drafters = standard_drafters(dump, rescorer, ReplayOptions(paths=args.paths, top_k=args.top_k))
    names = []
    for alpha, paths in itertools.product(args.neural_alpha, args.beam):
        names.append(f"neural {alpha:g}" + (f" x {paths}" if paths > 1 else ""))
        neural = NeuralRescorer(model, vocab_size=dump.header.vocab_size, alpha=alpha, paths=paths)
        drafters.append(neural_replay(names[-1], neural, top_k=args.top_k, rows=args.rows))
    progress = bar.add_task(
        dump.header.kind,
        total=sum(task.rows for task in dump.header.tasks if not args.tasks or task.name in args.tasks),
    )
    result = replay_dump(dump, drafters, tasks=args.tasks, advance=partial(bar.advance, progress))
    lattices = {name: sum(task.tallies[name].steps for task in result.tasks) for name in names}
    milliseconds = {name: 1000 * result.seconds[name] / lattices[name] for name in names}
    return {"tasks": [task.to_json() for task in result.tasks], "neural_ms_per_lattice": milliseconds}


def show(report: dict[str, Any], *, with_lm: bool) -> None:
    names = [name for name in SHOWN if with_lm or name in ("base", "oracle")]
    names += report["neural_ms_per_lattice"]
    table = Table(
        "task",
        *names,
        box=None,
        title=f"{report['dump']} ({report['kind']}): block efficiency",
        title_justify="left",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    rows = [(task["task"], [task["block_efficiency"][name] for name in names]) for task in report["tasks"]]
    for task, values in [*rows, ("mean", np.mean([values for _, values in rows], axis=0))]:
        table.add_row(task, *(f"{value:.3f}" for value in values))
    console().print(table)
    for name, value in report["neural_ms_per_lattice"].items():
        console().print(f"{name}: {value:.2f} ms per lattice")


if __name__ == "__main__":
    main()
