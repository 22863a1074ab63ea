"""Runs `rescore lm diff`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.model_files import read_model
from rescore.decode.cli.actions.output import Column, check_stdin, column_tables
from rescore.decode.cli.arguments import printable
from rescore.lm.diff import ModelDifference, Shared, difference

MAX_VALUE = 100  # characters shown of a value


def call(args: argparse.Namespace) -> int:
    """Returns 1 if the models differ."""
    check_stdin(args.a, args.b)
    with output.stages() as stage:
        stage(f"reading {args.a}")
        a = read_model(args, path=args.a)
        stage(f"reading {args.b}")
        b = read_model(args, path=args.b)
        stage("comparing")
        found = difference(a, b)
    text = a.words if a.words == b.words else None
    report = {"a": str(args.a), "b": str(args.b), **found.to_json()}
    output.report(args, report, *tables(found, output.width()), *remarks(found, text))
    return 0 if found.same else 1


def tables(found: ModelDifference, width: int) -> Iterator[RenderableType]:
    """Tables of n-grams by order and of contexts by length."""
    for name, rows in (("order", found.ngrams), ("context", found.contexts)):
        if rows:
            counts = [
                Column(title, [f"{getattr(row, key):,}" for row in rows])
                for title, key in (("only A", "only_a"), ("only B", "only_b"), ("both", "both"))
            ]
            gaps = [Column(key, [f"{getattr(row, key):.3g}" for row in rows]) for key in ("mean", "largest")]
            yield from column_tables(
                name, [str(number) for number in range(1, len(rows) + 1)], [*counts, *gaps], width=width
            )
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
