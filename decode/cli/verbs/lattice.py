"""`rescore lattice`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli.groups import ThreadArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, argument, flag, option, value_errors_of
from rescore.decode.cli.output import Facts, Part, Result, TextTable, column
from rescore.decode.cli.values import Written, float_between, int_between, nonempty_text, weighted_path

if TYPE_CHECKING:
    from rescore.decode.rescoring.rescorer import LatticeRescorer, Strings
    from rescore.lattice.word_lattice import WordLattice

TOGETHER = 64  # lattices searched in one call
Words = Sequence[str]


@dataclass(frozen=True, kw_only=True)
class LatticeArgs(ThreadArgs, ReportedArgs):
    r"""Print what an n-gram model makes of the lattices of a recogniser or translator:
    their best strings, exactly, each cost apart.

    cost = X * acoustic + L * language + W * (-ln p of each model) + Y * words

    FILE     OpenFst files and text, k2's text, HTK's SLF, Kaldi's text archives,
             n-best lists as JSON lines (name, text or ids, acoustic, language) or
             as name, acoustic, language and words between tabs
    --minus  the model that the lattices were made with, where its scores are part
             of their language costs: those are kept (L = 1) and its own taken out
    --tune   fits X and Y on the first half of the lattices, by word errors

    rows of -o   name, rank, text, cost, words, acoustic, language, and -ln p of each
                 model: lm, lm2, .., minus

    examples:
      rescore lattice *.slf --lm lm.arpa
      rescore lattice *.slf --lm lm.ngram --paths 16 -o best.jsonl
      rescore lattice lats.ark --word-ids words.txt --lm new.arpa --minus old.arpa \
          --scale 0.1 --reference text --tune
      rescore lattice nbest.jsonl --lm tokens.ngram -o -
    """

    files: Sequence[Path] = argument("FILE", "lattices, see above", Path, several=True)
    lm: Sequence[tuple[Path, float]] = option(
        "LM[=W]", "n-gram model: .ngram, .arpa or .fst; repeatable, each with its weight (default: 1)", weighted_path,
        several=True,
    )  # fmt: skip
    minus: tuple[Path, float] | None = option("LM[=W]", "n-gram model whose scores are taken out", weighted_path)
    scale: float | None = option(
        "X", "weight of acoustic costs (default: 1, or 1 / lmscale of an SLF file)", float_between(0, 1000)
    )
    language: float | None = option(
        "L", "weight of the files' own language costs (default: 0, with --minus 1)", float_between(0, 1000)
    )
    word_penalty: float | None = option(
        "Y", "nats for each word (default: 0, or wdpenalty of an SLF file over its lmscale)", float_between(-1000, 1000)
    )
    paths: int = option("P", "strings of each lattice", int_between(1, 1024), 1)
    out: Path | None = option(
        "FILE",
        "write the strings, .jsonl or .parquet; - for JSON lines on standard output",
        Written((".parquet", ".jsonl"), stream=True),
        short="-o",
    )
    reference: Path | None = option("TEXT", "lines of a name and words; prints word error rates", Path)
    tune: bool = flag("fit the weight of acoustic costs and the word penalty to --reference")
    word_ids: Path | None = option("FILE", "words of labels, as Kaldi's words.txt", Path)
    first_label: int = option("N", "without --word-ids, the label of token 0", int_between(0, 1), 1, rare=True)
    filler: Sequence[str] = option(
        "WORD", "a word that is no part of strings, beside <eps>, !NULL, <s>, </s>, <sil> and the like; repeatable",
        nonempty_text, several=True, rare=True,
    )  # fmt: skip
    fragments: bool = flag("strings do not begin and end sentences", rare=True)

    def __post_init__(self) -> None:
        if self.tune and not self.reference:
            raise Misuse("--tune: expected --reference, the words that were spoken")


def run(args: LatticeArgs) -> Result:
    from rescore.decode.cli import screen
    from rescore.decode.rescoring.word_errors import tuned

    with screen.stages() as stage:
        stage("reading the models")
        rescorer, reference = open_rescorer(args), reference_of(args)
        lattices, fitted = read(args), None
        if args.tune and reference:
            stage("reading the lattices")
            held = list(lattices)
            half = held[: (len(held) + 1) // 2]
            stage(f"fitting weights to {len(half)} lattices")
            weights, _ = tuned(rescorer, half, list(map(reference, half)))
            rescorer, lattices, fitted = rescorer.weighed(weights), iter(held), len(half)
        stage("rescoring")
        figures = rescored(args, rescorer, lattices, reference, fitted)
    return Result(figures, list(tables(figures)))


def open_rescorer(args: LatticeArgs) -> LatticeRescorer:
    from rescore.decode.rescoring.rescorer import LatticeRescorer, Weights
    from rescore.lm.model.formats import load

    given = [*args.lm, *([(args.minus[0], -args.minus[1])] if args.minus else [])]
    models, alpha = [load(path) for path, _ in given], [weight for _, weight in given]
    language = args.language if args.language is not None else float(args.minus is not None or not args.lm)
    weights = Weights(acoustic=args.scale, language=language, word_penalty=args.word_penalty)
    return LatticeRescorer(models, alpha=alpha, weights=weights, ends=not args.fragments, threads=args.threads)


def own_costs(args: LatticeArgs) -> LatticeRescorer:
    """What finds the lattices' own best strings."""
    from rescore.decode.rescoring.rescorer import LatticeRescorer, Weights

    weights = Weights(acoustic=args.scale, language=1.0, word_penalty=args.word_penalty)
    return LatticeRescorer(weights=weights, threads=args.threads)


