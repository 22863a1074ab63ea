"""Runs `rescore dump make`."""

from __future__ import annotations

import argparse

from rescore.decode.cli.actions import dump_info, output
from rescore.decode.cli.actions.decoders import open_decoder
from rescore.decode.cli.arguments import Misuse
from rescore.decode.loop.continuations import ContinuationOptions
from rescore.decode.loop.dump_make import DumpSource, check_lengths, make_dump, provenance
from rescore.decode.loop.prompts import read_prompts
from rescore.decode.models.gguf import gguf_file
from rescore.decode.verify.sampling import Sampling
from rescore.lattice.dump import Dump

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
            gguf_file(args.model) or args.model,
            args.prompts,
            max_tokens=args.max_tokens,
            limit=args.limit,
            heads=args.heads,
            chat=args.chat,
        ),
    )
    with output.progress_bar() as bar:
        rows = {task: bar.add_task(task, total=len(prompts)) for task, prompts in tasks.items()}
        make_dump(args.out, source, tasks, options, advance=lambda task: bar.advance(rows[task]))
    info = {"dump": str(args.out), **Dump.open(args.out).info(), "verified": False}
    output.report(args, info, *dump_info.tables(info, output.width()))
