"""`rescore lm diff`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rescore.decode.cli.groups import LM_FILE, IdArgs
from rescore.decode.cli.options import ReportedArgs, argument
from rescore.decode.cli.output import Column, Part, Result, TextTable, check_stdin
from rescore.decode.cli.values import printable

if TYPE_CHECKING:
    from rescore.lm.build.diff import ModelDifference, Shared


MAX_VALUE = 100  # characters shown of a value


@dataclass(frozen=True, kw_only=True)
class LmDiffArgs(IdArgs, ReportedArgs):
    """Compare two models: n-grams that only one of them has, costs (-ln p) and backoff
    costs of those in both, and metadata.

    columns  order         of the n-grams; context: tokens of the context
             only A, only B, both
             mean, largest  differences in cost, in nats
    Below the tables: where the largest differences are, with the costs in A and B.
    Exit status: 0 if the models are equal, 1 if they differ or cannot be read.
    Memory: about 80 bytes per n-gram of both.

    examples:
      rescore lm diff lm.ngram pruned.ngram
      rescore lm diff lm.ngram lm.arpa.gz --json -
    """

    a: Path = argument("A", LM_FILE, Path)
    b: Path = argument("B", "the other model", Path)


def run(args: LmDiffArgs) -> Result:
    """Returns 1 if the models differ."""
    from rescore.decode.cli import lm_files, screen
    from rescore.lm.build.diff import difference

    check_stdin(args.a, args.b)
    with screen.stages() as stage:
        stage(f"reading {args.a}")
        a = lm_files.read_model(args.a, args)
        stage(f"reading {args.b}")
        b = lm_files.read_model(args.b, args)
        stage("comparing")
        found = difference(a, b)
    text = a.words if a.words == b.words else None
    report = {"a": str(args.a), "b": str(args.b), **found.to_json()}
    return Result(report, [*tables(found), *remarks(found, text)], status=0 if found.same else 1)


def tables(found: ModelDifference) -> Iterator[Part]:
    """Tables of n-grams by order and of contexts by length."""
    for name, rows in (("order", found.ngrams), ("context", found.contexts)):
        if rows:
            counts = [
                Column(title, [f"{getattr(row, key):,}" for row in rows])
                for title, key in (("only A", "only_a"), ("only B", "only_b"), ("both", "both"))
            ]
            gaps = [Column(key, [f"{getattr(row, key):.3g}" for row in rows]) for key in ("mean", "largest")]
            yield TextTable(name, [str(number) for number in range(1, len(rows) + 1)], [*counts, *gaps])
            yield ""


def remarks(found: ModelDifference, words: Sequence[str] | None) -> Iterator[str]:
    """Lines on the largest differences in cost, and on the metadata."""
    for what, rows in (("cost", found.ngrams), ("backoff cost", found.contexts)):
        for row in rows:
            if row.worst is not None:
                yield f"{what} of {spelled(row, words)}: {row.a:.6g} in A, {row.b:.6g} in B"
    for name, (a, b) in found.facts.items():
        yield printable(f"{name}: {short(a)} in A, {short(b)} in B")
    yield "the models are equal" if found.same else "the models differ"


def spelled(row: Shared, words: Sequence[str] | None) -> str:
    tokens = row.worst or ()
    text = "" if words is None else f" {''.join(words[token] for token in tokens)!r}"
    return printable(f"({' '.join(map(str, tokens))}){text}")


def short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 2] + ".."
