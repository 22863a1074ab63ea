"""`rescore bench decode`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli.groups import LINES, DecodingArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, option
from rescore.decode.cli.output import Result
from rescore.decode.cli.values import Written, did_you_mean, int_between
from rescore.decode.draft.registry import SPECS, Row, Spec, row_name
from rescore.decode.draft.sources import AUTO
from rescore.lattice.atomic import atomic_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rescore.decode.cli.lazy_model import LazyModel
    from rescore.decode.lab.bench.decoding import System, SystemTimes
    from rescore.decode.lab.replay.table import RecordWriter
    from rescore.decode.models.model_facts import ModelFacts
    from rescore.lattice.dump import Dump


SIZES = (16, 64)  # of trees, beside auto
EQUAL = "texts of all drafters with those of plain decoding, except for sampled drafts"
ROOM = 64  # tokens reserved for drafts after the longest text, in engines with a fixed context


@dataclass(frozen=True, kw_only=True)
class BenchDecodeArgs(DecodingArgs, ReportedArgs):
    r"""Decode prompts plainly and with every drafter that the arguments allow, in
    turns, and print tokens per second and tokens per pass. Greedy texts must equal
    those of plain decoding, or the exit status is 1. Sampled texts may differ where
    passes of two widths round differently (docs/use/decoding.md).

    columns  tokens/s    median of the rounds, with their minimum and maximum
             x plain     ratio to plain decoding in the same round
             tokens/pass generated tokens per pass, the prompt's pass included
             drafted     draft tokens verified per pass
             drafting    share of the time spent on drafting
             needed      tokens per pass, after the prompt, at which the drafts
                         would pay; below the tables, for drafters that fall short:
                         why, and what to try
             differ      texts that differ from plain decoding; - for sampled
                         drafts, whose texts only have the same distribution
    Ratios after the prompt leave out the prompts' passes, which weigh more in
    shorter texts; - where another library hides its passes.

    examples:
      rescore bench decode --model smollm2 --heads data/demo/heads \
          --lm data/demo/demo.ngram --prompts data/demo/greedy --limit 2
      rescore bench decode --model DIR --heads MEDUSA --draft-model SMALL \
          --prompts prompts.jsonl --device cuda --dtype bfloat16 --json bench.json
      rescore bench decode --model model.gguf --engine llama.cpp --chat \
          --prompts prompts.jsonl --lm LM --batch 1 -o rounds.parquet
    """

    prompts: Path = option(
        "FILE|DUMP",
        "JSON lines with prompt, text or messages, or Spec-Bench's files, also packed; or a dump with prompts",
        Path,
        required=True,
    )
    limit: int = option("N", "prompts per task", int_between(1, 2**40), default=4)
    max_tokens: int = option("N", "greatest length of each text", int_between(2, 2**20), default=48)
    batch: Sequence[int] = option(
        "B", "texts per batch; repeatable (default: 1 and 8)", int_between(1, 4096), (1, 8), several=True
    )
    repeats: int = option("N", "rounds of all drafters", int_between(1, 1000), default=3, rare=True)
    only: Sequence[str] = option(
        "NAME",
        "a row of the table, or a drafter with all of its rows, to measure beside plain decoding; repeatable",
        several=True,
        rare=True,
    )
    out: Path | None = option(
        "FILE",
        "write a line for each pass of every round, for `rescore report --bench` and DuckDB (.parquet or .jsonl)",
        LINES,
        short="-o",
        rare=True,
    )
    markdown: Path | None = option("FILE", "write the tables as Markdown", Written(stream=True), rare=True)


def run(args: BenchDecodeArgs) -> Result:
    from rescore.decode.cli import bench_tables, output, screen
    from rescore.decode.cli.lazy_model import open_lazy_model, open_structure
    from rescore.decode.lab.bench.decoding import bench, machine_of
    from rescore.decode.lab.replay.table import ROUNDS, RecordWriter
    from rescore.decode.loop.generate import Options
    from rescore.decode.loop.request import Stopping
    from rescore.decode.models.open_target import use_threads
    from rescore.decode.verify.sampling import Sampling
    from rescore.decode.verify.shaping import Shaping

    if args.without:
        raise Misuse("--without: rows of the table leave sources out by themselves; choose rows with --only")
    use_threads(args.threads)
    model = open_lazy_model(args, args.model, heads=args.heads, engine=args.engine, threads=args.threads)
    structure = open_structure(args, model)
    plans = plans_asked(args, list(plans_of(args, model.facts)))
    tasks = prompts_of(args, model)
    longest = max(len(prompt) for prompts in tasks.values() for prompt in prompts)
    contenders = list(contenders_of(args, model, plans, longest))
    sampling = Sampling(temperature=args.temperature) if args.temperature else None
    options = Options(
        max_tokens=args.max_tokens,
        shaping=Shaping(sampling=sampling),
        stopping=Stopping(tokens=frozenset(model.ends)),
        structure=structure,
    )
    with ExitStack() as stack:
        lines = None
        if args.out:
            stream = stack.enter_context(atomic_file(args.out))
            lines = stack.enter_context(RecordWriter(stream, args.out.suffix, ROUNDS))
        bar = stack.enter_context(screen.progress_bar())
        rounds = bar.add_task("rounds", total=len(args.batch) * args.repeats * len(tasks) * (1 + len(contenders)))
        found = bench(
            model.opened.target,
            tasks,
            contenders,
            options,
            batches=args.batch,
            repeats=args.repeats,
            advance=lambda: bar.advance(rounds),
        )
        if lines:
            for measured in found:
                write_rounds(lines, args.prompts, measured)
        rows: list[dict[str, Any]] = [
            {
                "group": f"batch {measured[0].batch}",
                "case": {"batch": measured[0].batch},
                "engines": dict(figures_of(args, plans, measured)),
            }
            for measured in found
        ]
    different = sum(own["different_texts"] or 0 for row in rows for own in row["engines"].values())
    report = {
        "bench": "decode",
        "machine": machine_of(model.opened.target.device),
        "settings": {
            "model": str(args.model),
            "lm": [str(path) for path, _ in args.lm],
            "settings": args.settings and str(args.settings),
            "memory": args.memory and str(args.memory),
            "engine": args.engine,
            "chat": args.chat,
            "dtype": args.dtype or "as opened",
            "prompts": sum(map(len, tasks.values())),
            "max_tokens": args.max_tokens,
            "temperature": args.temperature,
            "repeats": args.repeats,
            "threads": args.threads,
        },
        "checked": [] if different else [EQUAL],
        "results": rows,
    }
    parts = list(bench_tables.parts_of(report))
    if args.markdown:
        output.write_text(args.markdown, bench_tables.markdown("rescore bench decode", parts))
    failed = f"{different} texts differ from plain decoding" if different and not args.temperature else ""
    return Result(report, parts, int(bool(failed)), failed)


def write_rounds(writer: RecordWriter, prompts: Path, measured: Sequence[SystemTimes]) -> None:
    from rescore.decode.lab.replay.table import write_lines

    for contest in measured:
        for task, one in contest.tasks.items():
            for number, lines in enumerate(one.lines()):
                group = {"dump": prompts, "task": task, "batch": contest.batch, "round": number}
                write_lines(writer, group, contest.name, lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A row of the table.

    kind     of our drafter; None for peers
    options  of `CommandSources.make`
    """

    name: str
    kind: str | None
    options: dict[str, Any] = field(default_factory=dict)


