"""What `rescore draw` does."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.arguments import Misuse
from rescore.decode.replay.worth import accepted_of_drafts, visited_rows
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.draw import draw_sausage
from rescore.lattice.draw_tree import draw_tree
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock

CONTEXT_TOKENS = 12  # shown in a picture's title
BEST = 4  # steps drawn by default


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnStep:
    """A row of a block, and how much further its rescored draft is accepted than its base draft.

    sequence, position: of the row, in its task.
    """

    gain: int
    block: DumpBlock
    row: int
    sequence: int
    position: int


def call(args: argparse.Namespace) -> None:
    check_arguments(args)
    (dump,) = models.open_dumps([args.dump], args)
    rescorer = models.open_rescorer(args, [dump])
    words = models.open_words(args, dump, rescorer)
    tasks = [name for name in dump.tasks if not args.task or name in args.task]
    with models.naming(dump):
        steps = (
            [one_step(dump, tasks[0], args)] if args.position is not None else best_steps(dump, tasks, rescorer, args)
        )
    args.out.mkdir(parents=True, exist_ok=True)
    written = []
    for step in steps:
        for name, picture in draw(dump, step, rescorer, words, args):
            with output.writing(args.out / name) as file:
                file.write(picture.encode("utf-8", "replace"))
            written.append(
                {
                    "file": str(args.out / name),
                    "task": step.block.task,
                    "sequence": step.sequence,
                    "position": step.position,
                    "gain": step.gain,
                }
            )
    output.report(args, {"dump": str(dump.path), "pictures": written}, *(str(one["file"]) for one in written))


def check_arguments(args: argparse.Namespace) -> None:
    if args.sequence is not None and args.position is None:
        raise Misuse("--sequence says where --position counts: give --position as well")
    if args.position is not None and args.best is not None:
        raise Misuse("--best picks steps and --position names one: give one of the two")
    if args.position is not None and len(set(args.task or ())) > 1:
        raise Misuse("--position is of one task: give --task once")
    if args.out.exists() and not args.out.is_dir():
        raise Misuse(f"{args.out}: expected a folder to write pictures to, got a file")
    for path in filter(None, (args.out / "picture.svg", args.json)):
        output.check_place(path)


def one_step(dump: Dump, task: str, args: argparse.Namespace) -> DrawnStep:
    wanted, first = args.sequence or 0, 0
    for block in dump.blocks(task):
        if wanted - first < block.sequences:
            begin, end = block.offsets[wanted - first : wanted - first + 2].tolist()
            if args.position >= end - begin - 1:
                has = f"has lattices at 0 to {end - begin - 2}" if end - begin > 1 else "is one token long and has none"
                raise Misuse(f"--position {args.position}: sequence {wanted} of task {task!r} {has}")
            return DrawnStep(gain=0, block=block, row=begin + args.position, sequence=wanted, position=args.position)
        first += block.sequences
    raise Misuse(f"--sequence {wanted}: task {task!r} of {dump.path} has {first} sequences, numbered from 0")


def best_steps(dump: Dump, tasks: list[str], rescorer: Rescorer, args: argparse.Namespace) -> list[DrawnStep]:
    """The steps of the base replay at which the best rescored draft is accepted furthest beyond the base draft."""
    steps: list[DrawnStep] = []
    with output.progress_bar() as bar:
        progress = bar.add_task(
            str(dump.path), total=sum(task.rows for task in dump.header.tasks if task.name in tasks)
        )
        for task in tasks:
            first = 0
            for block in dump.blocks(task):
                steps = sorted([*steps, *gains(block, first, rescorer, args)], key=lambda step: -step.gain)[
                    : args.best or BEST
                ]
                first += block.sequences
                bar.advance(progress, block.rows)
    return steps


def gains(block: DumpBlock, first: int, rescorer: Rescorer, args: argparse.Namespace) -> Iterator[DrawnStep]:
    """The steps of a block that the base draft visits; `first`: sequences of the task before it."""
    sausages, truth, sequence_of = block.sausages(k=args.top_k), block.truth(), block.sequence_of
    drafts = rescorer.paths(sausages, block.histories(slice(None), rescorer.context), 1, semantics=args.semantics)
    base = accepted_of_drafts(sausages.first[:, None], truth)
    gain = accepted_of_drafts(drafts.tokens, truth) - base
    for row in visited_rows(base, block.offsets).tolist():
        sequence = int(sequence_of[row])
        yield DrawnStep(
            gain=int(gain[row]),
            block=block,
            row=row,
            sequence=first + sequence,
            position=row - int(block.offsets[sequence]),
        )


def draw(
    dump: Dump, step: DrawnStep, rescorer: Rescorer, words: Sequence[str] | None, args: argparse.Namespace
) -> Iterator[tuple[str, str]]:
    """The lattice and the tree of a step, as (name of the file, SVG)."""
    block, row = step.block, step.row
    sausage = block.sausages([row], args.top_k)[0]
    history = block.history(row, max(rescorer.context, CONTEXT_TOKENS))
    drafts = rescorer.paths(sausage, history, args.paths, semantics=args.semantics)
    text = "".join(words[token] for token in history.tolist()) if words else " ".join(map(str, history.tolist()))
    name = f"{dump.header.kind}-{file_part(dump, block.task)}-{step.sequence}-{step.position}"
    common: dict[str, Any] = {
        "words": words,
        "truth": block.truth([row])[0],
        "certain": int(block.tokens[row]),
        "title": f"{block.task}, after: {text}",
    }
    yield f"{name}-lattice.svg", draw_sausage(sausage, after=drafts.tokens[: int(drafts.count)], **common)
    yield f"{name}-tree.svg", draw_tree(rescorer.tree(sausage, history, args.nodes), **common)


def file_part(dump: Dump, task: str) -> str:
    """The task in the name of a file; numbered where that is not the task's own name, so that no two are the same."""
    plain = re.sub(r"[^A-Za-z0-9_.+]", "_", task)[:80]
    return plain if plain == task else f"{plain}.{dump.tasks.index(task)}"