def read(args: LatticeArgs) -> Iterator[WordLattice]:
    from rescore.decode.rescoring.read import FILLERS, ReadOptions, read_lattices, read_symbols

    symbols = read_symbols(args.word_ids) if args.word_ids else None
    options = ReadOptions(symbols=symbols, first=args.first_label, fillers=FILLERS | {*args.filler})
    for path in args.files:
        yield from read_lattices(path, options)


def reference_of(args: LatticeArgs) -> Callable[[WordLattice], Words] | None:
    """What returns the words of a lattice's reference; None without --reference."""
    from rescore.decode.rescoring.read import columns_of
    from rescore.lm.model.compressed import open_text

    texts: dict[str, Words] = {}
    if args.reference is None:
        return None
    with value_errors_of(str(args.reference)), open_text(args.reference) as file:
        for number, line in enumerate(file.read().decode("utf-8-sig").split("\n"), 1):
            if not (columns := columns_of(line)):
                continue
            if columns[0] in texts:
                raise ValueError(f"{args.reference}:{number}: expected one line of {columns[0]!r}, got a second one")
            texts[columns[0]] = columns[1:]

    def words(lattice: WordLattice) -> Words:
        if lattice.name not in texts:
            raise ValueError(f"{args.reference}: expected a line of {lattice.name!r}, got none")
        return texts[lattice.name]

    return words


