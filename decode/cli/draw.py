"""`rescore draw`: pictures of rescored lattices."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.cli import arguments, output
from rescore.decode.cli.run import check_tasks
from rescore.decode.draft import Rescorer
from rescore.decode.replay import accepted_of_drafts, visited_rows
from rescore.decode.run import check_models
from rescore.lattice.block import Block
from rescore.lattice.draw import draw_sausage
from rescore.lattice.draw_tree import draw_tree
from rescore.lattice.dump import Dump

DESCRIPTION = """\
Draw lattices of a dump as SVG files: candidates by rank, the true continuation, the base draft and the best rescored
drafts, and beside each the token tree. Tokens are shown as text if the language model holds its vocabulary's words.

By default the steps are drawn at which rescoring gains the most accepted tokens; --position picks one.
"""

EXAMPLES = """\
examples:
  rescore draw data/demo/sampled --lm data/demo/demo.ngram -o pictures
  rescore draw DUMP --lm LM --task gsm8k --sequence 3 --position 17 -o pictures
"""

CONTEXT_TOKENS = 12  # shown in a picture's title


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A row of a block, and how much further its rescored draft is accepted than its base draft."""

    gain: int
    block: Block
    row: int

    @property
    def sequence(self) -> int:
        """In the shard."""
        return self.block.first_sequence + int(self.block.sequence_of[self.row])

    @property
    def position(self) -> int:
        return self.row - int(self.block.offsets[self.block.sequence_of[self.row]])


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser("draw", parents=[common], help="draw rescored lattices and trees", description=DESCRIPTION,
                              epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path, metavar="DUMP")
    arguments.add_rescoring(parser)
    parser.add_argument("--nodes", type=arguments.whole(1, 4096), default=16, metavar="N", help="of the token tree (default: 16)")
    parser.add_argument("--task", action="append", metavar="NAME", help="only this task; may be given several times")
    parser.add_argument("--best", type=arguments.whole(1, 1000), default=4, metavar="N", help="draw the N steps that gain most (default: 4)")
    parser.add_argument("--sequence", type=arguments.whole(0, 2**40), default=None, metavar="S", help="with --position: the sequence, from 0 (default: 0)")
    parser.add_argument("--position", type=arguments.whole(0, 2**40), metavar="P", help="draw the lattice predicted at this position, from 0")
    parser.add_argument("-o", "--out", type=Path, default=Path("."), metavar="DIR", help="where to write (default: here)")
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> None:
    if args.sequence is not None and args.position is None:
        raise ValueError("--sequence says where --position counts: give --position as well")
    dump, rescorer = Dump.open(args.dump), arguments.rescorer(args)
    check_models(dump, rescorer)
    check_tasks(dump, args.task)
    tasks = args.task or list(dump.tasks)
    steps = one_step(dump, tasks, args) if args.position is not None else best_steps(dump, tasks, rescorer, args)
    args.out.mkdir(parents=True, exist_ok=True)
    screen = output.console()
    for step in steps:
        for path, picture in draw(dump, step, rescorer, args):
            path.write_text(picture, encoding="utf-8")
            screen.print(str(path), highlight=False, soft_wrap=True)


def one_step(dump: Dump, tasks: list[str], args: argparse.Namespace) -> list[Step]:
    wanted = args.sequence or 0
    for block in dump.blocks(tasks[0]):
        sequence = wanted - block.first_sequence
        if 0 <= sequence < block.sequences:
            row = int(block.offsets[sequence]) + args.position
            length = int(block.offsets[sequence + 1] - block.offsets[sequence])
            if args.position >= length - 1:
                raise ValueError(f"--position {args.position}: sequence {wanted} of task {tasks[0]!r} has lattices at 0 to {length - 2}")
            return [Step(gain=0, block=block, row=row)]
    raise ValueError(f"--sequence {wanted}: task {tasks[0]!r} of {dump.path} has fewer sequences")


def best_steps(dump: Dump, tasks: list[str], rescorer: Rescorer, args: argparse.Namespace) -> list[Step]:
    """The steps of the base replay at which the best rescored draft is accepted furthest beyond the base draft."""
    steps: list[Step] = []
    for task in tasks:
        for block in dump.blocks(task):
            sausages, truth = block.sausages(k=args.top_k), block.truth()
            drafts = rescorer.paths(sausages, block.histories(slice(None), rescorer.context), 1, semantics=args.semantics)
            base = accepted_of_drafts(sausages.first[:, None], truth)
            gain = accepted_of_drafts(drafts.tokens, truth) - base
            steps += [Step(gain=int(gain[row]), block=block, row=row) for row in visited_rows(base, block.offsets).tolist()]
            steps = sorted(steps, key=lambda step: -step.gain)[: args.best]
    return steps


def draw(dump: Dump, step: Step, rescorer: Rescorer, args: argparse.Namespace) -> Iterator[tuple[Path, str]]:
    """The lattice and the tree of a step, as (path, SVG)."""
    block, row = step.block, step.row
    words = rescorer.models[0].words if rescorer.models else None
    sausage = block.sausages([row], args.top_k)[0]
    history = block.history(row, max(rescorer.context, CONTEXT_TOKENS))
    drafts = rescorer.paths(sausage, history, args.paths, semantics=args.semantics)
    text = "".join(words[token] for token in history.tolist()) if words else " ".join(map(str, history.tolist()))
    title = f"{block.task}, after: {text}"
    name = f"{dump.header.kind}-{block.task}-{step.sequence}-{step.position}"
    common = {"words": words, "truth": block.truth([row])[0], "certain": int(block.tokens[row]), "title": title}
    yield args.out / f"{name}-lattice.svg", draw_sausage(sausage, after=drafts.tokens[: int(drafts.count)], **common)
    yield args.out / f"{name}-tree.svg", draw_tree(rescorer.tree(sausage, history, args.nodes), **common)
