"""Runs `rescore dump make`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rescore.decode.cli.actions import dump_info, output
from rescore.decode.cli.actions.decoders import open_decoder
from rescore.decode.cli.arguments import Misuse, printable
from rescore.decode.loop.continuations import ContinuationOptions
from rescore.decode.loop.dump_make import DumpSource, check_lengths, make_dump, provenance
from rescore.decode.loop.prompts import read_prompts
from rescore.decode.models.located import located
from rescore.decode.verify.sampling import Sampling
from rescore.lattice.dump import Dump
from rescore.lattice.dump_writer import kept_sequences
from rescore.lattice.unfinished import work_beside

SAMPLING = {"temperature": 0.7, "top_p": 1.0, "seed": 1}


def call(args: argparse.Namespace) -> None:
    given = {name: getattr(args, name) for name in SAMPLING if getattr(args, name) is not None}
    if given and args.kind != "sampled":
        raise Misuse(f"--{next(iter(given)).replace('_', '-')}: only for --kind sampled, got --kind {args.kind}")
    if args.out.exists():
        raise FileExistsError(f"{args.out}: expected a new folder, got one that exists; remove it, or write to another")
    sampling = Sampling(**{**SAMPLING, **given}) if args.kind == "sampled" else None
    decoder = open_decoder(args)
    options = ContinuationOptions(
        kind=args.kind,
        top_k=args.top_k,
        max_tokens=args.max_tokens,
        end_of_text=decoder.ends[0],
        sampling=sampling,
        rows=args.rows,
    )
    tasks = read_prompts(
        args.prompts, decoder.facts.vocab_size, decoder.text, limit=args.limit, references=args.kind == "forced"
    )
    check_lengths(tasks, args.max_tokens, decoder.facts.context)
    source = DumpSource(
        model=decoder.model,
        tokenizer=decoder.tokenizer,
        name=args.name or args.model.name,
        provenance=provenance(
            located(args.model),
            args.prompts,
            max_tokens=args.max_tokens,
            limit=args.limit,
            rows=args.rows,
            device=args.device or "cpu",
            dtype=args.dtype,
            heads=args.heads,
            chat=args.chat,
        ),
    )
    texts = sum(map(len, tasks.values()))
    with output.resumable(lambda: kept(args.out, texts)), output.progress_bar() as bar:
        row = bar.add_task("", total=texts)
        make_dump(
            args.out,
            source,
            tasks,
            options,
            advance=lambda task, done: bar.update(row, description=printable(task), completed=done),
        )
    info = {"dump": str(args.out), **Dump.open(args.out).info(), "verified": False}
    output.report(args, info, *dump_info.tables(info, output.width()))


def kept(out: Path, texts: int) -> str:
    """What an unfinished dump keeps."""
    found = kept_sequences(out)
    return f"{found:,} of {texts:,} texts are kept in {work_beside(out)}" if found else ""
