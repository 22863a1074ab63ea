"""What `rescore bench decode` does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.decode.bench.decoding import Contender, bench
from rescore.decode.bench.huggingface import huggingface_contenders
from rescore.decode.bench.recycling import RecyclingDrafter
from rescore.decode.bench.results import BenchReport, BenchRow, bench_machine
from rescore.decode.cli.actions import bench_replay, bench_tables, output
from rescore.decode.cli.actions.bench_tables import TablePart
from rescore.decode.cli.actions.columns import Column
from rescore.decode.cli.actions.decoders import Decoder, open_decoder
from rescore.decode.cli.actions.drafting import Drafters
from rescore.decode.cli.arguments import Misuse
from rescore.decode.loop.generate import Options
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.loop.prompts import read_prompts
from rescore.decode.loop.stopping import Stopping
from rescore.decode.verify.sampling import Sampling
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.dump import Dump

SIZES = (16, 32, 64)  # of trees, beside auto
BATCHES = [1, 8]
PACKAGES = ("rescore", "torch", "transformers", "numpy")


def call(args: argparse.Namespace) -> int:
    bench_tables.check_places(args)
    torch.set_num_threads(args.threads)
    if args.replay:
        return bench_replay.call(args)
    if args.shape:
        raise Misuse("--shape: is for --replay; --model says what is decoded")
    for name in ("model", "prompts"):
        if getattr(args, name) is None:
            raise Misuse(f"--{name}: expected one, or --replay for timing without a trained model")
    decoder = open_decoder(args)
    contenders = chosen(args, list(contenders_of(args, decoder)))
    tasks = prompts_of(args, decoder)
    batches = args.batch or BATCHES
    sampling = Sampling(temperature=args.temperature) if args.temperature else None
    options = Options(
        max_tokens=args.max_tokens,
        shaping=Shaping(sampling=sampling),
        stopping=Stopping(tokens=frozenset(decoder.ends)),
    )
    with output.progress_bar() as bar:
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
    rows = bench_tables.of_drafters(one.to_json(measured[0]) for measured in found for one in measured)
    different = sum(own["different_texts"] or 0 for row in rows for own in row.engines.values())
    report = BenchReport(
        bench="decode",
        machine=facts_of(decoder.model.target.device),
        settings={
            "model": str(args.model),
            "lm": [str(path) for path, _ in args.lm],
            "settings": args.settings and str(args.settings),
            "chat": args.chat,
            "dtype": args.dtype or "as opened",
            "prompts": sum(map(len, tasks.values())),
            "max_tokens": args.max_tokens,
            "temperature": args.temperature,
            "repeats": args.repeats,
            "threads": args.threads,
        },
        checked=()
        if different
        else ("the texts of all drafters and of plain decoding, but those of drafts that are drawn",),
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
    )
    if not different or args.temperature:
        return 0
    print(f"rescore: {different} texts are not those of plain decoding", file=sys.stderr)
    return 1


def facts_of(device: torch.device) -> dict[str, object]:
    """The machine, and the device that passes ran on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return {**bench_machine(*PACKAGES), "device": name, "torch_threads": torch.get_num_threads()}


