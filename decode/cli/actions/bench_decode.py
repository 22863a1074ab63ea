"""Runs `rescore bench decode`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.decode.bench.decoding import Contender, Contest, bench
from rescore.decode.bench.huggingface import HUGGING_FACE, huggingface_contender
from rescore.decode.bench.results import BenchReport, BenchRow, bench_machine
from rescore.decode.cli.actions import bench_tables, output
from rescore.decode.cli.actions.bench_tables import TablePart
from rescore.decode.cli.actions.decoders import Decoder, open_decoder, open_structure
from rescore.decode.cli.actions.drafter_inputs import Drafters
from rescore.decode.cli.actions.explained import explained, measure_of
from rescore.decode.cli.actions.output import Column
from rescore.decode.cli.arguments import Misuse, meant
from rescore.decode.draft.names import sized
from rescore.decode.draft.registry import SPECS, Spec
from rescore.decode.loop.generate import Options
from rescore.decode.loop.prompts import read_prompts
from rescore.decode.loop.speedup import Speedup
from rescore.decode.loop.stopping import Stopping
from rescore.decode.models.located import located
from rescore.decode.models.model_facts import ModelFacts
from rescore.decode.models.target import Target
from rescore.decode.replay.table import ROUNDS, RecordWriter, write_lines
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.dump import Dump

if TYPE_CHECKING:
    from rescore.decode.bench.llama_cpp import LlamaPeers

SIZES = (16, 64)  # of trees, beside auto
BATCHES = [1, 8]
ROOM = 64  # tokens reserved for drafts after the longest text, in engines with a fixed context
PACKAGES = ("rescore", "torch", "transformers", "numpy")


def call(args: argparse.Namespace) -> int:
    torch.set_num_threads(args.threads)
    decoder = open_decoder(args)
    structure = open_structure(args, decoder)
    plans = chosen(args, list(plans_of(args, decoder.facts)))
    tasks = prompts_of(args, decoder)
    longest = max(len(prompt) for prompts in tasks.values() for prompt in prompts)
    contenders = list(contenders_of(args, decoder, plans, longest))
    batches = args.batch or BATCHES
    sampling = Sampling(temperature=args.temperature) if args.temperature else None
    options = Options(
        max_tokens=args.max_tokens,
        shaping=Shaping(sampling=sampling),
        stopping=Stopping(tokens=frozenset(decoder.ends)),
        structure=structure,
    )
    with ExitStack() as stack:
        lines = None
        if args.out:
            stream = stack.enter_context(output.writing(args.out))
            lines = stack.enter_context(RecordWriter(stream, args.out.suffix, ROUNDS))
        bar = stack.enter_context(output.progress_bar())
        rounds = bar.add_task("rounds", total=len(batches) * args.repeats * len(tasks) * (1 + len(contenders)))
        found = bench(
            decoder.model.target,
            tasks,
            contenders,
            options,
            batches=batches,
            repeats=args.repeats,
            advance=lambda: bar.advance(rounds),
        )
        if lines:
            for measured in found:
                write_rounds(lines, args.prompts, measured)
        rows = bench_tables.of_drafters(
            figures for measured in found for figures in figures_of(args, decoder.model.target, plans, measured)
        )
    different = sum(own["different_texts"] or 0 for row in rows for own in row.engines.values())
    report = BenchReport(
        bench="decode",
        machine=facts_of(decoder.model.target.device),
        settings={
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
        checked=() if different else ("texts of all drafters with those of plain decoding, except for sampled drafts",),
        rows=tuple(rows),
    )
    bench_tables.finish(
        args,
        report,
        [
            f"{args.model}: {report.settings['prompts']} prompts, {args.max_tokens} tokens, "
            f"{report.settings['dtype']}, {args.repeats} rounds, {args.threads} threads"
        ],
        parts(rows),
        [line for row in rows for line in unpaid(row)],
    )
    if not different or args.temperature:
        return 0
    print(f"rescore: {different} texts differ from plain decoding", file=sys.stderr)
    return 1


def write_rounds(writer: RecordWriter, prompts: Path, measured: Sequence[Contest]) -> None:
    for contest in measured:
        for task, one in contest.tasks.items():
            for number, lines in enumerate(one.lines()):
                group = {"dump": prompts, "task": task, "batch": contest.batch, "round": number}
                write_lines(writer, group, contest.name, lines)


def facts_of(device: torch.device) -> dict[str, object]:
    """The machine, and the device that ran the passes."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return {**bench_machine(*PACKAGES), "device": name, "torch_threads": torch.get_num_threads()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A row of the table.

    kind     of our drafter; None for peers
    options  that override the command line
    """

    name: str
    kind: str | None
    options: dict[str, Any] = field(default_factory=dict)


def plans_of(args: argparse.Namespace, model: ModelFacts) -> Iterator[Plan]:
    """Every drafter of the registry that the model and the arguments allow, and the engine's own."""
    for spec in SPECS.values():
        if spec.name != "none" and all(given(args, model, spec, need) for need in spec.needs):
            yield from plans(spec, model.trees or model.recurrent, len(args.lm))
    if args.engine:
        yield from (Plan(name=name, kind=None) for name in llama_names())
    elif model.kind == "causal-lm":
        yield from (Plan(name=name, kind=None) for name in HUGGING_FACE)