def rescored(
    args: LatticeArgs,
    rescorer: LatticeRescorer,
    lattices: Iterator[WordLattice],
    reference: Callable[[WordLattice], Words] | None,
    fitted: int | None,
) -> dict[str, Any]:
    """Searches lattices as they are read, writes their strings, and returns the figures. fitted: the first so many are
    a part of their own.
    """
    from rescore.decode.rescoring.word_errors import word_errors

    counts, own, seconds = Counter[str](), own_costs(args), 0.0
    names = ["all"] if fitted is None else ["fitted", "others"]
    parts = [Counter[str]() for _ in names]
    used = set[tuple[float, float, float]]()
    with writer(args) as write:
        for together in iter(lambda: list(islice(lattices, TOGETHER)), []):
            used.update(map(rescorer.weights.of, together))
            began = time.perf_counter()
            with value_errors_of(" to ".join({together[0].name: 1, together[-1].name: 1})):
                found = rescorer.paths_of(together, args.paths)
            seconds += time.perf_counter() - began
            write(together, found)
            for lattice, first, best in zip(together, own.paths_of(together, 1), found):
                before, after = ([] if not len(one) else one.words[0] for one in (first, best))
                if reference:
                    part, right = parts[fitted is not None and counts["lattices"] >= fitted], reference(lattice)
                    part.update(lattices=1, words=len(right))
                    part.update(before=word_errors(before, right), after=word_errors(after, right))
                counts.update(lattices=1, arcs=lattice.arcs, empty=int(not len(best)), changed=int(before != after))
    report: dict[str, Any] = {
        "files": list(map(str, args.files)),
        **{name: counts[name] for name in ("lattices", "arcs", "empty", "changed")},
        "microseconds_per_lattice": round(1e6 * seconds / max(counts["lattices"], 1), 1),
        "weights": {  # null: those of each lattice, which differ
            name: own.pop() if len(own) == 1 else None
            for name, own in zip(("acoustic", "language", "word_penalty"), map(set, zip(*used)))
        },
    }
    if reference:
        fields = ("lattices", "words", "before", "after")
        rows = [{"part": name, **{field: part[field] for field in fields}} for name, part in zip(names, parts)]
        report["word_errors"] = rows
    return report


@contextmanager
def writer(args: LatticeArgs) -> Iterator[Callable[[Sequence[WordLattice], Sequence[Strings]], None]]:
    """Yields what writes the strings of lattices to -o."""
    import numpy as np

    from rescore.decode.lab.replay.table import RecordWriter
    from rescore.lattice.atomic import output_to

    if args.out is None:
        yield lambda lattices, found: None
        return
    models = [f"lm{n or ''}" for n in (0, *range(2, len(args.lm) + 1))][: len(args.lm)] + ["minus"] * bool(args.minus)
    kinds = {"name": "string", "rank": "int32", "text": "string", "cost": "float", "words": "int32"}
    costs = ("acoustic", "language", *models)
    with (
        output_to(args.out) as stream,
        RecordWriter(stream, args.out.suffix or ".jsonl", kinds | dict.fromkeys(costs, "float")) as rows,
    ):

        def write(lattices: Sequence[WordLattice], found: Sequence[Strings]) -> None:
            words = [string for strings in found for string in strings.words]
            columns = np.concatenate([np.hstack([strings.costs, strings.models]) for strings in found]).T
            rows.write(
                {
                    "name": [lattice.name for lattice, strings in zip(lattices, found) for _ in range(len(strings))],
                    "rank": [rank for strings in found for rank in range(len(strings))],
                    "text": list(map(" ".join, words)),
                    "cost": np.concatenate([strings.cost for strings in found]),
                    "words": list(map(len, words)),
                    **dict(zip(costs, columns)),
                }
            )

        yield write


def tables(report: dict[str, Any]) -> Iterator[Part]:
    weights = report["weights"]
    yield Facts(
        [
            ("lattices", report["lattices"]),
            ("arcs", report["arcs"]),
            *[("lattices without a string", report["empty"])] * bool(report["empty"]),
            ("best strings changed", report["changed"]),
            ("microseconds per lattice", report["microseconds_per_lattice"]),
            *(
                (f"weight of {name.replace('_', ' ')}", "of each lattice" if value is None else value)
                for name, value in weights.items()
            ),
        ]
    )
    if rows := report.get("word_errors"):
        yield ""
        rates = {
            when: [row[when] / row["words"] if row["words"] else None for row in rows] for when in ("before", "after")
        }
        yield TextTable(
            "word error rate",
            [row["part"] for row in rows],
            [
                column("lattices", (row["lattices"] for row in rows), ","),
                column("words", (row["words"] for row in rows), ","),
                *(column(when, own, ".2%") for when, own in rates.items()),
            ],
        )
