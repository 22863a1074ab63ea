"""`rescore draw`."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli.groups import TOKENIZER, DumpArgs, RescoringArgs, TaskArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, flag, option, value_errors_of
from rescore.decode.cli.output import Result
from rescore.decode.cli.values import Written, int_between
from rescore.lattice.atomic import atomic_file
from rescore.lattice.extras import needed_for

if TYPE_CHECKING:
    from rescore.decode.draft.rescorer import Rescorer
    from rescore.lattice.dump import Dump
    from rescore.lattice.dump_block import DumpBlock


SCALE = 2  # pixels of a PNG per px of the drawing
CONTEXT_TOKENS = 12  # of the running text, shown in a picture's title
BEST = 4  # steps drawn by default

FORMATS = ("svg", "png")
OUT = Written(tuple(f".{form}" for form in FORMATS), folder=True)


@dataclass(frozen=True, kw_only=True)
class DrawArgs(DumpArgs, TaskArgs, RescoringArgs, ReportedArgs):
    """Draw lattices of a dump: the candidates by rank, the true continuation, the base
    draft and the best rescored paths. For each lattice also its token tree and,
    with one n-gram model, its open tree, whose tokens outside the lattice are
    dashed. With --settings, the drafts are those of the settings. Tokens are shown
    as text if the (first) n-gram model holds the words of its vocabulary, or with
    --tokenizer.

    By default the steps are drawn at which rescoring gains the most accepted
    tokens; --position picks one. The files' names are printed:
    KIND-TASK-SEQUENCE-POSITION-lattice.svg, -tree.svg and -open-tree.svg. With
    --wide there is one file per step, KIND-TASK-SEQUENCE-POSITION.svg, a 16:9 sheet
    with the lattice on the left and the trees on the right. -o FILE.svg or FILE.png
    draws one step into one file. PNG needs the extra png.

    examples:
      rescore draw data/demo/sampled --lm data/demo/demo.ngram -o pictures
      rescore draw DUMP --lm LM --task gsm8k --sequence 3 --position 17 -o pictures
      rescore draw DUMP --settings settings.json --wide -o slide.png
    """

    settings: Path | None = option(
        "FILE", "written by `rescore tune`: models, weights of the paths, calibration of the trees", Path
    )
    nodes: int = option("N", "nodes of the token tree", int_between(1, 4096), default=16)
    tokenizer: Path | None = option("PATH", f"{TOKENIZER}, to show tokens as text", Path)
    best: int | None = option("N", "draw the N steps with the largest gain (default: 4)", int_between(1, 1000))
    sequence: int | None = option(
        "S", "with --position: the sequence of the task, from 0 (default: 0)", int_between(0, 2**40)
    )
    position: int | None = option("P", "draw the lattice predicted at this position, from 0", int_between(0, 2**40))
    out: Path = option(
        "DIR|FILE",
        "folder to write to (default: the current one); or an .svg or .png file for a single picture, of the "
        "best step or that of --position",
        OUT,
        short="-o",
        default=Path("."),
    )
    format: str | None = option(None, "format of the files in a folder (default: svg)", choices=FORMATS)
    wide: bool = flag("lattice and trees side by side on a 16:9 sheet, for slides")

    def __post_init__(self) -> None:
        if self.sequence is not None and self.position is None:
            raise Misuse("--sequence needs --position")
        if self.position is not None and self.best is not None:
            raise Misuse("--best, --position: expected at most one of them")
        if self.position is not None and len(set(self.task)) > 1:
            raise Misuse("--position needs a single task: give --task once")
        if is_file(self.out):
            if self.best not in (None, 1):
                raise Misuse(f"-o {self.out}: a file holds one step: give a folder, or --best 1")
            if self.format not in (None, self.out.suffix[1:]):
                raise Misuse(f"--format {self.format}: contradicts -o {self.out}")
        elif not self.out.is_dir() and mimetypes.guess_type(self.out.name)[0]:  # a file of another kind
            raise Misuse(f"-o {self.out}: expected a folder, or a name that ends in {' or '.join(OUT.suffixes)}")
        if self.settings and self.top_k is not None:
            raise Misuse("--top-k: --settings already has the top-k it was tuned for; leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnStep:
    """A row of a block. gain: accepted tokens of the rescored draft minus those of the base draft"""

    gain: int
    block: DumpBlock
    row: int

    def place(self, dump: Dump) -> tuple[int, int]:
        """The sequence in its task, and the position in the sequence."""
        sequence = int(self.block.sequence_of[self.row])
        return dump.number_of(self.block) + sequence, self.row - int(self.block.offsets[sequence])


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What is drawn.

    strings  drafts paths of the lattice
    trees    names and rescorers of drafted trees, by the suffix of their files
    top_k    candidates per slot; None for all in the dump
    """

    strings: Rescorer
    trees: Mapping[str, tuple[str, Rescorer]]
    top_k: int | None


