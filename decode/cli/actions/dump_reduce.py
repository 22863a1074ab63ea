"""Runs `rescore dump reduce`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from rescore.decode.cli.actions import dump_info, output
from rescore.decode.cli.arguments import Misuse
from rescore.lattice.dump_header import DumpHeader
from rescore.lattice.logits_file import LogitsSource, open_logits, reduce_logits

SAMPLING = ("temperature", "top_p", "seed")


def call(args: argparse.Namespace) -> None:
    if args.out.exists():
        raise FileExistsError(f"{args.out}: expected a new folder, got one that exists; remove it, or write to another")
    sampling, sources = sampling_of(args), sources_of(args)
    found = [describe(source) for source in sources]
    tokenizer = tokenizer_of(args, found[0]["shape"][2])
    header = DumpHeader(
        model=args.name or args.logits[0].stem,
        tokenizer_sha256=tokenizer and tokenizer.sha256,
        vocab_size=found[0]["shape"][2],
        heads=found[0]["shape"][1],
        top_k=args.top_k,
        kind=args.kind,
        end_of_text=tokenizer and tokenizer.end_of_text,
        provenance={"logits": found},
        **sampling,
    )
    with output.progress_bar() as bar:
        done = bar.add_task("rows", total=sum(one["shape"][0] for one in found))
        dump = reduce_logits(sources, args.out, header, advance=partial(bar.advance, done))
    info = {"dump": str(args.out), **dump.info(), "verified": False}
    output.report(args, info, *dump_info.tables(info, output.width()))


def sampling_of(args: argparse.Namespace) -> dict[str, Any]:
    """Temperature, top_p and seed of sampled text; empty for other kinds."""
    given = {name: getattr(args, name) for name in SAMPLING if getattr(args, name) is not None}
    if args.kind != "sampled":
        if given:
            raise Misuse(f"--{next(iter(given)).replace('_', '-')}: only for --kind sampled, got --kind {args.kind}")
        return {}
    if "temperature" not in given:
        raise Misuse(
            "--kind sampled: expected --temperature of the sampled text; if it or the seeds are unknown, use "
            "--kind forced"
        )
    return {"top_p": 1.0, **given}


def sources_of(args: argparse.Namespace) -> list[LogitsSource]:
    """The files of logits with their tasks and texts."""
    for name in ("tokens", "task"):
        if (given := len(getattr(args, name))) not in (0, len(args.logits)):
            raise Misuse(f"--{name}: expected one for each of the {len(args.logits)} files of logits, got {given}")
    names = args.task or [path.stem for path in args.logits]
    if not args.task and len(set(names)) < len(names):
        raise Misuse(
            f"{' '.join(map(str, args.logits))}: expected different file names, since they name the tasks; "
            "name the tasks with --task"
        )
    return [
        LogitsSource(task=task, logits=path, texts=texts)
        for task, path, texts in zip(names, args.logits, args.tokens or [None] * len(names))
    ]


def describe(source: LogitsSource) -> dict[str, Any]:
    """A file of logits for the provenance in dump.json."""
    with open_logits(source.logits) as logits:
        return {
            "task": source.task,
            "file": source.logits.name,
            "shape": list(logits.shape),
            "dtype": logits.dtype,
            "bytes": source.logits.stat().st_size,
        }


def tokenizer_of(args: argparse.Namespace, vocab_size: int) -> Any:
    path: Path | None = args.tokenizer
    if path is None:
        if args.end_of_text:
            raise Misuse("--end-of-text needs --tokenizer, which has the token's id")
        return None
    from rescore.lm.tokenizer import TextTokenizer

    tokenizer = TextTokenizer.open(path, args.end_of_text)
    if tokenizer.vocab_size > vocab_size:
        raise ValueError(
            f"{path}: expected at most the V = {vocab_size} tokens of {args.logits[0]}, got {tokenizer.vocab_size}; "
            "give the tokenizer of the model that made them"
        )
    return tokenizer