def given(args: argparse.Namespace, model: ModelFacts, spec: Spec, need: str) -> bool:
    if need == "heads":
        return model.heads
    return bool(getattr(args, need) or (need == "lm" and "settings" in spec.options and args.settings))


def plans(spec: Spec, trees: bool, lms: int) -> Iterator[Plan]:
    """A drafter at its sizes; none if it weighs one n-gram model and there are several."""
    if lms > 1 and "lm" in spec.options and "alpha" not in spec.options:
        return
    nodes = spec.options.get("nodes")
    if nodes == "auto":
        for size in (*SIZES, "auto") if trees else ():
            yield Plan(name=f"{spec.name} {size}", kind=spec.name, options={"nodes": size})
        return
    name, options = (sized(spec.name, SIZES[0]), {"nodes": SIZES[0]}) if nodes else (spec.name, {})
    yield Plan(name=name, kind=spec.name, options=options)
    if trees and spec.options.get("paths", 1) > 1:  # the paper's form
        yield Plan(name=f"{name}, rows", kind=spec.name, options={"layout": "rows"})


def llama_names() -> tuple[str, ...]:
    from rescore.decode.bench.llama_cpp import LLAMA_CPP

    return LLAMA_CPP


def llama_peers(args: argparse.Namespace, longest: int) -> LlamaPeers:
    from rescore.decode.bench.llama_cpp import LlamaPeers

    return LlamaPeers(located(args.model), context=longest + args.max_tokens + ROOM, threads=args.threads)


def contenders_of(
    args: argparse.Namespace, decoder: Decoder, plans: Sequence[Plan], longest: int
) -> Iterator[Contender]:
    """longest: tokens of the longest prompt."""
    drafters = Drafters(args, decoder, args.threads)
    drafters.check_inputs()
    if args.memory:
        drafters.inputs.frozen_memory()
    for plan in plans:
        if plan.kind:
            made = drafters.make(plan.kind, **plan.options)
            yield Contender.of_drafter(decoder.model.target, plan.name, made.drafter, made.layout)
        elif args.engine:
            models = drafters.inputs.lms()
            yield llama_peers(args, longest).contender(
                plan.name, models[0] if len(models) == 1 else None, drawn=bool(args.temperature)
            )
        else:
            target: Any = decoder.model.target
            yield huggingface_contender(target.model, plan.name, drawn=bool(args.temperature))


def chosen(args: argparse.Namespace, plans: Sequence[Plan]) -> list[Plan]:
    """The plans named by --only, rows or drafters; or all."""
    names = [name for one in plans for name in (one.name, one.kind) if name]
    if unknown := [name for name in args.only if name not in names]:
        rows = ", ".join(one.name for one in plans)
        raise Misuse(f"--only {unknown[0]!r}: expected one of {rows}{meant(unknown[0], names)}")
    return [one for one in plans if not args.only or {one.name, one.kind} & {*args.only}]


def figures_of(
    args: argparse.Namespace, target: Target, plans: Sequence[Plan], measured: Sequence[Contest]
) -> Iterator[dict[str, Any]]:
    """The figures of every contender at one batch size. `payoff` says whether its drafts paid, None for peers."""
    by_name, plain = {plan.name: plan for plan in plans}, measured[0]
    costs = measure_of(target, plain.batch)
    for one in measured:
        figures, plan = one.to_json(plain), by_name.get(one.name)
        figures["payoff"] = None
        if plan and plan.kind:
            figures["payoff"] = explained(
                args,
                plan.kind,
                one.together.texts,
                plain.together.texts,
                Speedup(tuple(one.together.times(plain.together))),
                costs,
                nodes=plan.options.get("nodes"),
                rows=plain.batch,
            ).to_json()
        yield figures


