"""`rescore lattice`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli.groups import ThreadArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, argument, flag, option, value_errors_of
from rescore.decode.cli.output import Facts, Part, Result, TextTable, column
from rescore.decode.cli.values import Written, float_between, int_between, nonempty_text, weighted_path

if TYPE_CHECKING:
    from rescore.decode.rescoring.rescorer import LatticeRescorer, Strings, Weights
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
        rescorer = open_rescorer(args)
        stage("reading the lattices")
        lattices = list(read(args))
        references = reference_of(args, lattices)
        fitted = None
        if args.tune and references:
            half = (len(lattices) + 1) // 2
            stage(f"fitting weights to {half} lattices")
            weights, errors = tuned(rescorer, lattices[:half], references[:half])
            rescorer, fitted = rescorer.weighed(weights), {"lattices": half, "word_errors": errors}
        stage("rescoring")
        found, seconds = search(rescorer, lattices, args.paths)
    before = [one.words[0] if len(one) else [] for one in search(own_costs(args), lattices, 1)[0]]
    if args.out:
        write(args, lattices, found)
    report = figures(args, lattices, before, found, references, rescorer.weights, fitted, seconds)
    return Result(report, list(tables(report)))


def open_rescorer(args: LatticeArgs) -> LatticeRescorer:
    from rescore.decode.rescoring.rescorer import LatticeRescorer, Weights
    from rescore.lm.model.formats import load

    minus = [(args.minus[0], -args.minus[1])] if args.minus else []
    models, alpha = [], []
    for path, weight in (*args.lm, *minus):
        models.append(load(path))
        alpha.append(weight)
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


def reference_of(args: LatticeArgs, lattices: Sequence[WordLattice]) -> list[Words] | None:
    """The words of each lattice's reference."""
    from rescore.lm.model.compressed import open_text

    if args.reference is None:
        return None
    with value_errors_of(str(args.reference)), open_text(args.reference) as file:
        lines = [line.split() for line in file.read().decode().splitlines() if line.strip()]
    texts = {name: words for name, *words in lines}
    if missing := [one.name for one in lattices if one.name not in texts]:
        raise ValueError(f"{args.reference}: expected a line of {missing[0]!r}, got none ({len(missing)} are missing)")
    return [texts[one.name] for one in lattices]


def search(rescorer: LatticeRescorer, lattices: Sequence[WordLattice], paths: int) -> tuple[list[Strings], float]:
    """The strings of every lattice, and the seconds that they took."""
    found: list[Strings] = []
    began = time.perf_counter()
    for at in range(0, len(lattices), TOGETHER):
        part = lattices[at : at + TOGETHER]
        with value_errors_of(", ".join(one.name for one in part[:3])):
            found += rescorer.paths_of(part, paths)
    return found, time.perf_counter() - began


def write(args: LatticeArgs, lattices: Sequence[WordLattice], found: Sequence[Strings]) -> None:
    from rescore.decode.lab.replay.table import RecordWriter
    from rescore.lattice.atomic import output_to

    assert args.out
    models = [f"lm{n or ''}" for n in (0, *range(2, len(args.lm) + 1))][: len(args.lm)] + ["minus"] * bool(args.minus)
    kinds = {"name": "string", "rank": "int32", "text": "string", "cost": "float", "words": "int32"}
    fields = kinds | dict.fromkeys(["acoustic", "language", *models], "float")
    with output_to(args.out) as stream, RecordWriter(stream, args.out.suffix or ".jsonl", fields) as writer:
        for lattice, strings in zip(lattices, found):
            columns = [*strings.costs.T, *strings.models.T]
            writer.write(
                {
                    "name": [lattice.name] * len(strings),
                    "rank": list(range(len(strings))),
                    "text": [" ".join(words) for words in strings.words],
                    "cost": strings.cost.tolist(),
                    "words": list(map(len, strings.words)),
                    **dict(zip(("acoustic", "language", *models), (one.tolist() for one in columns))),
                }
            )


def figures(
    args: LatticeArgs,
    lattices: Sequence[WordLattice],
    before: Sequence[Words],
    found: Sequence[Strings],
    references: Sequence[Words] | None,
    weights: Weights,
    fitted: dict[str, Any] | None,
    seconds: float,
) -> dict[str, Any]:
    from rescore.decode.rescoring.word_errors import word_errors

    after = [one.words[0] if len(one) else [] for one in found]
    acoustic, language, penalty = weights.of(lattices[0]) if lattices else (None, weights.language, None)
    report: dict[str, Any] = {
        "files": list(map(str, args.files)),
        "lattices": len(lattices),
        "arcs": sum(one.arcs for one in lattices),
        "changed": sum(one != other for one, other in zip(before, after)),
        "microseconds_per_lattice": round(1e6 * seconds / max(len(lattices), 1), 1),
        "weights": {"acoustic": acoustic, "language": language, "word_penalty": penalty},
    }
    if references is None:
        return report
    parts = {"all": slice(None)}
    if fitted:
        parts = {"fitted": slice(None, fitted["lattices"]), "others": slice(fitted["lattices"], None)}
    report["word_errors"] = [
        {
            "part": name,
            "lattices": len(references[part]),
            "words": sum(map(len, references[part])),
            **{
                when: sum(word_errors(one, right) for one, right in zip(strings[part], references[part]))
                for when, strings in (("before", before), ("after", after))
            },
        }
        for name, part in parts.items()
    ]
    return report


def tables(report: dict[str, Any]) -> Iterator[Part]:
    weights = report["weights"]
    yield Facts(
        [
            ("lattices", report["lattices"]),
            ("arcs", report["arcs"]),
            ("best strings changed", report["changed"]),
            ("microseconds per lattice", report["microseconds_per_lattice"]),
            *((f"weight of {name.replace('_', ' ')}", value) for name, value in weights.items() if value is not None),
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
