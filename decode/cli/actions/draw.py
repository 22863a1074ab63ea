"""Runs `rescore draw`."""

from __future__ import annotations

import argparse
import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.cli.actions import models, output, pictures
from rescore.decode.cli.arguments import Misuse
from rescore.decode.cli.draw import OUT
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.replay import accepted_of_drafts, tree_at, visited_rows
from rescore.decode.replay.rows import check_dump
from rescore.lattice.compose import below, wide
from rescore.lattice.draw import draw_sausage
from rescore.lattice.draw_tree import draw_tree
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock

CONTEXT_TOKENS = 12  # of the running text, shown in a picture's title
BEST = 4  # steps drawn by default


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnStep:
    """A row of a block.

    gain                accepted tokens of the rescored draft minus those of the base draft
    sequence, position  of the row, in its task
    """

    gain: int
    block: DumpBlock
    row: int
    sequence: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDrafting:
    """A rescorer that drafts trees, and its name."""

    name: str
    rescorer: Rescorer


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What is drawn.

    strings  drafts paths of the lattice
    trees    by the suffix of their files
    top_k    candidates per slot; None for all in the dump
    """

    strings: Rescorer
    trees: Mapping[str, TreeDrafting]
    top_k: int | None


def call(args: argparse.Namespace) -> None:
    check_arguments(args)
    (dump,) = models.open_dumps([args.dump], args)
    if dump.header.heads == 1:
        raise Misuse(f"{dump.path}: a dump of a model without heads has no lattices to draw")
    drawn, rescorer = drafting(args, dump)
    words = models.open_words(args, dump, rescorer)
    tasks = [name for name in dump.tasks if not args.task or name in args.task]
    with models.naming(dump):
        steps = [one_step(dump, tasks[0], args)] if args.position is not None else best_steps(dump, tasks, drawn, args)
    written = []
    for step in steps:
        for path, picture in files(dump, step, drawn, words, args):
            pictures.write(path, picture)
            written.append(
                {
                    "file": str(path),
                    "task": step.block.task,
                    "sequence": step.sequence,
                    "position": step.position,
                    "gain": step.gain,
                }
            )
    names = [] if is_file(args.out) else [str(one["file"]) for one in written]
    if names:  # in place of the folder
        args.outputs = [one for one in args.outputs if not one.folder]
    output.report(args, {"dump": str(dump.path), "pictures": written}, *names)


def check_arguments(args: argparse.Namespace) -> None:
    if args.sequence is not None and args.position is None:
        raise Misuse("--sequence needs --position")
    if args.position is not None and args.best is not None:
        raise Misuse("--best, --position: expected at most one of them")
    if args.position is not None and len(set(args.task or ())) > 1:
        raise Misuse("--position needs a single task: give --task once")
    if is_file(args.out):
        if args.best not in (None, 1):
            raise Misuse(f"-o {args.out}: a file holds one step: give a folder, or --best 1")
        if args.format not in (None, args.out.suffix[1:]):
            raise Misuse(f"--format {args.format}: contradicts -o {args.out}")
        args.best = None if args.position is not None else 1
    elif not args.out.is_dir() and mimetypes.guess_type(args.out.name)[0]:  # a file of another kind
        raise Misuse(f"-o {args.out}: expected a folder, or a name that ends in {' or '.join(OUT.suffixes)}")
    if args.settings and (args.lm or args.alpha is not None):
        raise Misuse("--lm, --alpha: --settings already has models and weights; leave them out")
    if args.settings and args.top_k is not None:
        raise Misuse("--top-k: --settings already has the top-k it was tuned for; leave it out")
    pictures.check_format(form(args))


def is_file(path: Path) -> bool:
    """Whether a path names a picture rather than a folder."""
    return not OUT.is_folder(path)


def form(args: argparse.Namespace) -> str:
    return args.out.suffix[1:] if is_file(args.out) else args.format or "svg"


def drafting(args: argparse.Namespace, dump: Dump) -> tuple[Drawn, Rescorer]:
    """The drafters of the settings, else of the models; and the models' rescorer."""
    found = models.open_settings(args)
    rescorer = models.open_rescorer(args, [dump])
    if found is None:
        name = "tree" if rescorer.models else "heads-tree"
        trees: dict[str, TreeDrafting] = {"tree": TreeDrafting(name=name, rescorer=rescorer)}
        if len(rescorer.models) == 1:
            untuned = Rescorer(rescorer.models[0], threads=args.threads)
            trees["blend"] = TreeDrafting(name="blend", rescorer=untuned)
        return Drawn(strings=rescorer, trees=trees, top_k=args.top_k), rescorer
    check_dump(found, dump)
    assert found.paths is not None, "settings for a model with heads have weights of paths"
    strings = found.paths.rescorer(rescorer.models, args.threads)
    if not found.trees:
        return Drawn(
            strings=strings, trees={"tree": TreeDrafting(name="tree", rescorer=strings)}, top_k=found.top_k
        ), rescorer
    trees = {
        ending: TreeDrafting(
            name=name,
            rescorer=Rescorer(rescorer.models[0], calibration=found.calibration(kind), threads=args.threads),
        )
        for ending, kind, name in (("tree", "closed", "tree tuned"), ("blend", "open", "blend tuned"))
    }
    return Drawn(strings=strings, trees=trees, top_k=found.top_k), rescorer