def plans_of(args: BenchDecodeArgs, model: ModelFacts) -> Iterator[Plan]:
    """Every drafter of the registry that the model and the arguments allow, and the engine's own."""
    from rescore.decode.lab.bench.huggingface import HUGGING_FACE

    peers: Iterable[str] = HUGGING_FACE if model.kind == "causal-lm" else ()
    if args.engine:
        from rescore.decode.lab.bench.llama_cpp import LLAMA_CPP as peers
    for spec in SPECS.values():
        for row in spec.rows if spec.name != "none" else ():
            if all(given(args, model, spec, need) for need in (*spec.needs, *row.needs)):
                yield from plans(spec, row, len(args.lm))
    yield from (Plan(name=name, kind=None) for name in peers)


def given(args: BenchDecodeArgs, model: ModelFacts, spec: Spec, need: str) -> bool:
    if need == "heads":
        return model.heads
    if need == "draft_model" and model.small:
        return True
    return bool(getattr(args, need) or (need == "lm" and "settings" in spec.options and args.settings))


def plans(spec: Spec, row: Row, lms: int) -> Iterator[Plan]:
    """A row at its sizes; none if it weighs one n-gram model and there are several."""
    if lms > 1 and spec.one_lm and "lm" not in row.without:
        return
    sizes, how = row.sizes or spec.sizes, {"row": row}
    if sizes.nodes == AUTO:
        for size in (*SIZES, AUTO):
            yield Plan(name=f"{row.title} {size}", kind=spec.name, options={**how, "nodes": size})
        return
    name, own = (row_name(row.title, SIZES[0]), {"nodes": SIZES[0]}) if sizes.nodes else (row.title, {})
    yield Plan(name=name, kind=spec.name, options={**how, **own})
    if (sizes.paths or 1) > 1:  # the paper's form
        yield Plan(name=f"{name}, rows", kind=spec.name, options={**how, **own, "layout": "rows"})