def contenders_of(args: argparse.Namespace, decoder: Decoder) -> Iterator[Contender]:
    """Every drafter that the model and what was given allow."""
    drafters, trees = Drafters(args, decoder, args.threads), decoder.model.target.trees

    def one(name: str, kind: str, **options: Any) -> Contender:
        made = drafters.make(kind, **options)
        return Contender.of_drafter(decoder.model.target, name, made.drafter, made.layout)

    if decoder.model.heads:
        yield one("base", "base")
        if args.lm:
            yield one("rescored", "rescored")
        paths = args.paths or 16
        yield one(f"parallel {paths}, rows", "parallel", layout="rows")
        if trees:
            yield one(f"parallel {paths}, tree", "parallel", layout="tree")
            for nodes in (*SIZES, "auto"):
                yield one(f"tree {nodes}", "tree", nodes=nodes)
            for kind in ("tuned", "open") if args.settings else ("open",) if len(args.lm) == 1 else ():
                for nodes in (*SIZES, "auto"):
                    yield one(f"{kind} {nodes}", kind, nodes=nodes)
        if args.neural:
            yield one("neural", "neural", paths=1)
    if args.draft_model:
        yield one(f"draft model, {args.ahead or 4}", "draft")
    if len(args.lm) == 1:
        yield one("ngram 16", "ngram", nodes=16)
    if trees and not decoder.model.heads:
        for nodes in (*SIZES, "auto"):
            yield one(f"blend {nodes}", "blend", nodes=nodes)
        target = decoder.model.target
        yield Contender.of_drafter(target, "token recycling 80", RecyclingDrafter(), TreeLayout())
    if decoder.model.kind == "causal-lm":
        model: Any = decoder.model.target
        yield from huggingface_contenders(model.model, drawn=bool(args.temperature))


def chosen(args: argparse.Namespace, contenders: list[Contender]) -> list[Contender]:
    """Those of --only."""
    names = [one.name for one in contenders]
    if unknown := [name for name in args.only if name not in names]:
        raise Misuse(f"--only {unknown[0]!r}: expected one of {', '.join(names)}")
    return [one for one in contenders if not args.only or one.name in args.only]


def prompts_of(args: argparse.Namespace, decoder: Decoder) -> dict[str, list[NDArray[np.int32]]]:
    """The first prompts of every task."""
    if not args.prompts.is_dir():
        read = read_prompts(args.prompts, decoder.model.vocab_size, decoder.text, limit=args.limit)
        tasks = {task: [one.tokens for one in rows] for task, rows in read.items()}
    else:
        dump = Dump.open(args.prompts, allow_inexact=True)
        if dump.header.vocab_size != decoder.model.vocab_size:
            raise ValueError(
                f"{args.prompts}: expected prompts of {decoder.model.vocab_size} token ids, "
                f"got a dump of {dump.header.vocab_size}"
            )
        tasks = {task: of_dump(dump, task, args.limit) for task in dump.tasks}
    longest = max(len(prompt) for prompts in tasks.values() for prompt in prompts)
    context = decoder.model.target.context
    if context is not None and longest + args.max_tokens > context:
        raise ValueError(
            f"{args.prompts}: expected prompts of at most {context - args.max_tokens} tokens (the context less "
            f"--max-tokens), got {longest}"
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
            Column("differ", ["-" if one["different_texts"] is None else str(one["different_texts"]) for one in own]),
        ]
        found.append(TablePart(title=row.group, header="drafter", labels=list(row.engines), columns=columns))
        tasks = list(own[0]["tasks"])
        if len(tasks) > 1:
            for title, figure in (
                ("tokens a second over those of plain", "times_plain"),
                ("tokens a pass", "tokens_per_pass"),
            ):
                found.append(of_tasks(f"{row.group}, {title}", row, tasks, figure))
    return found


def of_tasks(title: str, row: BenchRow, tasks: list[str], figure: str) -> TablePart:
    """A figure of every task, and its mean over them."""

    def value(one: dict[str, Any]) -> float:
        return one[figure]["median"] if isinstance(one[figure], dict) else one[figure]

    cells = [[value(one["tasks"][task]) for task in tasks] for one in row.engines.values()]
    columns = [Column(task, [f"{of[i]:.2f}" for of in cells]) for i, task in enumerate(tasks)]
    means = Column("mean", [f"{np.mean(of):.2f}" for of in cells])
    return TablePart(title=title, header="drafter", labels=list(row.engines), columns=[*columns, means])


def spread(value: dict[str, float], form: str) -> str:
    """The median, and the least and the most."""
    return f"{value['median']:{form}} ({value['min']:{form}}-{value['max']:{form}})"