def run(args: DrawArgs) -> Result:
    from rescore.decode.cli import models
    from rescore.decode.lab.replay.words import words_of

    if form(args) == "png":
        _cairosvg()  # raises before the work if it is missing
    (dump,) = models.open_dumps([args.dump], allow_inexact=args.allow_inexact, tasks=args.task, top_k=args.top_k)
    if dump.header.heads == 1:
        raise Misuse(f"{dump.path}: a dump of a model without heads has no lattices to draw")
    drawn, rescorer = drafting(args, dump)
    words = words_of(dump, args.tokenizer, rescorer.models)
    tasks = [name for name in dump.tasks if not args.task or name in args.task]
    with value_errors_of(dump.path):
        steps = (
            [one_step(dump, tasks[0], args.sequence or 0, args.position)]
            if args.position is not None
            else best_steps(dump, tasks, drawn, args)
        )
    written = []
    for step in steps:
        sequence, position = step.place(dump)
        facts = {"task": step.block.task, "sequence": sequence, "position": position, "gain": step.gain}
        for path, picture in files(dump, step, drawn, words, args):
            write(path, picture)
            written.append({"file": str(path), **facts})
    names = [] if is_file(args.out) else [str(one["file"]) for one in written]
    return Result({"dump": str(dump.path), "pictures": written}, names, listed=bool(names))


def is_file(path: Path) -> bool:
    """Whether a path names a picture rather than a folder."""
    return not OUT.is_folder(path)


def form(args: DrawArgs) -> str:
    return args.out.suffix[1:] if is_file(args.out) else args.format or "svg"


def drafting(args: DrawArgs, dump: Dump) -> tuple[Drawn, Rescorer]:
    """The drafters of the settings, else of the models; and the models' rescorer."""
    from rescore.decode.cli import models
    from rescore.decode.draft.rescorer import Rescorer
    from rescore.decode.lab.replay.rows import check_dump

    if args.settings and (args.lm or args.alpha is not None):
        raise Misuse("--lm, --alpha: --settings already has models and weights; leave them out")
    found, args = models.open_settings(args.settings, args)
    rescorer = models.open_rescorer(args, [dump])
    if found is None:
        if len(rescorer.models) == 1:
            blend = Rescorer(rescorer.models[0], threads=args.threads)
            trees = {"tree": ("tree", rescorer), "blend": ("blend", blend)}
        else:
            trees = {"tree": ("heads-tree", Rescorer(threads=args.threads))}
        return Drawn(strings=rescorer, trees=trees, top_k=args.top_k), rescorer
    check_dump(found, dump)
    assert found.paths is not None, "settings for a model with heads have weights of paths"
    strings = found.paths.rescorer(rescorer.models, args.threads)
    trees = {"tree": ("heads-tree", Rescorer(threads=args.threads))}
    for name, open in (("tree", False), ("blend", True)) if found.trees else ():
        tuned = found.calibrated(open=open, models=rescorer.models, threads=args.threads)
        trees[name] = (f"{name} tuned", tuned)
    return Drawn(strings=strings, trees=trees, top_k=found.top_k), rescorer


def one_step(dump: Dump, task: str, wanted: int, position: int) -> DrawnStep:
    first = 0
    for block in dump.blocks(task):
        if wanted - first < block.sequences:
            begin, end = block.offsets[wanted - first : wanted - first + 2].tolist()
            if position >= end - begin - 1:
                has = (
                    f"has lattices at 0 to {end - begin - 2}"
                    if end - begin > 1
                    else "is one token long and has no lattice"
                )
                raise Misuse(f"--position {position}: sequence {wanted} of task {task!r} {has}")
            return DrawnStep(gain=0, block=block, row=begin + position)
        first += block.sequences
    raise Misuse(f"--sequence {wanted}: task {task!r} of {dump.path} has {first} sequences, numbered from 0")