def contenders_of(args: BenchDecodeArgs, model: LazyModel, plans: Sequence[Plan], longest: int) -> Iterator[System]:
    """longest: tokens of the longest prompt."""
    from rescore.decode.cli.command_sources import CommandSources
    from rescore.decode.lab.bench.decoding import System
    from rescore.decode.lab.bench.huggingface import huggingface_contender
    from rescore.decode.models.located import locate_model

    sources, drawn = CommandSources(args, model), bool(args.temperature)
    sources.check_inputs()
    sources.frozen_memory()
    for plan in plans:
        if plan.kind:
            made = sources.make(plan.kind, **plan.options)
            yield System.of_drafter(model.opened.target, plan.name, made.drafter, made.layout)
            continue
        lm = sources.lms[0] if len(sources.lms) == 1 else None
        if args.engine:
            from rescore.decode.lab.bench.llama_cpp import llama_contender

            how: dict[str, Any] = {"context": longest + args.max_tokens + ROOM, "threads": args.threads, "drawn": drawn}
            yield llama_contender(locate_model(args.model), plan.name, lm, **how)
        else:
            target: Any = model.opened.target
            yield huggingface_contender(target.model, plan.name, lm, drawn=drawn)


def plans_asked(args: BenchDecodeArgs, plans: Sequence[Plan]) -> list[Plan]:
    """The plans named by --only, rows or drafters; or all."""
    names = [name for one in plans for name in (one.name, one.kind) if name]
    if unknown := [name for name in args.only if name not in names]:
        rows = ", ".join(one.name for one in plans)
        raise Misuse(f"--only {unknown[0]!r}: expected one of {rows}{did_you_mean(unknown[0], names)}")
    return [one for one in plans if not args.only or {one.name, one.kind} & {*args.only}]


def figures_of(
    args: BenchDecodeArgs, plans: Sequence[Plan], measured: Sequence[SystemTimes]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every contender's name and figures at one batch size. `payoff` says whether its drafts paid, None for peers."""
    from rescore.decode.cli.comparison import explain_payoff
    from rescore.decode.loop.payoff import Speedup

    by_name, plain = {plan.name: plan for plan in plans}, measured[0]
    for one in measured:
        figures, plan = {**one.to_json(plain), "payoff": None}, by_name.get(one.name)
        if plan and plan.kind:
            figures["payoff"] = explain_payoff(
                args,
                plan.kind,
                one.together.texts,
                plain.together.texts,
                Speedup(tuple(one.together.times(plain.together))),
                nodes=plan.options.get("nodes"),
            ).to_json()
        yield one.name, figures


def prompts_of(args: BenchDecodeArgs, model: LazyModel) -> dict[str, list[NDArray[np.int32]]]:
    """The first --limit prompts of every task."""
    from rescore.decode.loop.prompts import read_prompts
    from rescore.lattice.dump import Dump

    if not args.prompts.is_dir():
        read = read_prompts(args.prompts, model.facts.vocab_size, model.text, limit=args.limit)
        tasks = {task: [one.tokens for one in rows] for task, rows in read.items()}
    else:
        dump = Dump.open(args.prompts, allow_inexact=True)
        if dump.header.vocab_size != model.facts.vocab_size:
            raise ValueError(
                f"{args.prompts}: expected prompts of {model.facts.vocab_size} token ids, "
                f"got a dump of {dump.header.vocab_size}"
            )
        tasks = {task: of_dump(dump, task, args.limit) for task in dump.tasks}
    longest = max(len(prompt) for prompts in tasks.values() for prompt in prompts)
    model.check_length(str(args.prompts), longest, args.max_tokens)
    return tasks


def of_dump(dump: Dump, task: str, limit: int) -> list[NDArray[np.int32]]:
    return [prompt for prompt, _ in next(dump.blocks(task, rows=1 << 20)).texts[:limit]]
