"""`rescore report`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli import output, values
from rescore.decode.cli.groups import TOKENIZER, TUNE_SEQUENCES, DumpArgs, RescoringArgs, TaskArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, flag, option, value_errors_of
from rescore.decode.cli.output import Result
from rescore.decode.cli.values import Written, float_between, int_between
from rescore.lattice.extras import needed_for

if TYPE_CHECKING:
    from rescore.decode.draft.rescorer import Rescorer
    from rescore.decode.lab.report.content import Report
    from rescore.decode.lab.report.measured import Neural, ReportOptions
    from rescore.lattice.dump import Dump


# Options of the command that a page names, with those that have another form.
REPEATED = (
    *("top_k", "tokenizer", "tune_sequences", "settings", "bench"),
    *("neural", "neural_alpha", "neural_paths"),
)


@dataclass(frozen=True, kw_only=True)
class ReportArgs(DumpArgs, TaskArgs, RescoringArgs, ReportedArgs):
    r"""Evaluate all drafters on a dump and write one self-contained HTML page: a
    verdict, how much faster, tokens per pass against verified tokens, sortable
    tables, a browser that steps through lattices, settings and provenance.
    Plots can be saved as PNG, plots and tables as CSV. docs/use/report.md describes
    the page and the JSON.

    The browser shows tokens as text if the (first) n-gram model holds the words of
    its vocabulary, or with --tokenizer.

    Weights are tuned on the first sequences of each task, the tuning part; all
    results are on the rest, the held-out part.

    examples:
      rescore report data/demo/greedy --lm data/demo/demo.ngram -o report.html
      rescore report DUMP --lm general.ngram=0.3 --lm domain.ngram=0.7 \
          --tokenizer tokenizer.json -o report.html --markdown tables.md
      rescore report DUMP --settings settings.json -o report.html --json report.json
      rescore report HEADLESS_DUMP --lm LM --bench rounds.parquet -o report.html
      rescore report DUMP --lm LM --neural SMALL --neural-paths 4 -o report.html
    """

    settings: Path | None = option(
        "FILE",
        "written by `rescore tune`: n-gram models, weights, split (default: tune on the tuning part, given heads "
        "and one --lm)",
        Path,
        exclusive="weights",
    )
    untuned: bool = flag("tune nothing", rare=True)
    neural: Path | None = option(
        "DIR|FILE",
        "also rescore with a small causal model with the same tokenizer, slot by slot (algorithm 2 of the "
        "paper): a Hugging Face folder or a blockwise transformer; takes some milliseconds per lattice",
        Path,
        rare=True,
    )
    neural_alpha: float | None = option(
        "A", "weight of --neural, not tuned (default: 1)", float_between(0, 1000), rare=True
    )
    neural_paths: int | None = option(
        "P",
        "paths of its beam, reported besides the greedy draft (default: 1, no beam)",
        int_between(1, 256),
        rare=True,
    )
    out: Path = option(
        "FILE",
        "HTML file to write (default: report.html)",
        Written((".html", ".htm"), stream=True),
        short="-o",
        default=Path("report.html"),
    )
    markdown: Path | None = option(
        "FILE", "also write the tables as Markdown; - for standard output", Written(stream=True)
    )
    tokenizer: Path | None = option("PATH", f"{TOKENIZER}, to show tokens as text", Path)
    sequences: int = option(
        "N", "sequences per task in the lattice browser", int_between(0, 1000), default=5, rare=True
    )
    nodes: int = option("N", "nodes of the trees in the browser", int_between(1, 256), default=16, rare=True)
    part: str | None = option(
        None,
        "sequences to report on: held-out part, tuning part or all (default: heldout; all with the settings of "
        "another dump, and for a dump without heads that no settings were tuned on)",
        choices=("heldout", "tune", "all"),
        rare=True,
    )
    tune_sequences: int | None = TUNE_SEQUENCES
    seed: int = option("N", "seed of the bootstrap", values.seed, default=0, rare=True)
    bench: Path | None = option(
        "FILE", "lines of `rescore bench decode -o FILE`: the page begins with the measured speed", Path, rare=True
    )

    def __post_init__(self) -> None:
        if self.neural is None and (self.neural_alpha is not None or self.neural_paths is not None):
            raise Misuse("--neural-alpha, --neural-paths: need --neural")


def run(args: ReportArgs) -> Result:
    from rescore.decode.cli import models
    from rescore.decode.lab.report.page import markdown, page, plain, plotly_source, report_json, templates

    plotly_source()  # raises before the work if it is missing
    templates(plain)  # and so does this
    (dump,) = models.open_dumps([args.dump], allow_inexact=args.allow_inexact, tasks=args.task, top_k=args.top_k)
    if args.settings and args.lm:
        raise Misuse("--lm: --settings already has models and weights; leave it out")
    made = reported(args, dump)
    output.write_text(args.out, page(made))
    if args.markdown:
        output.write_text(args.markdown, markdown(made))
    if args.json:
        output.write_json(args.json, report_json(made))
    return Result(None)


def reported(args: ReportArgs, dump: Dump) -> Report:
    from rescore.decode.cli import models, screen
    from rescore.decode.lab.replay.rows import Budgets
    from rescore.decode.lab.replay.words import words_of
    from rescore.decode.lab.report.measured import NODES, PATHS, ReportOptions
    from rescore.decode.lab.tuning.tune import tune

    if not dump.slots and args.neural:
        raise Misuse(f"--neural: needs lattices of heads, and {args.dump} has none")
    found, args = models.open_settings(args.settings, args)
    rescorer = models.open_rescorer(args, [dump])
    own, split = models.split_of(args.tune_sequences, dump, found)
    tuning = not args.untuned and not found and len(rescorer.models) == 1 and dump.slots > 0
    part = args.part or ("heldout" if own or (dump.slots and not found) else "all")
    args = replace(args, part=part)
    tuned: dict[str, Any] = {"tuned": found, "source": f"from the settings {args.settings}"} if found else {}
    if tuning and part == "heldout" and any(split.tune.values()):
        with screen.stages() as stage:
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
        part=part,
        seed=args.seed,
        bench=args.bench,
        budgets=Budgets(nodes=NODES, p=args.paths, paths=PATHS, top_k=args.top_k),
        models=[str(path) for path, _ in args.lm],
        words=words_of(dump, args.tokenizer, rescorer.models),
        settings=settings(args),
        sequences=args.sequences,
        nodes=args.nodes,
        **tuned,
    )
    return measured(dump, rescorer, options, args)


def measured(dump: Dump, rescorer: Rescorer, options: ReportOptions, args: ReportArgs) -> Report:
    from rescore.decode.cli import screen
    from rescore.decode.lab.report.measured import rows_to_come
    from rescore.decode.lab.report.report import report

    with screen.progress_bar() as bar, value_errors_of(dump.path):
        progress = bar.add_task(str(dump.path), total=None)

        def advance(rows: int) -> None:
            bar.advance(progress, rows)

        neural = neural_of(args.neural, args, dump, advance) if args.neural else None
        slow = len(neural.names) if neural else 0
        bar.update(progress, total=rows_to_come(dump, options.split.part(options.part), options.tasks_of(dump), slow))
        return report(dump, rescorer, options, neural=neural, advance=advance)


def neural_of(path: Path, args: ReportArgs, dump: Dump, advance: Callable[[int], None]) -> Neural:
    """The neural rescorer of --neural; only it needs PyTorch."""
    with needed_for("--neural"):
        from rescore.decode.lab.report.open_neural import open_neural
        from rescore.decode.models.located import hide_unseen_bars
        from rescore.decode.models.open_target import use_threads
    use_threads(args.threads)
    hide_unseen_bars(path)
    return open_neural(
        path,
        dump,
        alpha=1.0 if args.neural_alpha is None else args.neural_alpha,
        paths=args.neural_paths or 1,
        top_k=args.top_k,
        advance=advance,
    )


def settings(args: ReportArgs) -> dict[str, Any]:
    from rescore.decode.cli import models

    alpha = ", ".join(f"{value:g}" for value in models.weights(args.alpha))
    return {"command": shlex.join(command(args)), "alpha": alpha, "threads": args.threads}


def command(args: ReportArgs) -> Sequence[str]:
    """The command that reproduces the report's figures."""
    words = ["rescore", "report", str(args.dump)]
    words += ["--untuned"] if args.untuned else []
    for path, weight in () if args.settings else args.lm:  # settings name their models
        words += ["--lm", f"{path}={weight:g}" if weight != 1 else str(path)]
    if args.alpha is not None:
        words += ["--alpha", ",".join(f"{value:g}" for value in args.alpha)]
    words += ["--paths", str(args.paths), "--part", str(args.part), "--seed", str(args.seed)]
    for name in REPEATED:
        if getattr(args, name) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    for task in args.task or ():
        words += ["--task", task]
    return words
