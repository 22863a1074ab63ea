"""Runs `rescore report`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.arguments import Misuse
from rescore.decode.cost import cost_inputs
from rescore.decode.cost.cost_model import Clock, CostOptions, Roofline, Stopwatch, accelerator
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.rows import Budgets
from rescore.decode.report.content import Report
from rescore.decode.report.measured import NODES, PATHS, Neural, ReportOptions, rows_to_come
from rescore.decode.report.page import markdown, page, plain, plotly_source, report_json, templates
from rescore.decode.report.report import report
from rescore.decode.tuning.tune import tune
from rescore.lattice.dump import Dump
from rescore.lattice.extras import needed_for

# Options of the command that a page names, with those that have another form.
REPEATED = (
    *("top_k", "tokenizer", "tune_sequences", "settings", "bench", "passes"),
    *("neural", "neural_alpha", "neural_paths", "model", "gpu", "length"),
)
MODEL, GPU, LENGTH = "7b", "h100", 1024  # defaults of the costs, if one of the three is given


def call(args: argparse.Namespace) -> None:
    if args.neural is None and (args.neural_alpha is not None or args.neural_paths is not None):
        raise Misuse("--neural-alpha, --neural-paths: need --neural")
    plotly_source()  # raises before the work if it is missing
    templates(plain)  # and so does this
    (dump,) = models.open_dumps([args.dump], args)
    if args.settings and args.lm:
        raise Misuse("--lm: --settings already has models and weights; leave it out")
    made = reported(args, dump)
    output.write_text(args.out, page(made))
    if args.markdown:
        output.write_text(args.markdown, markdown(made))
    if args.json:
        output.write_json(args.json, report_json(made))
    output.show(*output.wrote(args))


def reported(args: argparse.Namespace, dump: Dump) -> Report:
    if not dump.slots and (args.neural or args.model or args.gpu or args.passes or args.length is not None):
        raise Misuse(f"--neural, --model, --gpu, --passes: need lattices of heads, and {args.dump} has none")
    found = models.open_settings(args)
    rescorer = models.open_rescorer(args, [dump])
    own, split = models.split_of(args, dump, found)
    tuning = not args.untuned and not found and len(rescorer.models) == 1 and dump.slots > 0
    args.part = args.part or ("heldout" if own or (dump.slots and not found) else "all")
    told, words = costs(args), models.open_words(args, dump, rescorer)
    tuned: dict[str, Any] = {"tuned": found, "source": f"from the settings {args.settings}"} if found else {}
    if tuning and args.part == "heldout" and any(split.tune.values()):
        with output.stages() as stage:
            made = tune(
                dump,
                rescorer.models,
                split=split,
                paths=args.paths,
                top_k=args.top_k,
                threads=args.threads,
                advance=stage,
            )
        tuned = {
            "tuned": made.settings((), values={}),
            "tuned_models": made.replays.models,
            "source": "tuned on the tuning part of this dump",
        }
    options = ReportOptions(
        tasks=tuple(args.task) if args.task else None,
        split=split,
        part=args.part,
        seed=args.seed,
        cost=told,
        bench=args.bench,
        budgets=Budgets(nodes=NODES, p=args.paths, paths=PATHS, top_k=args.top_k),
        models=[str(path) for path, _ in args.lm],
        words=words,
        settings=settings(args),
        sequences=args.sequences,
        nodes=args.nodes,
        **tuned,
    )
    return measured(dump, rescorer, options, args)


def measured(dump: Dump, rescorer: Rescorer, options: ReportOptions, args: argparse.Namespace) -> Report:
    with output.progress_bar() as bar, models.naming(dump):
        progress = bar.add_task(str(dump.path), total=None)

        def advance(rows: int) -> None:
            bar.advance(progress, rows)

        neural = neural_of(args, dump, advance) if args.neural else None
        slow = len(neural.names) if neural else 0
        bar.update(
            progress, total=rows_to_come(dump, rescorer, options.split.part(options.part), options.tasks_of(dump), slow)
        )
        return report(dump, rescorer, options, neural=neural, advance=advance)


def neural_of(args: argparse.Namespace, dump: Dump, advance: Callable[[int], None]) -> Neural:
    """The neural rescorer of --neural; only it needs PyTorch."""
    with needed_for("--neural"):
        import torch

        from rescore.decode.models.located import hide_unseen_bars
        from rescore.decode.report.open_neural import open_neural
    torch.set_num_threads(args.threads)
    hide_unseen_bars(args.neural)
    return open_neural(
        args.neural, dump, alpha=neural_alpha(args), paths=args.neural_paths or 1, top_k=args.top_k, advance=advance
    )


def neural_alpha(args: argparse.Namespace) -> float:
    return 1.0 if args.neural_alpha is None else args.neural_alpha


def costs(args: argparse.Namespace) -> CostOptions | None:
    """The options of predicted costs; None without a model and a machine."""
    if not (args.model or args.gpu or args.passes):
        if args.length is not None:
            raise Misuse("--length needs --model, --gpu or --passes")
        return None
    args.model, args.length = args.model or MODEL, args.length or LENGTH
    shape = cost_inputs.open_shape(args.model)
    if args.passes:
        clock: Clock = Stopwatch(passes=cost_inputs.read_passes(args.passes, args.length))
        machine = f"the machine of {args.passes}"
    else:
        args.gpu = args.gpu or GPU
        clock = Roofline(accelerator=accelerator(args.gpu))
        machine = clock.accelerator.name
    return CostOptions(name=args.model, shape=shape, machine=machine, clock=clock, length=args.length)


def settings(args: argparse.Namespace) -> dict[str, Any]:
    alpha = ", ".join(f"{value:g}" for value in models.weights(args))
    return {"command": shlex.join(command(args)), "alpha": alpha, "threads": args.threads}


def command(args: argparse.Namespace) -> Sequence[str]:
    """The command that reproduces the report's figures."""
    words = ["rescore", "report", str(args.dump)]
    words += ["--untuned"] if args.untuned else []
    for path, weight in () if args.settings else args.lm:  # settings name their models
        words += ["--lm", f"{path}={weight:g}" if weight != 1 else str(path)]
    if args.alpha is not None:
        words += ["--alpha", ",".join(f"{value:g}" for value in args.alpha)]
    words += ["--paths", str(args.paths), "--part", args.part, "--seed", str(args.seed)]
    for name in REPEATED:
        if getattr(args, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    for task in args.task or ():
        words += ["--task", task]
    return words