def one_step(dump: Dump, task: str, args: argparse.Namespace) -> DrawnStep:
    wanted, first = args.sequence or 0, 0
    for block in dump.blocks(task):
        if wanted - first < block.sequences:
            begin, end = block.offsets[wanted - first : wanted - first + 2].tolist()
            if args.position >= end - begin - 1:
                has = (
                    f"has lattices at 0 to {end - begin - 2}"
                    if end - begin > 1
                    else "is one token long and has no lattice"
                )
                raise Misuse(f"--position {args.position}: sequence {wanted} of task {task!r} {has}")
            return DrawnStep(gain=0, block=block, row=begin + args.position, sequence=wanted, position=args.position)
        first += block.sequences
    raise Misuse(f"--sequence {wanted}: task {task!r} of {dump.path} has {first} sequences, numbered from 0")


def best_steps(dump: Dump, tasks: list[str], drawn: Drawn, args: argparse.Namespace) -> list[DrawnStep]:
    """The steps of the base replay with the largest gain of the best rescored path."""
    steps: list[DrawnStep] = []
    with output.progress_bar() as bar:
        progress = bar.add_task(
            str(dump.path), total=sum(task.rows for task in dump.header.tasks if task.name in tasks)
        )
        for task in tasks:
            first = 0
            for block in dump.blocks(task):
                steps = sorted([*steps, *gains(block, first, drawn, args)], key=lambda step: -step.gain)[
                    : args.best or BEST
                ]
                first += block.sequences
                bar.advance(progress, block.rows)
    return steps


def gains(block: DumpBlock, first: int, drawn: Drawn, args: argparse.Namespace) -> Iterator[DrawnStep]:
    """The steps of a block in the base replay; `first`: number of the block's first sequence in its task."""
    sausages, truth, sequence_of = block.sausages(k=drawn.top_k), block.truth(), block.sequence_of
    histories = block.histories(slice(None), drawn.strings.context)
    drafts = drawn.strings.paths(sausages, histories, 1)
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


def files(
    dump: Dump, step: DrawnStep, drawn: Drawn, words: Sequence[str] | None, args: argparse.Namespace
) -> Iterator[tuple[Path, str]]:
    """The pictures of a step, as pairs of path and SVG."""
    name = f"{dump.header.kind}-{file_part(dump, step.block.task)}-{step.sequence}-{step.position}"
    lattice, *trees = (parts := draw(step, drawn, words, args)).values()
    if args.wide or is_file(args.out):
        path = args.out if is_file(args.out) else args.out / f"{name}.{form(args)}"
        yield path, wide(lattice, trees, name) if args.wide else below([lattice, *trees], name)
    else:
        yield from ((args.out / f"{name}-{ending}.{form(args)}", picture) for ending, picture in parts.items())


def draw(step: DrawnStep, drawn: Drawn, words: Sequence[str] | None, args: argparse.Namespace) -> dict[str, str]:
    """The lattice and the trees of a step: SVG by the suffix of the file."""
    block, row = step.block, step.row
    sausage = block.sausages([row], drawn.top_k)[0]
    history = block.history(row, max(drawn.strings.context, CONTEXT_TOKENS))
    drafts = drawn.strings.paths(sausage, history, args.paths)
    text = "".join(words[token] for token in history.tolist()) if words else " ".join(map(str, history.tolist()))
    common: dict[str, Any] = {"words": words, "truth": block.truth([row])[0], "certain": int(block.tokens[row])}
    title = f"{block.task}, after: {text}"
    return {
        "lattice": draw_sausage(sausage, after=drafts.tokens[: int(drafts.count)], title=title, **common),
        **{
            ending: draw_tree(
                tree_at(one.rescorer, block, row, args.nodes, top_k=drawn.top_k),
                listed=sausage,
                title=f"{one.name}; {title}",
                **common,
            )
            for ending, one in drawn.trees.items()
        },
    }


def file_part(dump: Dump, task: str) -> str:
    """The task's name for file names. Names with other characters get a number, so that files do not collide."""
    plain = re.sub(r"[^A-Za-z0-9_.+]", "_", task)[:80]
    return plain if plain == task else f"{plain}.{dump.tasks.index(task)}"