def prompts_of(args: argparse.Namespace, decoder: Decoder) -> dict[str, list[NDArray[np.int32]]]:
    """The first --limit prompts of every task."""
    if not args.prompts.is_dir():
        read = read_prompts(args.prompts, decoder.facts.vocab_size, decoder.text, limit=args.limit)
        tasks = {task: [one.tokens for one in rows] for task, rows in read.items()}
    else:
        dump = Dump.open(args.prompts, allow_inexact=True)
        if dump.header.vocab_size != decoder.facts.vocab_size:
            raise ValueError(
                f"{args.prompts}: expected prompts of {decoder.facts.vocab_size} token ids, "
                f"got a dump of {dump.header.vocab_size}"
            )
        tasks = {task: of_dump(dump, task, args.limit) for task in dump.tasks}
    longest = max(len(prompt) for prompts in tasks.values() for prompt in prompts)
    context = decoder.facts.longest
    if context is not None and longest + args.max_tokens > context:
        raise ValueError(
            f"{args.prompts}: {longest} tokens and --max-tokens {args.max_tokens}: expected at most {context} "
            "together, the model's context; shorten one of them"
        )
    return tasks


def of_dump(dump: Dump, task: str, limit: int) -> list[NDArray[np.int32]]:
    block = next(dump.blocks(task, rows=1 << 20))
    return [
        block.prompt_tokens[slice(*block.prompt_offsets[s : s + 2])].astype(np.int32)
        for s in range(min(limit, block.sequences))
    ]


def parts(rows: list[BenchRow]) -> list[TablePart]:
    found = []
    for row in rows:
        own = list(row.engines.values())
        columns = [
            Column("tokens/s", [spread(one["tokens_per_s"], ".1f") for one in own]),
            Column("x plain", [spread(one["mean_times_plain"], ".2f") for one in own]),
            Column("tokens/pass", [f"{one['tokens_per_pass']:.2f}" for one in own]),
            Column("drafted", [f"{one['drafted_per_pass']:.1f}" for one in own]),
            Column("drafting", [f"{one['drafting_share']:.0%}" for one in own]),
            Column("needed", [f"{one['payoff']['needed_per_pass']:.2f}" if one["payoff"] else "-" for one in own]),
            Column("differ", ["-" if one["different_texts"] is None else str(one["different_texts"]) for one in own]),
        ]
        found.append(TablePart(title=row.group, header="drafter", labels=list(row.engines), columns=columns))
        tasks = list(own[0]["tasks"])
        if len(tasks) > 1:
            for title, figure in (
                ("tokens per second, ratio to plain", "times_plain"),
                ("the same after the prompts", "times_plain_behind_prompts"),
                ("tokens per pass", "tokens_per_pass"),
            ):
                found.append(of_tasks(f"{row.group}, {title}", row, tasks, figure))
    return found


def unpaid(row: BenchRow) -> Iterator[str]:
    """Lines that say why drafts did not pay, and what to try."""
    for name, one in row.engines.items():
        if one["payoff"] and not one["payoff"]["pays"]:
            yield f"{row.group}, {name}"
            yield from (f"  {what}  {line}" for what in ("why", "try") for line in one["payoff"][what])


def of_tasks(title: str, row: BenchRow, tasks: list[str], figure: str) -> TablePart:
    """A figure for every task, and its mean over tasks."""

    def value(one: dict[str, Any]) -> float:
        found = one[figure]["median"] if isinstance(one[figure], dict) else one[figure]
        return np.nan if found is None else found

    def cell(found: float) -> str:
        return "-" if np.isnan(found) else f"{found:.2f}"

    cells = [[value(one["tasks"][task]) for task in tasks] for one in row.engines.values()]
    columns = [Column(task, [cell(of[i]) for of in cells]) for i, task in enumerate(tasks)]
    means = Column("mean", [cell(float(np.mean(of))) for of in cells])
    return TablePart(title=title, header="drafter", labels=list(row.engines), columns=[*columns, means])


def spread(value: dict[str, float], form: str) -> str:
    """The median, with minimum and maximum."""
    return f"{value['median']:{form}} ({value['min']:{form}}-{value['max']:{form}})"