def best_steps(dump: Dump, tasks: list[str], drawn: Drawn, args: DrawArgs) -> list[DrawnStep]:
    """The steps of the base replay with the largest gain of the best rescored path."""
    from rescore.decode.cli import screen

    steps: list[DrawnStep] = []
    most = 1 if is_file(args.out) else args.best or BEST
    with screen.progress_bar() as bar:
        progress = bar.add_task(
            str(dump.path), total=sum(task.rows for task in dump.header.tasks if task.name in tasks)
        )
        for task in tasks:
            for block in dump.blocks(task):
                steps = sorted([*steps, *gains(block, drawn)], key=lambda step: -step.gain)[:most]
                bar.advance(progress, block.rows)
    return steps


def gains(block: DumpBlock, drawn: Drawn) -> list[DrawnStep]:
    """The steps of a block in the base replay."""
    from rescore.decode.lab.replay.replay import accepted_of_drafts, visited_rows

    sausages, truth = block.sausages(k=drawn.top_k), block.truth()
    histories = block.histories(slice(None), drawn.strings.context)
    drafts = drawn.strings.paths(sausages, histories, 1)
    base = accepted_of_drafts(sausages.first[:, None], truth)
    gain = accepted_of_drafts(drafts.tokens, truth) - base
    visited = visited_rows(base, block.offsets).tolist()
    return [DrawnStep(gain=int(gain[row]), block=block, row=row) for row in visited]


def files(
    dump: Dump, step: DrawnStep, drawn: Drawn, words: Sequence[str] | None, args: DrawArgs
) -> Iterator[tuple[Path, str]]:
    """The pictures of a step, as pairs of path and SVG."""
    from rescore.lattice.svg import below, wide

    sequence, position = step.place(dump)
    name = f"{dump.header.kind}-{file_part(dump, step.block.task)}-{sequence}-{position}"
    lattice, *trees = (parts := draw(step, drawn, words, args)).values()
    if args.wide or is_file(args.out):
        path = args.out if is_file(args.out) else args.out / f"{name}.{form(args)}"
        yield path, wide(lattice, trees, name) if args.wide else below([lattice, *trees], name)
    else:
        yield from ((args.out / f"{name}-{ending}.{form(args)}", picture) for ending, picture in parts.items())


def draw(step: DrawnStep, drawn: Drawn, words: Sequence[str] | None, args: DrawArgs) -> dict[str, str]:
    """The lattice and the trees of a step: SVG by the suffix of the file."""
    from rescore.decode.lab.replay.replay import tree_at
    from rescore.lattice.draw import draw_sausage, draw_tree

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
                tree_at(rescorer, block, row, args.nodes, top_k=drawn.top_k),
                listed=sausage,
                title=f"{name}; {title}",
                **common,
            )
            for ending, (name, rescorer) in drawn.trees.items()
        },
    }


def file_part(dump: Dump, task: str) -> str:
    """The task's name for file names. Names with other characters get a number, so that files do not collide."""
    plain = re.sub(r"[^A-Za-z0-9_.+]", "_", task)[:80]
    return plain if plain == task else f"{plain}.{dump.tasks.index(task)}"


def write(path: Path, drawing: str) -> None:
    """Writes the drawing in the format of the path's suffix, atomically."""
    content = drawing.encode("utf-8", "replace")
    if path.suffix == ".png":
        content = _cairosvg().svg2png(bytestring=content, scale=SCALE)
    with atomic_file(path) as file:
        file.write(content)


def _cairosvg():
    try:
        with needed_for("a PNG picture"):
            import cairosvg
    except OSError as error:  # the package is installed, the library that it calls is not
        raise ValueError(
            f"PNG needs the library cairo, which cairosvg did not find ({str(error).splitlines()[0]}): "
            "install libcairo2 (Debian) or cairo (Homebrew), or write SVG"
        ) from None
    return cairosvg
